"""Makes sizes of batches equal in bytes where steps of one shape do not peak alike. Pure.

TensorFlow runs parts of a step side by side, so what is there at once depends on chance: steps of one shape
were seen to differ by a third. The usual peak is what can be equal. So all lengths are run by turns, as in an
epoch, those that vary more often than others, and each size is set by all steps of about its size. How far
the highest is above the usual is the same room for all, so that the lengths that vary do not end up smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from statistics import mean, stdev
from typing import Final

from memfit.planning.search import NOISE

# In a round each length that is not known well enough has so many steps; after so many rounds it is enough.
NUM_STEPS: Final = 4
MOST_ROUNDS: Final = 8
# What is known well enough: the usual peak, to this share of it.
PRECISE: Final = 0.015
# Steps of sizes that differ by this share, or by one sequence, are counted together: what a sequence takes is
# about the same in them.
NEAR: Final = 0.04
# All lengths give way to the one whose steps vary most, but not to more than this; it gives way itself then.
MOST_SHARED: Final = 1.25
# What ran is large enough if it is so much of the least that did not.
ENOUGH: Final = 0.96

MeterOfSteps = Callable[[int, int], float]
# What steps took, by size.
Seen = dict[int, list[float]]


def even_out(
    step_bytes: MeterOfSteps, sizes: Mapping[int, int], seen: Mapping[int, Seen], room_bytes: int
) -> dict[int, int]:
    """Sizes whose usual peaks are equal, and whose highest are within the noise above the room.

    Args:
        step_bytes: What a step of so many sequences of so many steps takes; infinite if it does not run.
        sizes: By length, where to begin: not far off.
        seen: By length, what was measured so far. What is measured here is added.
        room_bytes: What a step may usually take.

    Returns:
        By length; 0 where not even one sequence fits.
    """
    best = dict(sizes)
    waiting = [length for length in best if math.inf not in seen[length].get(best[length], ())]
    found = best
    for number in range(MOST_ROUNDS):
        best |= {length: max(1, found[length]) for length in waiting}
        _run(step_bytes, {length: best[length] for length in waiting}, seen, number)
        found = _equal(best, seen, room_bytes)
        waiting = [length for length in best if not _is_known(seen[length], best[length], found[length])]
        if not waiting:
            break
    return found


def usual(found: list[float]) -> float:
    """What steps take that peaked so: the mean of the middle half.

    It leaves out what is far off, as the median does, and is not thrown from one side to the other where
    steps have two peaks that are about as frequent.

    Example:
    >>> usual([104, 100, 96, 180])
    102
    """
    cut = len(found) // 4
    return mean(sorted(found)[cut : len(found) - cut])


def _run(step_bytes: MeterOfSteps, sizes: dict[int, int], seen: Mapping[int, Seen], number: int) -> None:
    """Steps of all these lengths by turns: what a step takes also depends on what the one before left."""
    for turn in range(NUM_STEPS):
        order = list(sizes)
        Random(number * NUM_STEPS + turn).shuffle(order)  # noqa: S311 (any order will do)
        for length in order:
            found = seen[length].setdefault(sizes[length], [])
            if math.inf not in found:  # What fails is slow to do so.
                found.append(step_bytes(sizes[length], length))


def _equal(sizes: Mapping[int, int], seen: Mapping[int, Seen], room_bytes: int) -> dict[int, int]:
    """By all that was seen, the sizes with which the usual peaks are the same."""
    swings = {length: _swing(_of_one(seen[length], size)) for length, size in sizes.items()}
    shared = min(MOST_SHARED, max(swings.values()))
    return {
        length: _size(seen[length], size, room_bytes, own=swings[length], shared=shared)
        for length, size in sizes.items()
    }


def _size(seen: Seen, size: int, room_bytes: int, *, own: float, shared: float) -> int:
    failed = min((tried for tried, found in seen.items() if math.inf in found), default=math.inf)
    ran = max((tried for tried in seen if tried < failed), default=0)
    if size >= failed:
        return ran or int(failed) // 2
    most = ran if ran >= ENOUGH * failed else failed - 1
    one_bytes = usual(_of_one(seen, size))
    fitting = math.floor(_within(room_bytes, own) / one_bytes)
    return max(0, int(min(round(_within(room_bytes, shared) / one_bytes), fitting, most)))


def _within(room_bytes: int, swing: float) -> float:
    """What steps may usually take whose highest is so many times that."""
    return room_bytes * min(1.0, (1 + NOISE) / swing)


def _of_one(seen: Seen, size: int) -> list[float]:
    """What each step of about so many sequences took for each of them, if it ran."""
    near = [tried for tried in seen if abs(tried - size) <= max(1, NEAR * size)]
    return [peak / tried for tried in near for peak in seen[tried] if math.isfinite(peak)]


def _swing(found: list[float]) -> float:
    return max(found) / usual(found) if found else 1.0


def _is_known(seen: Seen, size: int, found: int) -> bool:
    """Whether what was run at a size says that another one, or the same, is right."""
    if math.inf in seen[size]:
        return found == 0
    ones = _of_one(seen, size)
    is_precise = stdev(ones) / math.sqrt(len(ones)) <= PRECISE * usual(ones)
    return is_precise and abs(found - size) <= max(1, NEAR * size / 2)
