"""The fastest of all combinations that fit. Pure: measurements in, ranked candidates out.

A way to run a model (its settings but for micro-batches) was tried at a few small batches. A law through
what was measured says what it takes at any batch, and so what it takes in micro-batches of any size. All of
them are candidates; those that fit are ranked by time, and of those that are about equally fast the simplest
is first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memfit.units import MIB

# Of two candidates whose times are in the same step of this ladder, the simpler one is taken.
SIMPLER: Final = 1.05
# What a prediction may be off, and by how much the peaks of equal steps were seen to differ.
MARGIN: Final = 0.06
NOISE: Final = 0.08
# The same for the room in which recorded steps found a place for every buffer.
NOISE_OF_ROOM: Final = 0.03
# What a step takes without computing anything again, in forward passes: at least twice one. On long
# sequences a forward pass is a chain of small products, and what goes back has larger ones.
LEAST_WORK: Final = 2.0
# What TensorFlow holds of its own beside a step: constants, counters, batches under way.
OWN_BYTES: Final = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A step that was run.

    Attributes:
        num_examples: Examples that were under way at once.
        peak_bytes: The peak of the device, with all that rests there.
        seconds: Its time.
        room_bytes: The limit under which it finds a place for every buffer; `None` if it was not recorded.
        spare_bytes: What is to stay free besides, where a step that dies cannot be undone.
    """

    num_examples: int
    peak_bytes: int
    seconds: float
    room_bytes: int | None = None
    spare_bytes: int = 0

    @property
    def least_room_bytes(self) -> int:
        """A room that says no more than the peak does."""
        return math.floor(self.peak_bytes * (1 + NOISE) / (1 + NOISE_OF_ROOM))

    @property
    def high_bytes(self) -> int:
        """A limit under which steps like this one hardly fail."""
        room_bytes = (self.room_bytes or 0) * (1 + NOISE_OF_ROOM)
        return math.ceil(max(self.peak_bytes * (1 + NOISE), room_bytes)) + OWN_BYTES + self.spare_bytes


@dataclass(frozen=True, slots=True)
class Law:
    """What a step takes at any number of examples, by some that were tried.

    Between two tries it is a line, beyond the last one that line goes on, and below the first nothing is
    gained: what does not depend on the examples cannot be told from what does.

    Attributes:
        tries: At least one.

    Example:
    >>> small = Try(num_examples=2, peak_bytes=120, seconds=0.2)
    >>> large = Try(num_examples=4, peak_bytes=140, seconds=0.3)
    >>> law = Law((small, large))
    >>> law.peak_bytes(1), law.peak_bytes(32), round(law.seconds(32), 2)
    (120, 420, 1.7)
    """

    tries: tuple[Try, ...]

    def peak_bytes(self, num_examples: int) -> int:
        """The peak at a number of examples."""
        return math.ceil(self._value(num_examples, [each.peak_bytes for each in self._sorted]))

    def seconds(self, num_examples: int) -> float:
        """The time at a number of examples."""
        return self._value(num_examples, [each.seconds for each in self._sorted])

    @property
    def _sorted(self) -> list[Try]:
        return sorted({each.num_examples: each for each in self.tries}.values(), key=_num_examples)

    def _value(self, num_examples: int, values: Sequence[float]) -> float:
        places = [each.num_examples for each in self._sorted]
        if num_examples <= places[0]:
            return values[0]
        if len(places) == 1:
            return values[0] * num_examples / places[0]
        after = next((i for i, place in enumerate(places) if place >= num_examples), len(places) - 1)
        slope = (values[after] - values[after - 1]) / (places[after] - places[after - 1])
        return values[after] + max(0.0, slope) * (num_examples - places[after])


def _num_examples(one: Try) -> int:
    return one.num_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to run a model, micro-batches aside.

    Attributes:
        name: What tells it from the others.
        num_measures: How much is done to the model: 0 leaves it as it is.
        law: What a step takes.
        bias: What a rehearsal took, as a multiple of what was predicted.
    """

    name: str
    num_measures: int
    law: Law
    bias: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant with micro-batches of one size, or with whole batches.

    Attributes:
        variant: The variant.
        micro_batch: Examples under way at once; `None` for whole batches.
        peak_bytes: Predicted.
        seconds: Predicted, for the whole batch.
    """

    variant: Variant
    micro_batch: int | None
    peak_bytes: int
    seconds: float

    @property
    def high_bytes(self) -> int:
        """What the peak is hardly above."""
        return math.ceil(self.peak_bytes * (1 + MARGIN)) + OWN_BYTES

    @property
    def num_measures(self) -> int:
        """How much is done, micro-batches included."""
        return self.variant.num_measures + (self.micro_batch is not None)


def peak_under(high_bytes: int) -> int:
    """The peak of a candidate that is hardly above some bytes.

    Example:
    >>> peak_under(54 * MIB) // MIB
    50
    """
    return math.ceil((high_bytes - OWN_BYTES) / (1 + MARGIN))


def even_sizes(batch_size: int) -> list[int]:
    """The sizes of micro-batches that cut a batch into equal parts, the last perhaps smaller; descending.

    Example:
    >>> even_sizes(10)
    [5, 4, 3, 2, 1]
    """
    return sorted({-(-batch_size // parts) for parts in range(2, batch_size + 1)}, reverse=True)


def candidates_of(
    variant: Variant, *, batch_size: int, gradient_bytes: int, can_split: bool
) -> list[Candidate]:
    """All candidates of a variant.

    Args:
        variant: The variant.
        batch_size: The effective batch, which stays what it is.
        gradient_bytes: The sum of gradients, which a batch that is split holds besides.
        can_split: Whether batches may be split.
    """
    law = variant.law
    found = [
        Candidate(
            variant=variant,
            micro_batch=None,
            peak_bytes=math.ceil(law.peak_bytes(batch_size) * variant.bias),
            seconds=law.seconds(batch_size),
        )
    ]
    for size in even_sizes(batch_size) if can_split else ():
        num_whole, rest = divmod(batch_size, size)
        seconds = num_whole * law.seconds(size) + (law.seconds(rest) if rest else 0.0)
        peak_bytes = math.ceil((law.peak_bytes(size) + gradient_bytes) * variant.bias)
        found.append(Candidate(variant=variant, micro_batch=size, peak_bytes=peak_bytes, seconds=seconds))
    return found


def ranked(candidates: Sequence[Candidate], budget_bytes: int) -> list[Candidate]:
    """Those that fit, the best first: fast, then simple, then small.

    A greater budget never makes the first one slower by more than `SIMPLER`.
    """
    fitting = [each for each in candidates if each.high_bytes <= budget_bytes]
    return sorted(fitting, key=_key)


def _key(candidate: Candidate) -> tuple[int, int, float, int, str, int]:
    rung = math.floor(math.log(max(candidate.seconds, 1e-9)) / math.log(SIMPLER))
    return (
        rung,
        candidate.num_measures,
        candidate.seconds,
        candidate.peak_bytes,
        candidate.variant.name,
        candidate.micro_batch or 0,
    )


def promised_seconds(law: Law, *, batch_size: int, micro_batch: int, again_share: float) -> float:
    """What micro-batches that compute nothing again may take, where those that do were measured.

    Args:
        law: What steps take that compute a share of the forward pass again.
        batch_size: Examples in all.
        micro_batch: Examples under way at once.
        again_share: That share.

    Example:
    >>> law = Law((Try(num_examples=20, peak_bytes=0, seconds=0.3),))
    >>> round(promised_seconds(law, batch_size=40, micro_batch=20, again_share=1.0), 2)
    0.4
    """
    again = batch_size / micro_batch * law.seconds(micro_batch)
    return again * LEAST_WORK / (LEAST_WORK + again_share)


def is_safe(rehearsed: Try, budget_bytes: int) -> bool:
    """Whether a rehearsal leaves room for what the steps of a run were seen to take more."""
    return rehearsed.high_bytes <= budget_bytes


def fits_twice(resting_bytes: int, updated_bytes: int, line_bytes: int) -> bool:
    """Whether what an optimizer updates fits beside itself, so that an update can be undone.

    Args:
        resting_bytes: What is on the device between steps.
        updated_bytes: Weights and slots among it. Gradients and temporaries together are taken for as large.
        line_bytes: What the device may use.
    """
    return resting_bytes + 2 * updated_bytes <= line_bytes


def tightest(candidates: Sequence[Candidate]) -> Candidate:
    """The one that takes the least memory; of equals the fastest."""
    return min(candidates, key=lambda each: (each.peak_bytes, each.seconds))


def fallbacks_of(chosen: Candidate, candidates: Sequence[Candidate], *, most: int) -> list[Candidate]:
    """What to take when memory runs out under a candidate, one after the other, each tighter than the last.

    Each takes at most four fifths of the one before: a smaller step would be a try for little.
    """
    found: list[Candidate] = []
    last = chosen
    while len(found) < most:
        tighter = [each for each in candidates if 5 * each.peak_bytes <= 4 * last.peak_bytes]
        if not tighter:
            break
        last = min(tighter, key=_key)
        found.append(last)
    return found
