"""The peak and the seconds of a step at any batch and length, from what was recorded at tiny ones.

`Growth` is what the planner asks: `growth.predict(64, length=500)`. It is a plain value, without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from memfit.estimating.chunks import rounded
from memfit.estimating.growth import Law, Peak, Recording, replay
from memfit.estimating.rooms import room_for

# The peak of one and the same step moves between steps and processes: ops overlap in another order, and the
# allocator fits them into other holes. Chosen so that real runs keep to the upper bound: `make bench
# TARGET=estimate`.
SPREAD_BELOW: Final = 0.10
SPREAD_ABOVE: Final = 0.06
# The highest of a few recordings says less than the highest of many: this much more, over their number.
SPREAD_OF_FEW: Final = 0.18
# An update that must leave the old value of a variable alone puts the new one wherever there is room, and
# large variables leave large holes: so many more of the largest must find a place. The spread has some.
NUM_SPARE: Final = 2
# Where replayed steps need more room than that because of holes, others may need so much more than they do.
SPREAD_OF_HOLES: Final = 0.10


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
    """

    length: int | None
    recordings: tuple[Recording, ...]
    seconds: Law


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
        gradient_bytes: Bytes of one gradient of all that is trained.
        inputs: The tensors of a batch.
        is_split: Whether what was recorded is a step in micro-batches, which grows with those.
        probes: The shapes that were measured, in words.
    """

    spans: tuple[Span, ...]
    weights: tuple[int, ...]
    slots: tuple[int, ...]
    metrics: tuple[int, ...]
    gradient_bytes: int
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
            resting.append(self.gradient_bytes)
        near = self._nearest(length)
        found = [self._peaks(span, examples, resting) for span in near]
        peaks = _peaks_at(found, near, length)
        seconds = near[-1].seconds.value(examples) * _times(near[-1].length, length)
        middle = int(median(peaks))
        last = sorted(found[-1], key=lambda peak: peak.num_bytes)
        return Prediction(
            peak_bytes=middle,
            low_bytes=int(min(peaks) * (1 - SPREAD_BELOW)),
            high_bytes=int(max(peaks) * self._room(near[-1], found[-1], examples, resting)),
            seconds=seconds * num_parts,
            peak=last[(len(last) - 1) // 2],
        )

    def resting(self, batch_size: int, length: int | None) -> list[int]:
        """What is held all the time: variables and the batch."""
        batch = [size.at(batch_size, length) for size in self.inputs]
        return [*self.weights, *self.slots, *self.metrics, *batch]

    def unknown_share(self) -> float:
        """The share of the recorded bytes whose growth is not known."""
        recordings = [recording for span in self.spans for recording in span.recordings]
        known = sum(buffer.num_bytes for each in recordings for buffer in each.timeline.buffers)
        return sum(each.num_unknown_bytes for each in recordings) / max(1, known)

    def _nearest(self, length: int | None) -> tuple[Span, ...]:
        exact = tuple(span for span in self.spans if span.length == length)
        return exact or self.spans[-2:]

    def _room(self, span: Span, peaks: Sequence[Peak], examples: int, resting: Sequence[int]) -> float:
        """How many times the highest peak must be there, so that steps do not run into holes."""
        highest = max(peak.num_bytes for peak in peaks)
        largest = max(self.weights, default=0) if self.slots else 0
        above = max(SPREAD_ABOVE * highest, NUM_SPARE * largest) + highest * SPREAD_OF_FEW / len(peaks)
        least = int(highest + above)
        room = room_for(span.recordings, examples, resting, least)
        return (room + (SPREAD_OF_HOLES * (room - highest) if room > least else 0)) / highest

    def _peaks(self, span: Span, examples: int, resting: Sequence[int]) -> list[Peak]:
        return [replay(recording, examples, resting) for recording in span.recordings]


def _peaks_at(found: Sequence[Sequence[Peak]], spans: Sequence[Span], length: int | None) -> list[float]:
    """The peaks at a length: what is needed grows along a line, and the allocator wastes a share of it."""
    if len(spans) == 1:
        return [float(peak.num_bytes) for peak in found[0]]
    # Activations grow with the length. What overlaps by chance does not, and would spoil the slope.
    growing = [median(peak.growing_bytes for peak in each) for each in found]
    more = _line(growing, spans, length) - growing[-1]
    return [(peak.needed_bytes + more) * peak.num_bytes / peak.needed_bytes for peak in found[-1]]


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
