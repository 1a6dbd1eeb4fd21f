"""The best lengths to pad to where there are very many different ones: the search of `buckets`, all at once.

The lines whose lowest is looked for are points (sequences so far, best cost): those that are lowest somewhere
are on the lower side of their convex hull. A line that begins behind the length in question never is lower
than the one that begins there, since each sequence in between is longer; so one hull serves all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def best_places(lengths: Sequence[int], totals: Sequence[int], num_buckets: int) -> tuple[int, ...]:
    """The places of the best boundaries, counted from 1 and rising.

    Args:
        lengths: The different lengths, rising.
        totals: How many sequences are no longer than each, from none on.
        num_buckets: The most boundaries.
    """
    steps = np.asarray(lengths, np.int64)
    counts = np.asarray(totals, np.int64)
    best = np.concatenate([[0], counts[1:] * steps])
    choices = []
    for _ in range(num_buckets - 1):
        chosen = _lowest(counts, best, steps)
        best = np.concatenate([[0], best[chosen] + (counts[1:] - counts[chosen]) * steps])
        choices.append(chosen)
    places = [len(lengths)]
    for chosen in reversed(choices):
        place = int(chosen[places[-1] - 1])
        if place and place != places[-1]:
            places.append(place)
    return tuple(reversed(places))


def _lowest(counts: Numbers, best: Numbers, steps: Numbers) -> Numbers:
    """For each length the place i with the least best[i] - counts[i] · length."""
    hull = _lower_hull(counts, best)
    rises = (best[hull[1:]] - best[hull[:-1]]) // (counts[hull[1:]] - counts[hull[:-1]])
    # Whole numbers: a slope is at least the length if and only if its floor is.
    found: Numbers = hull[np.searchsorted(rises, steps, side="left")]
    return found


def _lower_hull(x: Numbers, y: Numbers) -> Numbers:
    """The places of the points on the lower side of the hull; `x` rises.

    A point that is not below the line between its neighbours is not on it. So all such points are left out at
    once, again and again.
    """
    places = np.arange(len(x), dtype=np.int64)
    while len(places) > 2:
        left, middle, right = places[:-2], places[1:-1], places[2:]
        is_below = (y[middle] - y[left]) * (x[right] - x[middle]) < (y[right] - y[middle]) * (
            x[middle] - x[left]
        )
        if is_below.all():
            break
        places = np.concatenate([places[:1], middle[is_below], places[-1:]])
    return places
