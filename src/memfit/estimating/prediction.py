"""The peak and the seconds of a step at any batch and length, from what was recorded at tiny ones.

`Growth` is what the planner asks: `growth.predict(64, length=500)`. It is a plain value, without TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from memfit.estimating.chunks import rounded
from memfit.estimating.growth import Law, Peak, Recording, replay
from memfit.estimating.rooms import Walk, random_walks, room_for
from memfit.units import MIB

# The peak of one and the same step moves between steps and processes: ops overlap in another order, and the
# allocator fits them into other holes. Chosen so that real runs keep to the upper bound: `make bench
# TARGET=estimate`.
SPREAD_BELOW: Final = 0.10
SPREAD_ABOVE: Final = 0.10
# A few orders of ops say less than many: this much more, over their number.
SPREAD_OF_FEW: Final = 0.05
# Steps under a limit must find a place for every buffer, which may take far more than their peak: a request
# gets all of a hole that is less than twice as large. So many of the walks must find theirs. The more holes
# ask for beyond the peak, the more of it is chance: so much more is added, as a share of that.
WALKED_SHARE: Final = 0.6
SPREAD_OF_HOLES: Final = 0.25
# What a loop over time holds grows by many small buffers, which find places, whatever walks say. Of steps
# that ask for so much in loops, the peak alone decides.
LOOP: Final = "/while/"
LOOPING_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSize:
    """The bytes of one tensor of a batch.

    Attributes:
        num_bytes: For one example, and one time step if it has a length.
        has_length: Whether it has one.
    """

    num_bytes: int
    has_length: bool

    def at(self, batch_size: int, length: int | None) -> int:
        """Its bytes in a batch."""
        return self.num_bytes * batch_size * ((length or 1) if self.has_length else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What was recorded at one length.

    Attributes:
        length: Time steps; `None` where no axis is free.
        recordings: The recorded steps.
        seconds: How the time of a step grows with its examples.
        num_orders: How often TensorFlow drew the order of their ops.
    """

    length: int | None
    recordings: tuple[Recording, ...]
    seconds: Law
    num_orders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a step will take.

    Attributes:
        peak_bytes: Its peak, with variables and inputs.
        low_bytes: The peak is hardly below this.
        high_bytes: The peak is hardly above this.
        seconds: Its time, roughly.
        peak: The fullest moment in the recording that it was taken from.
    """

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    seconds: float
    peak: Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the bytes and the seconds of a step grow with its batch and its length.

    Attributes:
        spans: What was recorded, one a length, ascending.
        weights: Bytes of each variable of the model.
        slots: Bytes of each variable of the optimizer; none in validation.
        metrics: Bytes of each variable of the metrics.
        updated: Bytes of each variable that is trained, and so of its gradient; none in validation.
        inputs: The tensors of a batch.
        is_split: Whether what was recorded is a step in micro-batches, which grows with those.
        probes: The shapes that were measured, in words.
    """

    spans: tuple[Span, ...]
    weights: tuple[int, ...]
    slots: tuple[int, ...]
    metrics: tuple[int, ...]
    updated: tuple[int, ...]
    inputs: tuple[InputSize, ...]
    is_split: bool = False
    probes: tuple[str, ...] = ()

    def predict(
        self, batch_size: int, *, length: int | None = None, micro_batch: int | None = None
    ) -> Prediction:
        """The peak and the seconds of a step.

        Args:
            batch_size: Examples in the step.
            length: Time steps; `None` for the longest that was measured.
            micro_batch: The most examples under way at once; `None` for all. For a growth that was measured
                in whole batches, the sum of gradients is added by arithmetic.
        """
        length = self.spans[-1].length if length is None else length
        examples = batch_size if micro_batch is None else min(micro_batch, batch_size)
        num_parts = -(-batch_size // examples)
        resting = [*self.resting(batch_size, length)]
        if num_parts > 1 and not self.is_split:
            resting.append(total(self.updated))
        near = self._nearest(length)
        found = [self._peaks(span, examples, resting) for span in near]
        stretch = _stretch(found, near, length)
        walks = random_walks(near[-1].recordings, examples, resting, self.updated)
        peaks = [peak for walk in walks for peak in walk.peaks()]
        seconds = near[-1].seconds.value(examples) * _times(near[-1].length, length)
        last = sorted(found[-1], key=lambda peak: peak.needed_bytes)
        high = self._high_bytes(near[-1], walks, peaks, examples)
        return Prediction(
            peak_bytes=int(median(peaks) * stretch),
            low_bytes=int(min(peaks) * stretch * (1 - SPREAD_BELOW)),
            high_bytes=math.ceil(high * stretch / MIB) * MIB,  # Limits count in whole MiB.
            seconds=seconds * num_parts,
            peak=last[(len(last) - 1) // 2],
        )

    def resting(self, batch_size: int, length: int | None) -> list[int]:
        """What is held all the time: variables and the batch."""
        batch = [size.at(batch_size, length) for size in self.inputs]
        return [*self.weights, *self.slots, *self.metrics, *batch]

    def unknown_share(self) -> float:
        """The share of the recorded bytes whose growth is not known."""
        known = sum(buffer.num_bytes for each in self._recordings() for buffer in each.timeline.buffers)
        return sum(each.num_unknown_bytes for each in self._recordings()) / max(1, known)

    def ops(self) -> set[str]:
        """The names of the ops that were recorded."""
        return {buffer.op for each in self._recordings() for buffer in each.timeline.buffers}

    def _recordings(self) -> list[Recording]:
        return [recording for span in self.spans for recording in span.recordings]

    def _nearest(self, length: int | None) -> tuple[Span, ...]:
        exact = tuple(span for span in self.spans if span.length == length)
        return exact or self.spans[-2:]

    def _high_bytes(self, span: Span, walks: Sequence[Walk], peaks: Sequence[int], examples: int) -> float:
        """What must be there, so that steps with such peaks do not run into holes."""
        peak_bytes = median(peaks)
        least_bytes = peak_bytes * (1 + SPREAD_ABOVE + SPREAD_OF_FEW / span.num_orders)
        if is_looping(span.recordings[0], examples):
            return least_bytes
        holes_bytes = room_for(walks, int(peak_bytes), share=WALKED_SHARE) - peak_bytes
        return max(least_bytes, peak_bytes + (1 + SPREAD_OF_HOLES) * holes_bytes)

    def _peaks(self, span: Span, examples: int, resting: Sequence[int]) -> list[Peak]:
        return [replay(recording, examples, resting) for recording in span.recordings]


def is_looping(recording: Recording, num_examples: int) -> bool:
    """Whether most of what a step asks for, it asks for in loops."""
    sizes = [law.at(num_examples) for law in recording.laws]
    buffers = zip(recording.timeline.buffers, sizes, strict=True)
    return sum(size for buffer, size in buffers if LOOP in buffer.op) >= LOOPING_SHARE * max(1, sum(sizes))


def _stretch(found: Sequence[Sequence[Peak]], spans: Sequence[Span], length: int | None) -> float:
    """How many times more than at the longest length that was recorded: what is needed grows along a line."""
    if len(spans) == 1:
        return 1.0
    # Activations grow with the length. What overlaps by chance does not, and would spoil the slope.
    growing = [median(peak.growing_bytes for peak in each) for each in found]
    more = _line(growing, spans, length) - growing[-1]
    return 1 + more / median(peak.needed_bytes for peak in found[-1])


def _times(measured: int | None, length: int | None) -> float:
    return 1.0 if measured is None or length is None else length / measured


def _line(values: Sequence[float], spans: Sequence[Span], length: int | None) -> float:
    first, last = spans[0].length, spans[-1].length
    if first is None or last is None or length is None or first == last:
        return values[-1]
    return values[-1] + (values[-1] - values[0]) / (last - first) * (length - last)


def total(sizes: Sequence[int]) -> int:
    """What the allocator makes of some sizes."""
    return sum(map(rounded, sizes))
