"""How one recorded step grows with its batch: the size of each buffer as a function of the examples.

The same step is recorded at a few small batches. A buffer is recognised by the op that asked for it, so its
size at each batch is known to the byte, and with it how it grows: not at all (gradients, statistics), with
the examples (activations), or with their square (all pairs). Then the recorded order of births and deaths is
replayed with the sizes at the batch that was asked for. So it does not matter which moment was the peak at
the small batch: the moment that is the peak at the large one was recorded, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memfit.estimating.chunks import rounded
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

    The buffers of an op come in no fixed order, and one that grows may overtake one that does not. So those
    are found first that grow in proportion, then those that stay, then those on a line through all batches.
    For the rest, the smallest at one batch is the smallest at another.
    """
    left = {other: set(sizes) for other, sizes in others.items() if len(sizes) == len(own)}
    if not left:
        return {size: Law(fixed=float(size)) for size in own if any(size in each for each in others.values())}
    laws: dict[int, Law] = {}
    for guesses in (_proportion, _constant, _lines):
        for size in own:
            fitting = (law for law in guesses(size, batch, left) if _fits(law, left))
            law = None if size in laws else next(fitting, None)
            if law is not None:
                laws[size] = law
                for other, sizes in left.items():
                    sizes.remove(law.at(other))
    rest = [size for size in own if size not in laws]
    for size, *found in zip(rest, *map(sorted, left.values()), strict=True):
        laws[size] = law_through(dict(zip(left, found, strict=True)) | {batch: size})
    return laws


def _proportion(size: int, batch: int, _: Mapping[int, set[int]]) -> list[Law]:
    return [Law(linear=size / batch)]


def _constant(size: int, _: int, __: Mapping[int, set[int]]) -> list[Law]:
    return [Law(fixed=float(size))]


def _lines(size: int, batch: int, others: Mapping[int, set[int]]) -> list[Law]:
    """Of two batches any two sizes are on a line, which says nothing."""
    if len(others) < 2:
        return []
    first = min(others)
    return [law_through({first: other, batch: size}) for other in sorted(others[first])]


def _fits(law: Law, sizes: Mapping[int, set[int]]) -> bool:
    return all(law.at(batch) in found for batch, found in sizes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of a replayed step at which the most is asked for.

    Attributes:
        needed_bytes: What is held then, without what the allocator wastes.
        growing_bytes: The most that is ever held of what grows with the batch: the activations.
        held: The buffers of the step that are held then, with their sizes.
    """

    needed_bytes: int
    growing_bytes: int
    held: tuple[tuple[Buffer, int], ...]


def replay(recording: Recording, num_examples: int, resting: Sequence[int]) -> Peak:
    """The fullest moment of a recorded step at another batch.

    Args:
        recording: The step.
        num_examples: The batch.
        resting: Sizes of what is held all the time: variables and inputs.
    """
    sizes = [rounded(law.at(num_examples)) for law in recording.laws]
    # An update that must not touch the old value of a variable makes a new one, and then the old one goes.
    old = Counter(map(rounded, resting))
    needed, growing = Tally(sum(map(rounded, resting))), Tally()
    at = -1
    for moment, is_birth, index in moments(recording.timeline):
        size = sizes[index]
        if recording.timeline.buffers[index].born < 0:
            if not old[size]:
                continue
            old[size] -= 1
        before = needed.most
        needed.add(size if is_birth else -size)
        growing.add((size if is_birth else -size) if recording.laws[index].is_growing else 0)
        at = moment if needed.most > before else at
    held = tuple(
        (buffer, law.at(num_examples))
        for buffer, law in zip(recording.timeline.buffers, recording.laws, strict=True)
        if 0 <= buffer.born <= at and (buffer.died is None or buffer.died > at)
    )
    return Peak(needed_bytes=needed.most, growing_bytes=growing.most, held=held)


def moments(timeline: Timeline) -> list[tuple[int, bool, int]]:
    """When which buffer is born (true) or dies."""
    births = [(each.born, True, index) for index, each in enumerate(timeline.buffers) if each.born >= 0]
    deaths = [(each.died, False, i) for i, each in enumerate(timeline.buffers) if each.died is not None]
    return sorted(births + deaths)
