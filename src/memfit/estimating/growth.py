"""How one recorded step grows with its batch: the size of each buffer as a function of the examples.

The same step is recorded at a few small batches. A buffer is recognised by the op that asked for it, so its
size at each batch is known to the byte, and with it how it grows: not at all (gradients, statistics), with
the examples (activations), or with their square (all pairs). Then the recorded order of births and deaths is
replayed with the sizes at the batch that was asked for. So it does not matter which moment was the peak at
the small batch: the moment that is the peak at the large one was recorded, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memfit.estimating.chunks import Chunks, rounded
from memfit.estimating.timeline import Buffer, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A size that depends on the number of examples: `fixed + linear·n + square·n²`.

    Example:
    >>> Law(fixed=8.0, linear=2.0).at(10)
    28
    """

    fixed: float = 0.0
    linear: float = 0.0
    square: float = 0.0

    @property
    def is_growing(self) -> bool:
        """Whether more examples make it larger."""
        return self.linear > 0 or self.square > 0

    def at(self, num_examples: int) -> int:
        """The size in bytes, never negative."""
        return max(0, round(self.value(num_examples)))

    def value(self, num_examples: int) -> float:
        """The law's value."""
        return self.fixed + (self.linear + self.square * num_examples) * num_examples


@dataclass(slots=True)
class Tally:
    """A sum that remembers its highest value.

    Args:
        now: The sum.
        most: The highest that it ever was.
    """

    now: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        self.most = self.now

    def add(self, change: int) -> None:
        """Adds to the sum."""
        self.now += change
        self.most = max(self.most, self.now)


def law_through(sizes: Mapping[int, int]) -> Law:
    """The law of a buffer whose size is known at some batches.

    A square is believed only if three sizes show one and nothing shrinks; otherwise the smallest and the
    largest batch make a line.

    Example:
    >>> law_through({2: 20, 4: 40}), law_through({1: 3, 2: 12, 3: 27}).square
    (Law(fixed=0.0, linear=10.0, square=0.0), 3.0)
    """
    batches = sorted(sizes)
    first, last = batches[0], batches[-1]
    if first == last or sizes[first] == sizes[last]:
        return Law(fixed=float(sizes[last]))
    if len(batches) > 2:
        square = _square(batches[0], batches[1], batches[-1], sizes)
        if square is not None:
            return square
    linear = (sizes[last] - sizes[first]) / (last - first)
    return Law(fixed=sizes[last] - linear * last, linear=linear)


def _square(a: int, b: int, c: int, sizes: Mapping[int, int]) -> Law | None:
    early, late = (sizes[b] - sizes[a]) / (b - a), (sizes[c] - sizes[b]) / (c - b)
    square = (late - early) / (c - a)
    linear = early - square * (a + b)
    fixed = sizes[a] - (linear + square * a) * a
    if square <= 0 or min(linear, fixed) < -1e-6:
        return None
    return Law(fixed=fixed, linear=linear, square=square)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recorded step with the laws of its buffers.

    Attributes:
        timeline: The buffers.
        laws: One for each of them.
        num_unknown_bytes: Bytes of buffers that no smaller batch had, whose growth is therefore not known.
    """

    timeline: Timeline
    laws: tuple[Law, ...]
    num_unknown_bytes: int


def record(base: Timeline, base_batch: int, others: Mapping[int, Timeline]) -> Recording:
    """The base timeline with the growth of its buffers, as other batches show it."""
    return record_all([base], base_batch, others)[0]


def record_all(
    bases: Iterable[Timeline], base_batch: int, others: Mapping[int, Timeline]
) -> tuple[Recording, ...]:
    """The same for several timelines of one batch."""
    known = {batch: _by_op(timeline) for batch, timeline in others.items()}
    # An op may write into its input where nobody else needs that any more, and then asks for nothing. If it
    # did so at all other batches, a size that does not change is still known: others have it, too.
    seen = [{buffer.num_bytes for buffer in timeline.buffers} for timeline in others.values()]
    constant = set.intersection(*seen) if seen else set()
    return tuple(_recorded(base, base_batch, known, constant) for base in bases)


def _recorded(
    base: Timeline, base_batch: int, known: Mapping[int, Mapping[str, list[int]]], constant: Collection[int]
) -> Recording:
    growths = {
        op: _laws(sizes, base_batch, {batch: found.get(op, []) for batch, found in known.items()})
        for op, sizes in _by_op(base).items()
    }
    laws, unknown = [], 0
    for buffer in base.buffers:
        law = growths[buffer.op].get(buffer.num_bytes)
        if law is None and buffer.num_bytes in constant:
            law = Law(fixed=float(buffer.num_bytes))
        if law is None:
            unknown += buffer.num_bytes
            # Most of what a step holds grows with its examples: rather too much than too little.
            law = Law(linear=buffer.num_bytes / base_batch)
        laws.append(law)
    return Recording(timeline=base, laws=tuple(laws), num_unknown_bytes=unknown)


def _by_op(timeline: Timeline) -> dict[str, list[int]]:
    """The sizes of each op's buffers, each size once, ascending."""
    found: dict[str, set[int]] = defaultdict(set)
    for buffer in timeline.buffers:
        found[buffer.op].add(buffer.num_bytes)
    return {op: sorted(sizes) for op, sizes in found.items()}


def _laws(own: list[int], batch: int, others: Mapping[int, list[int]]) -> dict[int, Law]:
    """The laws of one op's buffers by their size at the base batch; what cannot be told is left out.

    The buffers of an op come in no fixed order, so they are told apart by size: the smallest at one batch is
    the smallest at another.
    """
    alike = {other: sizes for other, sizes in others.items() if len(sizes) == len(own)}
    laws = {}
    for rank, size in enumerate(own):
        if alike:
            laws[size] = law_through({other: sizes[rank] for other, sizes in alike.items()} | {batch: size})
        elif any(size in sizes for sizes in others.values()):
            laws[size] = Law(fixed=float(size))
    return laws


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The fullest moment of a replayed step.

    Attributes:
        num_bytes: What the allocator's meter would say.
        needed_bytes: The most that is asked for at once, without what the allocator wastes.
        growing_bytes: The most of it that grows with the batch: the activations.
        held: The buffers of the step that are held then, with their sizes.
    """

    num_bytes: int
    needed_bytes: int
    growing_bytes: int
    held: tuple[tuple[Buffer, int], ...]


def replay(recording: Recording, num_examples: int, resting: Sequence[int]) -> Peak:
    """The peak of a recorded step at another batch.

    Args:
        recording: The step.
        num_examples: The batch.
        resting: Sizes of what is held all the time: variables and inputs.
    """
    chunks = Chunks()
    starts = _rested(chunks, recording, resting)
    needed, growing = Tally(sum(map(rounded, resting))), Tally()
    sizes = [law.at(num_examples) for law in recording.laws]
    at = -1
    for moment, is_birth, index in moments(recording.timeline):
        if is_birth:
            before = chunks.peak_bytes
            starts[index] = chunks.take(sizes[index])
            at = moment if chunks.peak_bytes > before else at
        elif (start := starts.pop(index)) is not None:
            chunks.give_back(start)
        else:
            continue
        change = rounded(sizes[index]) if is_birth else -rounded(sizes[index])
        needed.add(change)
        growing.add(change if recording.laws[index].is_growing else 0)
    held = tuple(
        (buffer, size)
        for buffer, size in zip(recording.timeline.buffers, sizes, strict=True)
        if 0 <= buffer.born <= at and (buffer.died is None or buffer.died > at)
    )
    return Peak(num_bytes=chunks.peak_bytes, needed_bytes=needed.most, growing_bytes=growing.most, held=held)


def _rested(chunks: Chunks, recording: Recording, resting: Sequence[int]) -> dict[int, int | None]:
    """Takes what rests, and finds there the buffers that were there before the step and die in it.

    An update that must not touch the old value of a variable makes a new one, and then the old one goes.
    """
    places: dict[int, list[int | None]] = defaultdict(list)
    for size in sorted(resting, reverse=True):
        places[size].append(chunks.take(size))
    return {
        index: places[buffer.num_bytes].pop() if places[buffer.num_bytes] else None
        for index, buffer in enumerate(recording.timeline.buffers)
        if buffer.born < 0
    }


def moments(timeline: Timeline) -> list[tuple[int, bool, int]]:
    """When which buffer is born (true) or dies."""
    births = [(each.born, True, index) for index, each in enumerate(timeline.buffers) if each.born >= 0]
    deaths = [(each.died, False, i) for i, each in enumerate(timeline.buffers) if each.died is not None]
    return sorted(births + deaths)
