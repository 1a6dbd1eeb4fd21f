"""Listens, reads the meters at steps, and asks who is to blame when a reading keeps growing.

Cheap first: a step that is not read costs a microsecond or two, a reading some ten, and the heap is walked
only when the readings show growth, twice, to see what came in between.
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections import deque
from contextlib import ExitStack
from typing import Any, Final

import tensorflow as tf

from memfit.errors import MemfitWarning
from memfit.guarding import internals_tf as internals
from memfit.guarding import wording
from memfit.guarding.blame_tf import Evidence, blame_habits, blame_heap
from memfit.guarding.census_tf import Census, take_census
from memfit.guarding.clock import Clock, Key
from memfit.guarding.deadline import Deadline
from memfit.guarding.judging import judge
from memfit.guarding.meters_tf import Meters, device_peak_bytes
from memfit.guarding.naming import is_user_file, running_frames
from memfit.guarding.series import Series
from memfit.guarding.tracing_tf import Tracer, user_caller
from memfit.measuring import device_tf
from memfit.records import Growth, Leak, Watched

READING_SHARE: Final = 0.0015  # Of the time, for readings and for looking at them.
FREE_SECONDS: Final = 0.03  # Once, whatever share that is: a short program must be looked at, too.
LEAST_GAP_SECONDS: Final = 0.01  # More readings would tell no more: of many, every second one is dropped.
FREE_READINGS: Final = 64  # At every step, so that short programs are watched, too.
FIRST_LOOK: Final = 20  # Readings.
LOOKS_APART: Final = 1.25  # Each look at the series comes after so many times the readings of the one before.
READINGS_BETWEEN: Final = 12  # Two counts of the heap.
WALK_SHARE: Final = 0.01
MOST_WALK_SECONDS: Final = 0.5  # For the containers of the heap, and again for their names.
FREE_WALKS_SECONDS: Final = 3.0  # Of this thread's own time.
MAX_KEYS: Final = 8
UNEXPLAINED: Final = ("objects", "native")


class Engine:
    """What `memfit.watch` does once TensorFlow is there.

    Args:
        every: Steps between two readings; `None` by their cost.
        budget: What may be used.
    """

    def __init__(self, *, every: int | None, budget: str | int | None) -> None:
        internals.check_versions()
        self._every, self._budget = every, budget
        self._listening = ExitStack()
        self._is_on = False
        self._process = os.getpid()
        self._meters: Meters | None = None
        self._series: dict[Key, dict[str, Series]] = {}
        self._clock = Clock()
        self._tracer = Tracer(self._clock)
        self._started = self._paused = time.perf_counter()
        self._next_reading = 0.0
        self._next_look = FIRST_LOOK
        self._num_readings = 0
        self._step = 0.0
        self._num_epochs = 0
        self._seconds, self._walk_seconds, self._spent_seconds = 0.0, 0.0, 0.0
        self._first: tuple[Census, int] | None = None
        self._growths: list[Growth] = []
        self._leaks: dict[tuple[str, str], Leak] = {}
        self._blamed_at = 0
        self._steps_per_epoch: float | None = None
        self._evidence = Evidence()
        self._faults: deque[str] = deque(maxlen=3)

    def start(self) -> None:
        """Begins to listen."""
        if not self._is_on:
            self._is_on = True
            self._started += time.perf_counter() - self._paused  # Shares are of the time that is watched.
            self._listening.enter_context(internals.listening(self))

    def finish(self) -> None:
        """Looks a last time, and stops listening."""
        if self._is_on:
            self._is_on = False
            self._paused = time.perf_counter()
            self._listening.close()
            if self._meters is not None:
                self._read(self._last_step())  # What is gone with the end was no leak.
                self._look_safely(is_last=True)

    def _last_step(self) -> float:
        key = self._clock.current
        num_steps = self._clock.num_steps(*key) if key is not None and key[0] != "second" else 0
        return max(self._step + 1, num_steps)

    # What is heard

    def on_step(self, kind: str, function: Any, arguments: Any) -> None:
        """Something ended that may be a step."""
        if not self._is_on:
            return
        step = self._clock.tick(kind, self._tracer.number_of(function) if kind == "function" else None)
        if step is None or not self._is_due(step):
            return
        if os.getpid() != self._process:  # A fork has a memory of its own.
            return
        if self._meters is None:
            self._meters = Meters(self._budget)
        start, walked_seconds = time.thread_time(), self._walk_seconds
        self._read(step)
        if arguments:
            self._evidence.note_shapes(function, arguments)
        if kind == "call":
            self._note_call(function)
        self._look_if_due()
        took = time.thread_time() - start
        self._seconds += took
        # Walks over the heap have a share of their own.
        self._spent_seconds += took - (self._walk_seconds - walked_seconds)
        self._next_reading = self._next_allowed()

    def _next_allowed(self) -> float:
        """When a reading may come again: when its share of the time covers what all of them have cost."""
        covered = (self._spent_seconds - FREE_SECONDS) / READING_SHARE
        return max(time.perf_counter() + LEAST_GAP_SECONDS, self._started + covered)

    def _is_due(self, step: int) -> bool:
        if self._every is not None:
            return step % self._every == 0
        return self._num_readings < FREE_READINGS or time.perf_counter() >= self._next_reading

    def on_second(self, seconds: float) -> None:
        """Time passed; it is the clock only of programs in which nothing else happens."""
        if self._clock.current is not None and self._clock.current[0] != "second":
            return
        if not tf.executing_eagerly() or not device_tf.has_started():
            return
        if self._meters is None:
            self._meters = Meters(self._budget)
        if self._clock.tick("second") is not None:
            self._read(self._clock.num_ticks * seconds)
            self._look_if_due()

    def on_trace(self, graph: Any, function: Any) -> None:
        """A graph was begun."""
        if self._meters is not None:
            self._meters.num_traces += 1
            self._meters.graphs.add(graph)
        if function is None:
            self._tracer.note_graph()

    def on_traced_call(self, function: Any, args: Any, kwargs: Any) -> None:
        """A function was traced."""
        self._tracer.note_call(function, args, kwargs)

    def on_epoch_end(self, *_: Any) -> None:
        """Keras ended an epoch."""
        self._num_epochs += 1
        self._steps_per_epoch = self._clock.num_steps("train batch") / self._num_epochs

    # Readings

    def _read(self, step: float) -> None:
        assert self._meters is not None and self._clock.current is not None
        key = self._clock.current
        if key not in self._series:
            if len(self._series) >= MAX_KEYS:
                del self._series[next(iter(self._series))]
            self._series[key] = self._meters.make_series()
        series = self._series[key]
        for name, value in self._meters.read().items():
            series[name].add(step, value)
        self._num_readings += 1
        self._step = step

    def _note_call(self, model: Any) -> None:
        assert self._meters is not None and self._clock.current is not None
        series = self._series[self._clock.current]
        for name in self._meters.devices:
            self._evidence.note_peak(
                model, device_peak_bytes(name) - series[name].last, self._meters.room(series[name])
            )

    # Looks

    def _look_if_due(self) -> None:
        if self._num_readings >= self._next_look:
            self._look_safely()
            if self._first is None:
                self._next_look = int(self._num_readings * LOOKS_APART) + 4
            else:
                self._next_look = max(self._num_readings + READINGS_BETWEEN, 2 * self._blamed_at)

    def _look_safely(self, *, is_last: bool = False) -> None:
        """Looks; a run must never die of being watched."""
        try:
            self._look(is_last=is_last)
        except Exception as fault:  # noqa: BLE001
            self._faults.append(f"a look at the heap failed, and was left out: {fault!r}.")
            self._first = None

    def _look(self, *, is_last: bool = False) -> None:
        """Judges the series; where one grows, counts the heap, and the second time says who is to blame."""
        key = self._clock.current
        if key is None or self._meters is None or key not in self._series:
            return
        self._growths = [judge(each, self._meters.room(each)) for each in self._series[key].values()]
        self._accept(blame_habits(self._growths, self._tracer, self._evidence))
        if not self._is_suspicious():
            return
        if self._first is None and self._may_walk():
            self._first = (self._walk(), self._num_readings)
            if not is_last:
                return
        if self._first is not None and (is_last or self._is_second_due()):
            self._blame_heap(is_last=is_last)

    def _is_suspicious(self) -> bool:
        return any(each.is_growing and each.room is not None for each in self._growths)

    def _is_second_due(self) -> bool:
        assert self._first is not None
        # Once somebody was blamed, again only when there is twice as much to see.
        due = max(self._first[1] + READINGS_BETWEEN, 2 * self._blamed_at)
        return self._num_readings >= due and self._may_walk()

    def _may_walk(self) -> bool:
        elapsed = time.perf_counter() - self._started
        return self._walk_seconds <= FREE_WALKS_SECONDS + WALK_SHARE * elapsed

    def _walk(self) -> Census:
        start = time.thread_time()
        gc.collect()  # What is only waiting to be collected is no leak.
        earlier = None if self._first is None else self._first[0]
        census = take_census(self._step, Deadline(MOST_WALK_SECONDS), earlier)
        self._walk_seconds += time.thread_time() - start
        return census

    def _blame_heap(self, *, is_last: bool) -> None:
        assert self._first is not None and self._meters is not None
        second, start = self._walk(), time.thread_time()
        evidence = self._evidence
        # At the end the program's objects may be gone while the process has still their memory.
        evidence.is_running = not is_last
        evidence.num_readings = self._num_readings
        evidence.unit = self._unit()
        evidence.steps_per_epoch = self._steps_per_epoch
        evidence.grown_bytes = self._meters.grown_bytes()
        known = list(self._leaks.values())
        self._accept(blame_heap(self._first[0], second, self._growths, known, evidence, MOST_WALK_SECONDS))
        self._walk_seconds += time.thread_time() - start
        self._blamed_at = self._num_readings

    def _accept(self, leaks: list[Leak]) -> None:
        """Takes up what was found, and tells what is new."""
        if any(leak.kind == "kept" for leak in leaks):  # Then it is explained after all.
            self._leaks = {key: leak for key, leak in self._leaks.items() if key[0] not in UNEXPLAINED}
        for leak in leaks:
            key = (leak.kind, leak.name)
            if key not in self._leaks:
                self._tell(leak)
            elif leak.file is None:  # What is over has no place in the source any more.
                continue
            self._leaks[key] = leak

    def _tell(self, leak: Leak) -> None:
        growing = [each for each in self._growths if each.is_growing and each.room is not None]
        ends = "; ".join(wording.when_it_ends(each, self._unit()) for each in growing)
        text = f"memory grows: {leak}" + (f" At this rate, {ends}." if ends else "")
        file, line = user_caller() or _running_place()
        warnings.warn_explicit(text, MemfitWarning, file, line)

    # Results

    def _unit(self) -> str:
        return "second" if self._clock.current is not None and self._clock.current[0] == "second" else "step"

    def result(self) -> Watched:
        """All that was seen so far."""
        return Watched(
            num_steps=self._clock.most_steps(),
            num_epochs=self._num_epochs,
            num_readings=self._num_readings,
            unit=self._unit(),
            seconds=self._seconds,
            growths=tuple(self._growths),
            leaks=tuple(sorted(self._leaks.values(), key=lambda leak: -(leak.num_bytes or 0))),
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        if self._meters is None:
            return ("no step was seen: nothing was trained, predicted or called.",)
        if not self._meters.devices:
            return ("no device here has a true meter, so only the host's memory was watched.", *self._faults)
        return tuple(self._faults)


def _running_place() -> tuple[str, int]:
    """Where the program is, as seen from another thread."""
    frames = (each for each in running_frames() if is_user_file(each.f_code.co_filename))
    return next(((each.f_code.co_filename, each.f_lineno) for each in frames), (__file__, 1))
