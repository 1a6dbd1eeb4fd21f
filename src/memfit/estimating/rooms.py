"""Recorded steps one after the other in one and the same memory: their peaks, and the room that they need.

What a step leaves behind is in the way of the next one. An update that must not touch the old value of a
variable makes a new one wherever there is room, in the midst of the activations, and there it stays; what a
step returns stays until the next one has returned. So the allocator finds less fitting holes than in the
first step, and wastes more, and a limit must hold more than the peak of a step: what is free may lie in holes
that are too small.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memfit.budgeting.allocator import FIRST_REGION_BYTES
from memfit.estimating.chunks import REGION_BYTES, Chunks, rounded
from memfit.estimating.growth import Recording, moments
from memfit.units import KIB

# A walk has so many steps: at first, peaks rise from step to step. The fewer buffers a step has, the more
# steps and walks there are, for they take time.
FEWEST_STEPS, MOST_STEPS = 5, 8
FEWEST_WALKS, MOST_WALKS = 2, 30
WALKED_BUFFERS: Final = 200_000
# An update is made in place if nothing reads the old value any more, and otherwise somewhere else. In large
# batches the ops that read it take longer, so values move that did not in the small ones that were recorded:
# of those of so many bytes or more, this share in each step.
MOVED_BYTES: Final = 64 * KIB
MOVED_SHARE: Final = 0.25
# The allocator's first region, which a limit leaves beside it. Half of it is taken for TensorFlow's own.
SMALL_BYTES: Final = FIRST_REGION_BYTES // 2
# The room is found to within this share.
ROOM_STEP: Final = 1.01
# Of a room, so much must be free whenever something is asked for. A request that finds a chunk of less than
# twice its size takes all of it, so a large tensor can take all that is left, and what comes next must do
# with holes, by chance: in a Transformer with a softmax over 2,000 words, one byte found none at 1.20 times
# the peak, and walks that took the holes for granted said 1.06.
SPARE_SHARE: Final = 0.02

# At which places of a step's order which sizes move.
Moves = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Walk:
    """Steps one after the other in one and the same memory.

    Attributes:
        steps: The steps.
        resting: Sizes of what is held all the time, variables and inputs, in the order in which it came.
        moves: What moves in each step though it was not recorded so; nothing, where there is none.
    """

    steps: Sequence[Step]
    resting: Sequence[int]
    moves: Sequence[Moves] = ()

    def peaks(self) -> list[int]:
        """What the allocator's meter says of each step but the first, with room for whatever it wastes."""
        memory = _Memory(REGION_BYTES)
        for size in self.resting:
            memory.rest(rounded(size))
        peaks = []
        for step, moves in self._moving_steps():
            memory.run(step, moves)
            peaks.append(memory.peak_bytes)
        return peaks[1:] or peaks

    def fits(self, room_bytes: int, *, spare_share: float = 0.0) -> bool:
        """Whether every buffer finds a place in a room of which a share is free when it is asked for."""
        memory = _Memory(room_bytes, spare_bytes=int(spare_share * room_bytes))
        if not all(memory.rest(rounded(size)) for size in self.resting):
            return False
        return all(memory.run(step, moves) for step, moves in self._moving_steps())

    def _moving_steps(self) -> Iterable[tuple[Step, Moves]]:
        return zip(self.steps, self.moves or [{}] * len(self.steps), strict=True)


def random_walks(
    recordings: Sequence[Recording], num_examples: int, resting: Sequence[int], updated: Sequence[int] = ()
) -> list[Walk]:
    """Walks through recorded steps in random orders, which are the same each time.

    Args:
        recordings: The steps.
        num_examples: Their batch.
        resting: Sizes of what is held all the time.
        updated: The sizes among them of what each step updates.
    """
    steps = [Step.of(each, num_examples) for each in recordings]
    num_buffers = max(len(step.sizes) for step in steps) + 1
    num_steps = min(MOST_STEPS, max(FEWEST_STEPS, WALKED_BUFFERS // (FEWEST_WALKS * num_buffers)))
    num_walks = min(MOST_WALKS, max(FEWEST_WALKS, WALKED_BUFFERS // (num_steps * num_buffers)))
    sizes = [rounded(size) for size in updated if size >= MOVED_BYTES]
    draw = random.Random(0)  # noqa: S311
    walks = []
    for _ in range(num_walks if len(steps) > 1 or sizes else 1):
        chosen = draw.choices(steps, k=num_steps)
        walks.append(Walk(chosen, resting, [_moves(step, sizes, draw) for step in chosen]))
    return walks


def _moves(step: Step, sizes: Sequence[int], draw: random.Random) -> Moves:
    """What moves in a step, drawn by chance; in its second half, where updates are made."""
    moves: dict[int, list[int]] = defaultdict(list)
    for size in sizes if step.order else ():
        if draw.random() < MOVED_SHARE:
            moves[draw.randrange(len(step.order) // 2, len(step.order))].append(size)
    return moves


def all_walks(recordings: Sequence[Recording], num_examples: int, resting: Sequence[int]) -> list[Walk]:
    """Walks through all recorded steps, to and fro, with what rests in several orders."""
    steps = 2 * [Step.of(each, num_examples) for each in recordings]
    orders = [list(resting), list(resting)[::-1], sorted(resting), sorted(resting, reverse=True)]
    return [Walk(some, order) for some in (steps, steps[::-1]) for order in orders]


def room_for(
    walks: Sequence[Walk], least_bytes: int, *, most_bytes: int | None = None, share: float = 1.0
) -> int:
    """The bytes in which walks find a place for every buffer, with some to spare.

    Args:
        walks: The walks.
        least_bytes: The least to consider.
        most_bytes: Where to stop looking: what is returned is then more than that.
        share: Of the walks, so many must.
    """
    most_failures = len(walks) - max(1, math.ceil(share * len(walks)))
    num_failures = [0] * len(walks)

    def fits(room_bytes: int) -> bool:
        num_failed = 0
        # What failed before is the first to fail again.
        for place in sorted(range(len(walks)), key=num_failures.__getitem__, reverse=True):
            if not walks[place].fits(room_bytes, spare_share=SPARE_SHARE):
                num_failures[place] += 1
                num_failed += 1
                if num_failed > most_failures:
                    return False
        return True

    return _Rooms(least_bytes, most_bytes).first(fits)


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step at a batch.

    Attributes:
        order: When which buffer is born (true) or dies.
        sizes: Bytes of each buffer.
        is_old: Whether each buffer was there before the step.
        awaited: For each buffer, those that it can wait for.
    """

    order: list[tuple[int, bool, int]]
    sizes: list[int]
    is_old: list[bool]
    awaited: list[tuple[int, ...]]

    @classmethod
    def of(cls, recording: Recording, num_examples: int) -> Step:
        """A recorded step with as many examples."""
        return cls(
            moments(recording.timeline),
            [rounded(law.at(num_examples)) for law in recording.laws],
            [buffer.born < 0 for buffer in recording.timeline.buffers],
            [buffer.awaited for buffer in recording.timeline.buffers],
        )


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


class _Running:
    """A step that is being run.

    Attributes:
        step: The step.
        starts: Where the buffers are that it holds; `None` for one of nothing.
        replaced: How many of each size it has ended that were there before.
        ended: The buffers that have ended.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.starts: dict[int, int | None] = {}
        self.replaced: Counter[int] = Counter()
        self.ended: set[int] = set()


class _Memory:
    """A region with what rests in it.

    Args:
        room_bytes: Its size.
        spare_bytes: What must be free when a step asks for something.
    """

    def __init__(self, room_bytes: int, *, spare_bytes: int = 0) -> None:
        self._chunks = Chunks(room_bytes, small_bytes=SMALL_BYTES)
        self._most_bytes = room_bytes + SMALL_BYTES - spare_bytes
        self._resting: dict[int, list[int | None]] = defaultdict(list)
        self._results: list[int] = []

    @property
    def peak_bytes(self) -> int:
        """The most that was held in the last step."""
        return self._chunks.peak_bytes

    def rest(self, size: int) -> bool:
        """Takes room for something that stays; false if there is none."""
        start = self._chunks.take(size)
        self._resting[size].append(start)
        return start is not None or not size

    def run(self, step: Step, moves: Moves) -> bool:
        """Runs a step, in which some of what rests moves; false if a buffer finds no place."""
        self._chunks.peak_bytes = self._chunks.held_bytes
        running = _Running(step)
        for place, (_, is_birth, index) in enumerate(step.order):
            if place in moves and not all(map(self._move, moves[place])):
                return False
            if not is_birth:
                self._give_back(running, index)
            elif not self._take(running, index):
                return False
        self._settle(running.starts, step.sizes, running.replaced)
        return True

    def _move(self, size: int) -> bool:
        """Puts a new value in the place of the oldest of its size; false if there is no room for both."""
        places = self._resting[size]
        if not places:  # It is moving already.
            return True
        start = self._chunks.take(size)
        if start is not None:
            old = places.pop(0)
            places.append(start)
            if old is not None:
                self._chunks.give_back(old)
        return start is not None

    def _take(self, running: _Running, index: int) -> bool:
        """Finds a place for a buffer, if need be when ops beside it have ended; false if there is none."""
        size = running.step.sizes[index]
        start = self._find(size)
        if start is None and size:
            for other in running.step.awaited[index]:
                if self._give_back(running, other):
                    start = self._find(size)
                    if start is not None:
                        break
            else:
                return False
        running.starts[index] = start
        return True

    def _find(self, size: int) -> int | None:
        """A place for a buffer, if there is one, and enough to spare beside what is held before it."""
        return self._chunks.take(size) if self._chunks.held_bytes <= self._most_bytes else None

    def _give_back(self, running: _Running, index: int) -> bool:
        """Ends a buffer, if it has not ended yet; false if there was nothing to give back."""
        if index in running.ended:
            return False
        size = running.step.sizes[index]
        if running.step.is_old[index]:
            places = self._resting[size]
            start = places.pop(0) if places else None  # The oldest of its size.
            running.replaced[size] += start is not None
        elif index in running.starts:
            start = running.starts.pop(index)
        else:  # Not born yet.
            return False
        running.ended.add(index)
        if start is not None:
            self._chunks.give_back(start)
        return start is not None

    def _settle(self, starts: dict[int, int | None], sizes: Sequence[int], replaced: Counter[int]) -> None:
        """What is left of a step takes the place of what it replaced; the rest is its result.

        A training loop lets go of a result when it has the next one. What is as large as something that
        rests is rather a new value whose old one was not seen to go.
        """
        gone, self._results = self._results, []
        for index, start in starts.items():
            size = sizes[index]
            if replaced[size]:
                replaced[size] -= 1
                self._resting[size].append(start)
            elif start is not None:
                (gone if self._resting[size] else self._results).append(start)
        for start in gone:
            self._chunks.give_back(start)
