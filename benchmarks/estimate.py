"""`memfit.estimate` against the truth: the peak of the real step in a fresh process.

    make bench TARGET=estimate                      everything (about 20 minutes on two cores)
    make bench TARGET="estimate lstm unet CNN"      some models or families
    make bench TARGET="estimate 4"                  4 models of all, evenly spread
    BENCH_CACHE=truth.json make bench ...           truth that was measured before is not measured again

The largest batch that an estimate measures has 16 examples; those here have 4 to 64 times as many. The truth
of a case is the median over the peaks of some steps of Keras's own `model.fit`. As a cap: the same steps in
another fresh process under a hard limit of the estimate's upper bound, for every case.

Estimates are timed, so they come first, one at a time. Of the real steps only the bytes count, so as many
processes run at once as there are cores. Where an estimate took longer than 10 s, the first three real steps
are timed afterwards, alone: what one would wait for to see them, the tracing of the first one included.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import memfit
from benchmarks.estimate_models import CASES
from memfit.budgeting import allocator, machine
from memfit.units import MIB

NUM_STEPS = 5
CAP_SECONDS = 100  # A step that does not fit waits 10 s for each request that fails.
NUM_TRIES = 2  # A machine that others use, too, may end a process.
SKIPPED_STEPS = 1  # The first one also traces.
MOST_SECONDS = 10.0  # Of an estimate; or the time of the first so many real steps, where that is more.
REAL_STEPS = 3


def take_steps(name: str, batch_size: int) -> dict[str, Any]:
    """The peaks and the seconds of some real steps of `model.fit`, in this (fresh) process."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model, make = CASES[name].make()
    peaks, seconds = [], []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            tf.config.experimental.reset_memory_stats("CPU:0")
            self.start = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            seconds.append(time.perf_counter() - self.start)
            peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])

    batch = tf.nest.map_structure(tf.constant, make(batch_size))
    # One batch, held once, that is traced as a batch of any size, as most data sets are.
    data = tf.data.Dataset.from_tensors(batch).repeat(NUM_STEPS).map(_of_any_size)
    model.fit(data, verbose=0, shuffle=False, callbacks=[Watch()])
    return {
        "peaks": peaks,
        "seconds": min(seconds[SKIPPED_STEPS:]),
        "first_seconds": sum(seconds[:REAL_STEPS]),
    }


def _of_any_size(*batch: Any) -> Any:
    import tensorflow as tf

    def relax(leaf: Any) -> Any:
        return tf.compat.v1.placeholder_with_default(leaf, [None, *leaf.shape[1:]])

    return tf.nest.map_structure(relax, batch)


def make_estimates(name: str, batches: Sequence[int]) -> dict[str, Any]:
    """The estimates of a model at some batches, and the seconds that one takes."""
    import keras

    from memfit.estimating.batches_tf import describe
    from memfit.estimating.probing_tf import find_subject, measure_growth, probe_batches

    keras.utils.set_random_seed(0)
    model, make = CASES[name].make()
    data = make(64)
    # What `memfit.estimate` does. The same probes serve all batches, so it is measured once.
    assert len({probe_batches(batch) for batch in batches}) == 1
    start = time.perf_counter()
    subject, described = find_subject(model), describe(model, data, batch_size=batches[0])
    growth = measure_growth(subject, described)
    measure_growth(subject, described, is_training=False, num_recordings=1)
    found = [growth.predict(batch, length=described.length) for batch in batches[:1]]
    seconds = time.perf_counter() - start
    found += [growth.predict(batch, length=described.length) for batch in batches[1:]]
    return {
        "found": [[each.low_bytes, each.peak_bytes, each.high_bytes] for each in found],
        "seconds": seconds,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: a model at a batch.

    Args:
        name: The model.
        family: Its family.
        batch_size: The batch.
        truth: The median peak of real steps.
        spread: The most over the least of those peaks.
        estimate: The estimate.
        high: Its upper bound.
        is_cap_kept: Whether the same steps went well under that bound as a limit.
    """

    name: str
    family: str
    batch_size: int
    truth: float
    spread: float
    estimate: int
    high: int
    is_cap_kept: bool

    @property
    def error(self) -> float:
        """By how much the estimate is off."""
        return self.estimate / self.truth - 1


class Cache:
    """What was measured, in a file if `BENCH_CACHE` names one. Several threads may ask."""

    def __init__(self) -> None:
        self._path = Path(os.environ["BENCH_CACHE"]) if os.environ.get("BENCH_CACHE") else None
        is_there = self._path is not None and self._path.exists()
        self._found: dict[str, Any] = json.loads(self._path.read_text()) if is_there and self._path else {}
        self._lock = threading.Lock()

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """What is known under a key, or else what `measure` returns."""
        if key not in self._found:
            found = measure()
            with self._lock:
                self._found[key] = found
                if self._path is not None:
                    self._path.write_text(json.dumps(self._found))
        return self._found[key]


class Progress:
    """Says on standard error how far the work is. Several threads may tell.

    Args:
        total: How many pieces there are.
    """

    def __init__(self, total: int) -> None:
        self._total, self._num_done = total, 0
        self._start, self._lock = time.perf_counter(), threading.Lock()

    def tell(self, what: str) -> None:
        """One more piece is done."""
        with self._lock:
            self._num_done += 1
            minutes = (time.perf_counter() - self._start) / 60
            text = f"[{self._num_done} of {self._total}, {minutes:.1f} min] {what}"
            print(text, file=sys.stderr, flush=True)


def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fresh process with room enough, and as many threads as without a limit."""
    threads = {allocator.THREADS: str(machine.num_cores())}
    for _ in range(NUM_TRIES):
        measured = memfit.measure(function, *arguments, device_limit="3GiB", environment=threads)
        if measured.value is not None:
            break
    else:
        raise SystemExit(f"{arguments}: {measured.outcome.value}: {measured.reason}\n{measured.output}")
    return measured.value


def keeps_cap(
    name: str, batch_size: int, limit_bytes: int, environment: Mapping[str, str] | None = None
) -> bool:
    """Whether real steps go well under a limit, in a fresh process."""
    measured = memfit.measure(
        take_steps,
        name,
        batch_size,
        device_limit=limit_bytes,
        timeout_seconds=CAP_SECONDS,
        environment=environment,
    )
    return measured.outcome is memfit.Outcome.OK and not measured.num_failed_requests


def main(words: Sequence[str] = ()) -> None:
    """Prints the tables for the models or families named, or for all."""
    names, start = choose(words), time.perf_counter()
    progress = Progress(len(names) + 2 * sum(len(CASES[name].batches) for name in names))
    made = {}
    for name in names:
        made[name] = fresh(make_estimates, name, CASES[name].batches)
        progress.tell(f"{name}: estimated in {made[name]['seconds']:.1f} s")
    rows = _compare(made, progress)
    seconds = {
        name: (found["seconds"], _allowed_seconds(name, found["seconds"])) for name, found in made.items()
    }
    _summarise(rows, seconds)
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes")


def choose(words: Sequence[str]) -> list[str]:
    """The models that are asked for: by name, by family, or so many of all."""
    chosen: list[str] = []
    for word in words:
        found = [name for name, case in CASES.items() if word in (name, case.family)]
        if word.isdigit() and int(word):
            found = list(CASES)[:: max(1, -(-len(CASES) // int(word)))]
        if not found:
            families = ", ".join(dict.fromkeys(case.family for case in CASES.values()))
            raise SystemExit(f"there is no model {word!r}. Models: {', '.join(CASES)}. Families: {families}.")
        chosen += found
    return list(dict.fromkeys(chosen or CASES))


def _compare(made: dict[str, Any], progress: Progress) -> list[Row]:
    """The truth of all cases, and whether it stays under the upper bound, some at once."""
    cache = Cache()

    def truth(name: str, batch: int) -> Any:
        found = cache.get(f"truth {name} {batch}", partial(fresh, take_steps, name, batch))
        progress.tell(f"{name} {batch}: truth")
        return found

    def cap(name: str, batch: int, high: int) -> bool:
        is_kept = keeps_cap(name, batch, high)
        progress.tell(f"{name} {batch}: {'went well' if is_kept else 'FAILED'} under its upper bound")
        return is_kept

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        waiting = [
            (
                name,
                batch,
                estimate,
                high,
                pool.submit(truth, name, batch),
                pool.submit(cap, name, batch, high),
            )
            for name, found in made.items()
            for batch, (_, estimate, high) in zip(CASES[name].batches, found["found"], strict=True)
        ]
        rows = []
        for name, batch, estimate, high, real, kept in waiting:
            peaks = real.result()["peaks"][SKIPPED_STEPS:]
            rows.append(
                Row(
                    name=name,
                    family=CASES[name].family,
                    batch_size=batch,
                    truth=median(peaks),
                    spread=max(peaks) / min(peaks),
                    estimate=estimate,
                    high=high,
                    is_cap_kept=kept.result(),
                )
            )
            print(_shown(rows[-1]), flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


def _allowed_seconds(name: str, took: float) -> float:
    """How long the estimate of a model may take."""
    if took <= MOST_SECONDS:
        return MOST_SECONDS
    return float(max(MOST_SECONDS, fresh(take_steps, name, CASES[name].batches[-1])["first_seconds"]))


def _shown(row: Row) -> str:
    return (
        f"{row.name:26} {row.batch_size:5} truth {row.truth / MIB:7.1f} MiB (x{row.spread:4.2f})  "
        f"estimate {row.estimate / MIB:7.1f} {row.error:+6.1%}  high {row.high / MIB:7.1f} "
        f"{row.high / row.truth:5.2f}x  {'' if row.is_cap_kept else 'CAP FAILED'}"
    )


def _summarise(rows: Sequence[Row], seconds: dict[str, tuple[float, float]]) -> None:
    errors = sorted(abs(row.error) for row in rows)
    last = errors[min(len(errors) - 1, int(0.95 * len(errors)))]
    slack = median(row.high / row.truth for row in rows)
    is_late = any(took > allowed for took, allowed in seconds.values())
    took = [each for each, _ in seconds.values()]
    print(f"\n{len(seconds)} models, {len(rows)} cases")
    _line("median error", f"{median(errors):.1%}", "<= 5 %", is_met=median(errors) <= 0.05)
    _line("95th percentile", f"{last:.1%}", "<= 15 %", is_met=last <= 0.15)
    num_failed = sum(not row.is_cap_kept for row in rows)
    _line("cap failed", f"{num_failed} of {len(rows)}", "<= 3 %", is_met=num_failed <= 0.03 * len(rows))
    _line("upper bound over truth, median", f"{slack:.2f}", "<= 1.15", is_met=slack <= 1.15)
    _line("seconds, median and most", f"{median(took):.1f}, {max(took):.1f}", "<= 10", is_met=not is_late)
    families = defaultdict(list)
    for row in rows:
        families[row.family].append(abs(row.error))
    for family, found in families.items():
        _line(f"{family}, median error", f"{median(found):.1%}", "<= 10 %", is_met=median(found) <= 0.10)
    print(f"\nestimates of more than {MOST_SECONDS:.0f} s, beside the first {REAL_STEPS} real steps")
    for name, (each, allowed) in seconds.items():
        if each > MOST_SECONDS:
            print(f"{name:26} {each:5.1f} s  {allowed:5.1f} s  {'LATE' if each > allowed else ''}")
    print("\nruns that failed under the upper bound")
    for row in rows:
        if not row.is_cap_kept:
            print(_shown(row))
    print("\nunder-estimates, worst first")
    for row in sorted((row for row in rows if row.error < 0), key=lambda row: row.error):
        print(_shown(row))


def _line(what: str, value: str, target: str, *, is_met: bool) -> None:
    print(f"{what:34} {value:>12}   target {target:8} {'met' if is_met else 'NOT MET'}")
