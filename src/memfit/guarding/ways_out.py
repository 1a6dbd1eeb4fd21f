"""What would help, cheapest first, as commands to type. Pure; numbers are given only where they follow.

What costs nothing comes first (memfit's plan instead of plain Keras), then what changes the script, then more
memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memfit.guarding.first_epoch import Cause
from memfit.records import BatchPeak, Forecast, Plan, Request, Source, WayOut
from memfit.units import MIB

MOST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a script that ran out of memory.

    Attributes:
        script: Its words: path and arguments.
        is_cell: Whether it is a cell of a notebook, where one types Python.
        is_host: Whether the host's memory ran out.
        is_observed: Whether memfit only watched.
        is_gpu: Whether the device is a GPU.
        is_fragmented: Whether enough was free, but in pieces.
        limit_bytes: What the device could have, or `None`.
        in_use_bytes: What was in use when the request failed, or `None`.
        fixed_bytes: What of that does not depend on the batch: weights, slots, kept tensors.
        request: The allocation that failed, or `None`.
        batch_size: Examples of a batch, or `None`.
        place: The user's line, or `None`.
        cause: Why it died after the first epoch, or `None`.
        plan: The plan that memfit trained by, or `None`.
        has_fit: Whether it came to train with `model.fit`.
        has_batch_norm: Whether batches were not split for the sake of BatchNormalization.
        forecast: What the step takes, whole and in parts, or `None`.
    """

    script: str
    is_cell: bool = False
    is_host: bool = False
    is_observed: bool = False
    is_gpu: bool = False
    is_fragmented: bool = False
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    fixed_bytes: int = 0
    request: Request | None = None
    batch_size: int | None = None
    place: str | None = None
    cause: Cause | None = None
    plan: Plan | None = None
    has_fit: bool = True
    has_batch_norm: bool = False
    forecast: Forecast | None = None

    @property
    def needed_bytes(self) -> int | None:
        """What it needs at least: what was in use, and what was asked for beside it."""
        if self.in_use_bytes is None or self.request is None or self.request.num_bytes is None:
            return None
        return self.in_use_bytes + self.request.num_bytes


def find_ways_out(situation: Situation) -> tuple[WayOut, ...]:
    """The three cheapest ways out."""
    ways = _host_ways(situation) if situation.is_host else _device_ways(situation)
    return tuple(ways)[:MOST]


def _device_ways(situation: Situation) -> Iterator[WayOut]:
    if situation.is_observed:
        yield _planned(situation)
    yield from _by_cause(situation)
    if situation.is_gpu and situation.is_fragmented:
        yield WayOut(
            what="an allocator that does not leave gaps, on NVIDIA GPUs (no GPU has run this here)",
            command=f"TF_GPU_ALLOCATOR=cuda_malloc_async memfit run {situation.script}",
        )
    if situation.has_batch_norm:
        yield WayOut(
            what="split batches although BatchNormalization then sees smaller ones (changes the mathematics)",
            command=_command(situation, allow="split_batch_norm"),
        )
    if not situation.has_fit:
        yield WayOut(
            what="exact micro-batches in a loop of your own",
            command="step = memfit.train_step(model, loss, optimizer, memfit.Plan(micro_batch=8))",
        )
    yield from _by_plan(situation)
    if situation.cause is not Cause.VALIDATION:
        yield from _smaller_batch(situation)
    yield from _more_memory(situation)
    if not situation.is_observed and situation.has_fit and not situation.is_cell:
        yield WayOut(
            what="start it again under a tighter plan when memory runs out",
            command=_command(situation, num_restarts=2),
        )


def _planned(situation: Situation) -> WayOut:
    split = None
    if situation.forecast is not None and not situation.has_batch_norm:
        split = _fitting(situation.forecast.split, situation)
    what = "training" if situation.is_cell else "script"
    how = "" if split is None else f", such as in micro-batches of {split.num_examples}"
    return WayOut(
        what=f"the same {what} as memfit trains it: planned, split, by time segments, recovering{how}",
        command=_command(situation),
        predicted_bytes=None if split is None else split.peak_bytes,
        source=None if split is None else Source.MEASURED,
    )


def _fitting(peaks: Sequence[BatchPeak], situation: Situation) -> BatchPeak | None:
    """The most examples that fit with room to spare, or `None`."""
    limit = situation.limit_bytes
    return next((each for each in peaks if limit is not None and each.high_bytes <= limit), None)


def _by_plan(situation: Situation) -> Iterator[WayOut]:
    """What the planner measured, and did not come to."""
    plan = situation.plan
    if plan is None:
        return
    for fallback in plan.fallbacks:
        if fallback.predicted_bytes is not None:
            yield WayOut(
                what=fallback.in_words(),
                command=_command(situation, budget_bytes=fallback.predicted_bytes),
                predicted_bytes=fallback.predicted_bytes,
                source=Source.MEASURED,
            )


def _smaller_batch(situation: Situation) -> Iterator[WayOut]:
    if situation.forecast is not None:
        size = situation.forecast.batch_size
        fitting = _fitting(situation.forecast.smaller, situation)
        if fitting is not None:
            yield _in_batches(situation, fitting.num_examples, size, fitting.peak_bytes, Source.MEASURED)
        return
    if situation.batch_size is None or situation.batch_size < 2:
        return
    size, needed = situation.batch_size, situation.needed_bytes
    half = size // 2
    predicted = None
    if needed is not None and needed > situation.fixed_bytes:
        predicted = situation.fixed_bytes + -(-(needed - situation.fixed_bytes) * half // size)
    yield _in_batches(situation, half, size, predicted, None if predicted is None else Source.DERIVED)


def _in_batches(
    situation: Situation, num: int, size: int, predicted: int | None, source: Source | None
) -> WayOut:
    is_validation = situation.cause is Cause.VALIDATION
    where = f" in {situation.place}" if situation.place else ""
    # By arithmetic, it is what was alive when it failed: the step had not come to its peak.
    least = "" if source is Source.MEASURED else ", at least"
    return WayOut(
        what=f"validation in batches of {num} instead of {size}{least}"
        if is_validation
        else f"batches of {num} instead of {size} (another training){least}",
        command=f"{'validation_' * is_validation}batch_size={num}{where}",
        predicted_bytes=predicted,
        source=source,
    )


def _more_memory(situation: Situation) -> Iterator[WayOut]:
    if situation.forecast is not None:
        yield WayOut(
            what="more memory: what this batch is expected to need at most",
            command=_with_more(situation, situation.forecast.high_bytes),
            predicted_bytes=situation.forecast.high_bytes,
            source=Source.MEASURED,
        )
        return
    needed = situation.needed_bytes
    if needed is None or situation.limit_bytes is None:
        return
    yield WayOut(
        what="more memory: at least what was in use and what was asked for beside it",
        command=_with_more(situation, needed),
        predicted_bytes=needed,
        source=Source.DERIVED,
    )


def _by_cause(situation: Situation) -> Iterator[WayOut]:
    advice = {
        Cause.NEXT_MODEL: (
            "free each model before the next is made",
            "del model; keras.backend.clear_session(); gc.collect()",
        ),
        Cause.KEPT_TENSORS: ("keep numbers instead of tensors", "losses.append(float(loss))"),
        Cause.RETRACING: (
            "trace once for all sizes and numbers",
            "@tf.function(reduce_retracing=True), and tensors instead of Python numbers",
        ),
        Cause.LONG_BATCH: (
            "batches of like lengths, with about as many steps in each",
            "memfit.batch_by_length(dataset, batch_size)",
        ),
        Cause.DATA_BUFFER: ("a smaller buffer", "dataset.shuffle(1000), and no dataset.cache() in memory"),
    }
    if situation.cause is Cause.VALIDATION:
        yield from _smaller_batch(situation)
    elif situation.cause is not None:
        what, command = advice[situation.cause]
        yield WayOut(what=what, command=command)


def _host_ways(situation: Situation) -> Iterator[WayOut]:
    yield from _by_cause(situation)
    if situation.cause is None:
        yield WayOut(
            what="data from disk instead of from memory",
            command='numpy.load("x.npy", mmap_mode="r") in a keras.utils.PyDataset, or no dataset.cache()',
        )
    if situation.is_observed:
        yield _planned(situation)
    if situation.in_use_bytes is not None and not situation.is_gpu:
        tighter = max(MIB, situation.in_use_bytes * 4 // 5)
        yield WayOut(
            what="train in less: on the CPU, tensors are in host memory, too",
            command=_command(situation, budget_bytes=tighter),
            predicted_bytes=tighter,
            source=Source.DERIVED,
        )
    if not situation.is_cell:
        yield WayOut(
            what="start it again under a tighter plan when it is killed",
            command=f"memfit run --restarts 2 {situation.script}",
        )


def _command(
    situation: Situation, *, budget_bytes: int | None = None, allow: str = "", num_restarts: int = 0
) -> str:
    """What to type: the script again, or, in a cell, the training."""
    limit = situation.limit_bytes if budget_bytes is None else budget_bytes
    if situation.is_cell:
        budget = "" if limit is None else f', budget="{_size(limit)}"'
        allowed = f', allow="{allow}"' if allow else ""
        return f"memfit.fit(model, x, y{budget}{allowed})"
    options = (
        "" if limit is None else f"--budget {_size(limit)}",
        f"--allow {allow}" if allow else "",
        f"--restarts {num_restarts}" if num_restarts else "",
    )
    return " ".join(filter(None, ("memfit run", *options, situation.script)))


def _with_more(situation: Situation, num_bytes: int) -> str:
    """The same with a higher limit, which is set when a process begins."""
    if situation.is_cell:
        return f"--budget {_size(num_bytes)} behind `memfit run` in kernel.json, and a new kernel"
    return f"memfit run --budget {_size(num_bytes)} {situation.script}"


def _size(num_bytes: int) -> str:
    """A size as it is typed, in whole MiB, rounded up."""
    return shlex.quote(f"{-(-num_bytes // MIB)}MiB")
