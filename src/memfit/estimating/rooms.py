"""The room in which a step finds a place for every buffer, step after step.

A limit must hold more than the peak of a step. What is free may lie in holes that are too small, and the
holes are those that the steps before have left: an update that must not touch the old value of a variable
makes a new one wherever there is room, in the midst of the activations, and there it stays. So several steps
are replayed one after the other in one and the same memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memfit.budgeting.allocator import FIRST_REGION_BYTES
from memfit.estimating.chunks import Chunks, rounded
from memfit.estimating.growth import Recording, moments

# Each recording is replayed so many times: what a step leaves behind is where the next one meets it.
NUM_ROUNDS: Final = 2
# The allocator's first region, which a limit leaves beside it. Half of it is taken for TensorFlow's own.
SMALL_BYTES: Final = FIRST_REGION_BYTES // 2
# The room is found to within this share.
ROOM_STEP: Final = 1.01


def room_for(
    recordings: Sequence[Recording],
    num_examples: int,
    resting: Sequence[int],
    least_bytes: int,
    *,
    most_bytes: int | None = None,
    is_thorough: bool = False,
) -> int:
    """The bytes in which recorded steps find a place for every buffer, one after the other.

    Args:
        recordings: The steps.
        num_examples: The batch.
        resting: Sizes of what is held all the time: variables and inputs.
        least_bytes: The least to consider.
        most_bytes: Where to stop looking: what is returned is then more than that.
        is_thorough: Whether to ask for room however what rests lies, and in whatever order the steps come.
    """
    steps = [_Step.of(each, num_examples) for each in recordings]
    cases = [(steps, list(resting))]
    if is_thorough:
        orders = [list(resting), list(resting)[::-1], sorted(resting), sorted(resting, reverse=True)]
        cases = [(some, order) for some in (steps, steps[::-1]) for order in orders]
    rooms = _Rooms(least_bytes, most_bytes)
    return rooms.first(lambda room: all(_fit(some, order, room) for some, order in cases))


@dataclass(frozen=True, slots=True)
class _Rooms:
    """Rooms of ascending size.

    Attributes:
        least_bytes: The first.
        most_bytes: None after the first that is larger than this; `None` for no end.
    """

    least_bytes: int
    most_bytes: int | None

    def first(self, fits: Callable[[int], bool]) -> int:
        """The first that fits, or the last one; found by ever longer leaps, and then by halving the last."""
        low, high = -1, 0
        while not self._is_last(high) and not fits(self._bytes(high)):
            low, high = high, 2 * high + 1
        while self._is_last(high - 1) and high > 0:
            high -= 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(self._bytes(middle)) else (middle, high)
        return self._bytes(high)

    def _bytes(self, place: int) -> int:
        return int(self.least_bytes * ROOM_STEP**place)

    def _is_last(self, place: int) -> bool:
        return self.most_bytes is not None and self._bytes(place) > self.most_bytes


def fits(recordings: Sequence[Recording], num_examples: int, resting: Sequence[int], room_bytes: int) -> bool:
    """Whether recorded steps find a place for every buffer in a room, one after the other."""
    return _fit([_Step.of(each, num_examples) for each in recordings], resting, room_bytes)


@dataclass(frozen=True, slots=True)
class _Step:
    """A recorded step at a batch.

    Attributes:
        order: When which buffer is born (true) or dies.
        sizes: Bytes of each buffer.
        is_old: Whether each buffer was there before the step.
    """

    order: list[tuple[int, bool, int]]
    sizes: list[int]
    is_old: list[bool]

    @classmethod
    def of(cls, recording: Recording, num_examples: int) -> _Step:
        return cls(
            moments(recording.timeline),
            [rounded(law.at(num_examples)) for law in recording.laws],
            [buffer.born < 0 for buffer in recording.timeline.buffers],
        )


def _fit(steps: Sequence[_Step], resting: Sequence[int], room_bytes: int) -> bool:
    memory = _Memory(room_bytes)
    return all(memory.rest(rounded(size)) for size in resting) and all(
        memory.run(step) for _ in range(NUM_ROUNDS) for step in steps
    )


class _Memory:
    """A region with what rests in it."""

    def __init__(self, room_bytes: int) -> None:
        self._chunks = Chunks(room_bytes, small_bytes=SMALL_BYTES)
        self._resting: dict[int, list[int | None]] = defaultdict(list)

    def rest(self, size: int) -> bool:
        """Takes room for something that stays; false if there is none."""
        start = self._chunks.take(size)
        self._resting[size].append(start)
        return start is not None or not size

    def run(self, step: _Step) -> bool:
        """Runs a step; false if a buffer finds no place."""
        starts: dict[int, int | None] = {}
        replaced: Counter[int] = Counter()
        for _, is_birth, index in step.order:
            size = step.sizes[index]
            if is_birth:
                start = starts[index] = self._chunks.take(size)
                if start is None and size:
                    return False
                continue
            if step.is_old[index]:
                places = self._resting[size]
                start = places.pop(0) if places else None  # The oldest of its size.
                replaced[size] += start is not None
            else:
                start = starts.pop(index)
            if start is not None:
                self._chunks.give_back(start)
        self._settle(starts, step.sizes, replaced)
        return True

    def _settle(self, starts: dict[int, int | None], sizes: Sequence[int], replaced: Counter[int]) -> None:
        """What is left of a step takes the place of what it replaced; the rest was its result, and goes."""
        for index, start in starts.items():
            size = sizes[index]
            if replaced[size]:
                replaced[size] -= 1
                self._resting[size].append(start)
            elif start is not None:
                self._chunks.give_back(start)
