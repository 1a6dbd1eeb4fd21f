"""How many sequences of each length fill the same memory. Pure: a meter in, sizes out.

Equal steps are not equal bytes: a sequence has bytes of its own beside those of its steps. So each length is
tried, and a line through what was measured says about how many fit. From there `evening` makes the lengths
equal: one step does not say what others of its shape take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from memfit.planning.evening import ENOUGH, MeterOfSteps, Seen, even_out, usual

# A length is tried so often, and not again once it fills so much of the room.
MOST_TRIES: Final = 9
LEAST_FILLED: Final = 0.9
MOST_FILLED: Final = 1.1
# A try is never more than this many times the largest that fitted: what is far away is not known.
MOST_TIMES: Final = 4


def fill(step_bytes: MeterOfSteps, boundaries: Sequence[int], room_bytes: int) -> tuple[int, ...]:
    """For each length, about the most sequences whose steps usually take no more than the room, all alike.

    Args:
        step_bytes: What a step of so many sequences of so many steps takes; infinite if it does not run.
        boundaries: The lengths, rising.
        room_bytes: What a step may usually take; none may take more than the noise above it.

    Returns:
        A size for each; 0 where not even one sequence fits.

    Example:
    >>> fill(lambda size, length: 1000 + size * (50 + 10 * length), (4, 100), 20_000)
    (211, 18)
    """
    seen: dict[int, Seen] = {}
    sizes: dict[int, int] = {}
    guess = 1
    for length in reversed(boundaries):
        if sizes:
            longer, size = next(reversed(sizes.items()))
            guess = max(1, size * longer // length)
        seen[length] = {}
        sizes[length] = _about(step_bytes, length, seen[length], guess=guess, room_bytes=room_bytes)
    found = even_out(step_bytes, sizes, seen, room_bytes)
    return tuple(found[length] for length in boundaries)


def _about(step_bytes: MeterOfSteps, length: int, seen: Seen, *, guess: int, room_bytes: int) -> int:
    """A size that is not far from filling the room, at least one; what was measured is in `seen` then."""

    def tried(size: int) -> float:
        seen[size] = [step_bytes(size, length)]
        if math.isfinite(seen[size][0]):  # What fails is slow to do so.
            seen[size].append(step_bytes(size, length))
        return usual(seen[size])

    return _search(tried, guess, room_bytes)


def _search(peak_bytes: Callable[[int], float], guess: int, room_bytes: int) -> int:
    tries: dict[int, float] = {}
    size = guess
    for _ in range(MOST_TRIES):
        tries[size] = peak_bytes(size)
        if LEAST_FILLED * room_bytes <= tries[size] <= MOST_FILLED * room_bytes:
            return size
        size = _next(tries, room_bytes)
        if size in tries or size < 1:
            break
    return max((size for size, found in tries.items() if found <= room_bytes), default=1)


def _next(tries: dict[int, float], room_bytes: int) -> int:
    """Where to try next: a size that was tried already if there is nothing in between."""
    fitting = max((size for size, found in tries.items() if found <= room_bytes), default=0)
    above = min((size for size, found in tries.items() if found > room_bytes), default=None)
    if above is None:
        return min(MOST_TIMES * fitting, math.floor(_beyond(tries, room_bytes)))
    if not math.isfinite(tries[above]):
        return fitting if fitting >= ENOUGH * above else (fitting + above) // 2
    if fitting == 0:
        return max(1, min(above - 1, math.floor(above * room_bytes / tries[above])))
    low, high = tries[fitting], tries[above]
    between = fitting + (room_bytes - low) / (high - low) * (above - fitting)
    return max(fitting, min(above - 1, math.floor(between)))


def _beyond(tries: dict[int, float], room_bytes: int) -> float:
    """Where the line through the two largest tries meets the room; without a slope, as far as one may go."""
    *_, (size, found) = known = sorted(tries.items())
    if len(known) == 1:
        # Of what is not full by far, a part may be there without sequences, too.
        return max(size + 1, size * room_bytes / found, 2 * size if found < room_bytes / 2 else 0)
    before, less = known[-2]
    slope = (found - less) / (size - before)
    return max(size + 1, size + (room_bytes - found) / slope) if slope > 0 else MOST_TIMES * size
