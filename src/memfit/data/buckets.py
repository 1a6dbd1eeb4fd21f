"""Which lengths to pad to: the boundaries that leave the least padding, exactly.

Pure: a count of every length in, boundaries out. How they become batches is left to `batching`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, SupportsIndex

from memfit.errors import UsageError

# From so many different lengths on, the search is worth loading NumPy for.
MANY: Final = 20_000


def best_boundaries(counts: Mapping[int, int], num_buckets: int) -> tuple[int, ...]:
    """The lengths to pad to that leave the fewest steps, for at most `num_buckets` of them.

    With the distinct lengths l_1 < l_2 < ... and N_j sequences no longer than l_j, the best cost of the
    first j lengths in k buckets is the least over i < j of best[k-1][i] + (N_j - N_i)·l_j. For a given j
    these are straight lines in l_j whose slopes -N_i fall with i, so the lowest is found by moving along
    their lower envelope, in constant time on average.

    Args:
        counts: How many sequences have each length. Empty ones are padded to one step.
        num_buckets: The most boundaries.

    Returns:
        Rising boundaries; the last is the greatest length.

    Example:
    >>> best_boundaries({1: 50, 2: 50, 9: 1, 10: 5}, 2)
    (2, 10)
    """
    if num_buckets < 1:
        raise UsageError(f"at least one bucket is needed. Received: buckets={num_buckets}. Pass buckets=16.")
    lengths, totals = _distinct(counts)
    if len(lengths) <= num_buckets:
        return tuple(lengths)
    # Its products must fit 64 bits.
    if len(lengths) > MANY and totals[-1] ** 2 * lengths[-1] < 2**62:
        from memfit.data.searching_tf import best_places

        return tuple(lengths[place - 1] for place in best_places(lengths, totals, num_buckets))
    best = [0] + [total * length for total, length in zip(totals[1:], lengths, strict=True)]
    choices = []
    for _ in range(num_buckets - 1):
        best, chosen = _one_bucket_more(best, lengths, totals)
        choices.append(chosen)
    place = len(lengths)
    boundaries = [lengths[place - 1]]
    for chosen in reversed(choices):
        place = chosen[place]
        if place:
            boundaries.append(lengths[place - 1])
    return tuple(reversed(boundaries))


def num_padded_steps(counts: Mapping[int, int], boundaries: Sequence[int]) -> int:
    """The steps of all sequences, each padded to the least boundary that is no shorter.

    Example:
    >>> num_padded_steps({1: 50, 2: 50, 9: 1, 10: 5}, (2, 10))
    260
    """
    return sum(num * boundaries[bisect_left(boundaries, length)] for length, num in counts.items() if num)


def check_boundaries(boundaries: Sequence[int]) -> tuple[int, ...]:
    """Boundaries that were given, once they are known to be whole numbers that rise from 1 or more.

    Raises:
        UsageError: If they are not; the message says which.
    """
    if not boundaries:
        raise UsageError(
            "buckets= is empty. Pass the lengths to pad to, buckets=(50, 100, 200), or a number, 16."
        )
    last = 0
    for place, boundary in enumerate(boundaries):
        if isinstance(boundary, bool) or not isinstance(boundary, SupportsIndex):
            raise UsageError(
                f"a boundary is a whole number of steps. Received: buckets[{place}] = {boundary!r}. "
                "Pass the lengths to pad to, such as buckets=(50, 100, 200)."
            )
        if boundary <= last:
            needed = f"more than the {last} before it" if place else "at least 1"
            raise UsageError(
                f"boundaries rise from 1 or more: buckets[{place}] is {boundary}, but must be {needed}. "
                "Pass the lengths to pad to, such as buckets=(50, 100, 200)."
            )
        last = int(boundary)
    return tuple(int(boundary) for boundary in boundaries)


def _distinct(counts: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Lengths that occur, rising, and how many sequences are no longer than each, from none on."""
    merged: dict[int, int] = {}
    for length, num in counts.items():
        if num:
            merged[max(1, length)] = merged.get(max(1, length), 0) + num
    if not merged:
        raise UsageError("there are no sequences, so there is nothing to pad. Pass at least one.")
    lengths = sorted(merged)
    return lengths, [0, *accumulate(merged[length] for length in lengths)]


def _one_bucket_more(best: list[int], lengths: list[int], totals: list[int]) -> tuple[list[int], array[int]]:
    """The best costs with one bucket more than in `best`, and where that last bucket begins."""
    improved, chosen = [0], array("q", [0])
    # The lower envelope: places whose lines are lowest somewhere ahead, from the lowest now to the last one.
    envelope, first = [0], 0
    for place, length in enumerate(lengths, start=1):
        total = totals[place]
        lowest = envelope[first]
        cost = best[lowest] - totals[lowest] * length
        while first + 1 < len(envelope):
            other = envelope[first + 1]
            other_cost = best[other] - totals[other] * length
            if other_cost > cost:
                break
            first, lowest, cost = first + 1, other, other_cost
        improved.append(cost + total * length)
        chosen.append(lowest)
        height = best[place]
        while len(envelope) - first >= 2:
            one, two = envelope[-2], envelope[-1]
            # The line of `two` is nowhere the lowest if the new one meets that of `one` before it does.
            if (height - best[one]) * (totals[two] - totals[one]) > (best[two] - best[one]) * (
                total - totals[one]
            ):
                break
            envelope.pop()
        envelope.append(place)
    return improved, chosen
