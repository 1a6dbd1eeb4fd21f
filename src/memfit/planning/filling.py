"""How many sequences of each length fill the same memory. Pure: a meter in, sizes out.

Equal steps are not equal bytes: a sequence has bytes of its own beside those of its steps. So each length is
tried, and a line through what was measured says how many more fit. Equal steps do not peak alike either: a
size that is near to filling the room is measured until its usual peak is known, so that no length is judged
by a step that happened to be high or low.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Final

from memfit.planning.search import NOISE

# A length is tried so often, and not again once so much of the room is filled.
MOST_TRIES: Final = 9
FILLED: Final = 0.96
# A try is never more than this many times the largest that fitted: what is far away is not known.
MOST_TIMES: Final = 4

# A size whose usual peak is within this share of the room is measured until there are so many peaks.
NEAR: Final = 0.85
ENOUGH: Final = 8

Meter = Callable[[int, int], Sequence[float]]


def fill(peaks: Meter, boundaries: Sequence[int], room_bytes: int) -> tuple[int, ...]:
    """For each length, about the most sequences whose step takes no more than the room.

    Args:
        peaks: What some steps of so many sequences of so many steps took; infinite if they do not run.
        boundaries: The lengths, rising.
        room_bytes: What a step may usually take; none may take more than the noise above it.

    Returns:
        A size for each; 0 where not even one sequence fits.

    Example:
    >>> fill(lambda size, length: [1000 + size * (50 + 10 * length)], (4, 100), 20_000)
    (211, 18)
    """
    sizes: list[int] = []
    guess = 1
    for place, length in reversed(list(enumerate(boundaries))):
        if sizes and sizes[-1]:
            guess = max(1, sizes[-1] * boundaries[place + 1] // length)
        sizes.append(_filled(partial(_usual, peaks, room_bytes, length), guess, room_bytes))
    return tuple(reversed(sizes))


def usual_bytes(found: Sequence[float]) -> float:
    """What steps take that peaked so: the middle, or more where the highest is further off than noise is.

    Example:
    >>> usual_bytes([100, 104, 95])
    100
    """
    return max(median(found), max(found) / (1 + NOISE))


def _usual(peaks: Meter, room_bytes: int, length: int, size: int) -> float:
    found = list(peaks(size, length))
    while len(found) < ENOUGH and NEAR * room_bytes <= usual_bytes(found) <= room_bytes / NEAR:
        found += peaks(size, length)
    return usual_bytes(found)


def _filled(peak_bytes: Callable[[int], float], guess: int, room_bytes: int) -> int:
    tries: dict[int, float] = {}
    size = guess
    for _ in range(MOST_TRIES):
        tries[size] = peak_bytes(size)
        if FILLED * room_bytes <= tries[size] <= room_bytes:
            return size
        size = _next(tries, room_bytes)
        if size in tries or size < 1:
            break
    fitting = [size for size, found in tries.items() if found <= room_bytes]
    return max(fitting) if fitting else _one(tries, peak_bytes, room_bytes)


def _one(tries: dict[int, float], peak_bytes: Callable[[int], float], room_bytes: int) -> int:
    """A single sequence, if it was not tried and fits; else none."""
    return int(1 not in tries and peak_bytes(1) <= room_bytes)


def _next(tries: dict[int, float], room_bytes: int) -> int:
    """Where to try next: a size that was tried already if there is nothing in between."""
    fitting = max((size for size, found in tries.items() if found <= room_bytes), default=0)
    above = min((size for size, found in tries.items() if found > room_bytes), default=None)
    if above is None:
        return min(MOST_TIMES * fitting, math.floor(_beyond(tries, room_bytes)))
    if not math.isfinite(tries[above]):
        return fitting if fitting >= FILLED * above else (fitting + above) // 2
    if fitting == 0:
        return max(1, min(above - 1, math.floor(above * room_bytes / tries[above])))
    low, high = tries[fitting], tries[above]
    between = fitting + (room_bytes - low) / (high - low) * (above - fitting)
    return max(fitting, min(above - 1, math.floor(between)))


def _beyond(tries: dict[int, float], room_bytes: int) -> float:
    """Where the line through the two largest tries meets the room; without a slope, as far as one may go."""
    *_, (size, found) = known = sorted(tries.items())
    if len(known) == 1:
        return max(2 * size, size * room_bytes / found)
    before, less = known[-2]
    slope = (found - less) / (size - before)
    return size + (room_bytes - found) / slope if slope > 0 else MOST_TIMES * size
