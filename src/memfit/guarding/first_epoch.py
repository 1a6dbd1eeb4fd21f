"""Why a run dies after its first epoch, when all was well before: one of six causes, told apart. Pure.

What worked for an epoch does not fail by chance. Either something else runs now (a validation that is bigger,
a batch that is longer, the next model of a loop), or something has grown meanwhile (tensors that Python
keeps, a graph for every trace, a cache or shuffle buffer in host memory). The story of the script, a moment
a line, tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import prod
from typing import Final

from memfit.records import Moment, Request
from memfit.units import MIB, format_bytes

Shapes = tuple[tuple[int, ...], ...]

TRAINING: Final = "training"
VALIDATION: Final = "validation"
# What grows less than this explains no out-of-memory.
LEAST_GROWTH_BYTES: Final = MIB
# What grows by less than this share of all growth is not what filled the memory.
LEAST_SHARE: Final = 0.3


class Cause(StrEnum):
    """The six causes."""

    VALIDATION = "validation takes more memory than training"
    NEXT_MODEL = "each model of a loop stays in memory, and one more did not fit"
    KEPT_TENSORS = "tensors are kept from step to step"
    RETRACING = "functions are traced again and again, and every trace keeps its graph"
    DATA_BUFFER = "a cache or shuffle buffer of the data fills host memory"
    LONG_BATCH = "a batch came that is larger or longer than all before it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A cause, and what it rests on.

    Attributes:
        cause: The cause.
        evidence: What was seen, and what was ruled out, a sentence each.
    """

    cause: Cause
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The shapes of the inputs of batches, a shape an input.

    Attributes:
        died: Of the batch that ran out of memory.
        largest: Of the largest batch before it.
    """

    died: Shapes
    largest: Shapes

    @property
    def ratio(self) -> float:
        """How many times the largest before it the batch was.

        Example:
        >>> Batches(died=((8, 300),), largest=((8, 100),)).ratio
        3.0
        """
        return sum(map(prod, self.died)) / max(1, sum(map(prod, self.largest)))

    def in_words(self) -> str:
        """`"[8, 300] against [8, 100]"`."""
        return " against ".join(", ".join(str(list(each)) for each in shapes) for shapes in self._both())

    def _both(self) -> tuple[Shapes, Shapes]:
        return self.died, self.largest


def find_cause(
    moments: Sequence[Moment],
    *,
    is_host: bool,
    request: Request | None = None,
    batches: Batches | None = None,
) -> Verdict | None:
    """Why a run died after its first epoch; `None` if it died before that, or nothing explains it.

    Args:
        moments: The story up to the end, in order.
        is_host: Whether the host's memory ran out, rather than a device's.
        request: The allocation that failed, or `None`.
        batches: Of which shapes the batches were, or `None` if nobody noted them.
    """
    if not moments or not _is_after_first_epoch(moments):
        return None
    rules: dict[Cause, Callable[[Sequence[Moment]], tuple[str, ...]]] = {
        Cause.NEXT_MODEL: _next_model,
        Cause.VALIDATION: _validation,
        Cause.KEPT_TENSORS: _kept_tensors,
        Cause.RETRACING: _retracing,
    }
    if is_host or not _is_gpu(request):  # What a GPU holds is no buffer of the data.
        rules[Cause.DATA_BUFFER] = _data_buffer
    if not is_host:
        rules[Cause.LONG_BATCH] = lambda story: _long_batch(story, request, batches)
    is_counted = any(each.num_tensors is not None for each in moments)
    ruled_out: list[str] = []
    for cause, rule in rules.items():
        evidence = rule(moments)
        if evidence:
            return Verdict(cause=cause, evidence=(*evidence, *ruled_out))
        if is_counted and cause in _NOT_IT:
            ruled_out.append(_NOT_IT[cause])
    return None


def _is_gpu(request: Request | None) -> bool:
    return request is not None and request.device is not None and request.device.startswith("GPU")


_NOT_IT: Final = {
    Cause.KEPT_TENSORS: "Not tensors that Python keeps: their number did not grow.",
    Cause.RETRACING: "Not retracing: the number of graphs did not grow.",
}


def _is_after_first_epoch(moments: Sequence[Moment]) -> bool:
    last = moments[-1]
    has_trained = any(each.phase == TRAINING and each.step > 0 for each in moments)
    return has_trained and (last.epoch > 0 or last.model > 0 or last.phase != TRAINING)


def _next_model(moments: Sequence[Moment]) -> tuple[str, ...]:
    """What was held when each model began: it should be the same, and grows by a model each time."""
    first: dict[int, Moment] = {}
    for each in moments:
        first.setdefault(each.model, each)
    held = [each.device_bytes for each in first.values() if each.device_bytes is not None]
    is_newest = moments[-1].model == max(first)
    if len(held) < 2 or not _rises(held) or not is_newest or held[-1] - held[0] < LEAST_SHARE * held[-1]:
        return ()
    return (
        f"The device held {_series(held)} when the models of the script began to train, one after the other: "
        "none of them was freed.",
    )


def _validation(moments: Sequence[Moment]) -> tuple[str, ...]:
    """A first validation that did not come to its end."""
    last = moments[-1]
    if last.phase == TRAINING or last.phase == "between":
        return ()
    same = [each for each in moments if each.phase == last.phase and each.model == last.model]
    if sum(each.step == 0 for each in same) > 1:
        return ()  # It has gone well before, so it was something else.
    trained = [each for each in moments if each.phase == TRAINING and each.model == last.model]
    peak = max((each.peak_bytes for each in trained if each.peak_bytes is not None), default=None)
    steps = f"{last.step} of its batches" if last.step else "not one of its batches"
    before = "" if peak is None else f", with a peak of {format_bytes(peak)}"
    return (f"Training had gone through an epoch{before}; {last.phase} got through {steps}.",)


def _kept_tensors(moments: Sequence[Moment]) -> tuple[str, ...]:
    counted = [each for each in moments if each.tensor_bytes is not None and each.num_tensors is not None]
    sizes = [each.tensor_bytes or 0 for each in counted]
    if len(counted) < 2 or not _rises(sizes) or not _explains(sizes, _held(counted)):
        return ()
    first, last = counted[0], counted[-1]
    return (
        f"Python kept {first.num_tensors:,} tensors of {format_bytes(sizes[0])} in epoch {first.epoch}, and "
        f"{last.num_tensors:,} of {format_bytes(sizes[-1])} in epoch {last.epoch}.",
    )


def _retracing(moments: Sequence[Moment]) -> tuple[str, ...]:
    counted = [each for each in moments if each.num_graphs is not None and each.phase == "between"]
    numbers = [each.num_graphs or 0 for each in counted]
    # The first epoch traces what there is to trace; from then on the number should stand still.
    if len(numbers) < 2 or not all(low < high for low, high in pairwise(numbers)):
        return ()
    hosts = [each.host_bytes for each in counted]
    return (
        f"{numbers[0]:,} graphs were alive after epoch {counted[0].epoch}, and {numbers[-1]:,} after epoch "
        f"{counted[-1].epoch}; host memory went from {format_bytes(hosts[0])} to {format_bytes(hosts[-1])}.",
    )


def _data_buffer(moments: Sequence[Moment]) -> tuple[str, ...]:
    """Memory that rests between steps and that no tensor of Python's explains, growing while data is read.

    On the CPU the tensors in a buffer are in the device's memory, too; with a GPU they are beside it.
    """
    steps = _steps_of_last_model(moments)
    beside = [each.host_bytes - (each.peak_bytes or 0) for each in steps]
    resting = [each.device_bytes or 0 for each in steps]
    for where, sizes in (("on the device", resting), ("in host memory beside it", beside)):
        if len(sizes) > 1 and sizes[-1] - sizes[0] >= max(LEAST_GROWTH_BYTES, LEAST_SHARE * sizes[-1]):
            return (
                f"What rests {where} between steps went from {format_bytes(sizes[0])} to "
                f"{format_bytes(sizes[-1])} while batches were read.",
            )
    return ()


def _long_batch(
    moments: Sequence[Moment], request: Request | None, batches: Batches | None
) -> tuple[str, ...]:
    """What rests on the device has not grown, and a step of training needs more than all before it.

    Where the shapes of batches are known, they decide: one that is no larger than others is not to blame.
    """
    last = moments[-1]
    if last.phase != TRAINING or (batches is not None and batches.ratio <= 1):
        return ()
    steps = _steps_of_last_model(moments)
    resting = [each.device_bytes for each in steps if each.device_bytes is not None]
    peak = max((each.peak_bytes for each in moments if each.peak_bytes is not None), default=None)
    if not resting or peak is None or resting[-1] - resting[0] >= max(LEAST_GROWTH_BYTES, peak // 10):
        return ()
    asked = ""
    if request is not None and request.num_bytes is not None:
        shape = "" if request.shape is None else f" for a tensor of shape {list(request.shape)}"
        asked = f" This step asked for {format_bytes(request.num_bytes)} more{shape}."
    seen = ""
    if batches is not None:
        seen = (
            f"The inputs of this batch were {batches.in_words()} of the largest batch before: "
            f"{batches.ratio:.2g} times as much. "
        )
    return (
        f"{seen}All steps before stayed within {format_bytes(peak)}, and what rests on the device between "
        f"them did not grow.{asked}",
    )


def _steps_of_last_model(moments: Sequence[Moment]) -> list[Moment]:
    number = moments[-1].model
    return [each for each in moments if each.model == number and each.phase == TRAINING and each.step > 0]


def _held(moments: Sequence[Moment]) -> list[int]:
    return [each.host_bytes if each.device_bytes is None else each.device_bytes for each in moments]


def _rises(sizes: Sequence[int]) -> bool:
    never_falls = all(low <= high for low, high in pairwise(sizes))
    return never_falls and sizes[-1] - sizes[0] >= LEAST_GROWTH_BYTES


def _explains(part: Sequence[int], whole: Sequence[int]) -> bool:
    return part[-1] - part[0] >= LEAST_SHARE * (whole[-1] - whole[0])


def _series(sizes: Sequence[int]) -> str:
    shown = sizes if len(sizes) <= 4 else (*sizes[:2], *sizes[-2:])
    words = [format_bytes(size) for size in shown]
    if len(sizes) > 4:
        words.insert(2, "...")
    return ", ".join(words)
