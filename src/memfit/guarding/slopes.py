"""Is it a leak? A robust slope with its interval, and the tests that noise, jumps and plateaus must not pass.

Pure: readings in, a verdict out. The slope is the median of all pairwise slopes (Theil and Sen), its interval
and the confidence are Kendall's. Readings are first reduced to the minima of a few blocks: what memory comes
back to is what is kept, whatever happened in between, so that a sawtooth is flat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import NormalDist, median
from typing import Final

Point = tuple[float, float]

NUM_BLOCKS: Final = 16
MIN_POINTS: Final = 8
CONFIDENCE: Final = 0.99
WARM_UP_SHARE: Final = 0.2
MIN_SIGNAL: Final = 4.0  # Growth over the spread around the line.
LAST_SHARE: Final = 0.5  # Of the slope, that the last third must still have.
MIN_RISES: Final = 4  # A leak rises again and again; a jump or two is something that was set up.


@dataclass(frozen=True, slots=True)
class Trend:
    """How a series goes on: its slope with an interval, and whether it is a leak.

    Attributes:
        slope: Median of pairwise slopes.
        low: Lower end of the interval.
        high: Upper end.
        confidence: Probability that it rises at all, by Kendall's test.
        growth: Slope times the distance that was seen.
        is_growing: Sure, larger than the noise, still going on, and not by one jump.
        num_readings: Readings after the warm-up.
    """

    slope: float
    low: float
    high: float
    confidence: float
    growth: float
    is_growing: bool
    num_readings: int


def trend(readings: Sequence[Point], *, least_growth: float = 0.0) -> Trend:
    """What a series of `(step, value)` does after its warm-up.

    Args:
        readings: In order of their steps.
        least_growth: Less than this in all is nothing to speak of.

    Example:
    >>> trend([(step, 5.0 * step) for step in range(40)]).is_growing
    True
    >>> trend([(step, 0.0 if step < 20 else 900.0) for step in range(40)]).is_growing
    False
    """
    settled = readings[max(2, math.ceil(WARM_UP_SHARE * len(readings))) :]
    points = block_minima(settled)
    if len(points) < MIN_POINTS:
        return Trend(0.0, 0.0, 0.0, 0.0, 0.0, False, len(settled))
    slopes = sorted(_slope(first, second) for first, second in combinations(points, 2))
    slope = median(slopes)
    low, high = _interval(slopes, len(points))
    growth = slope * (points[-1][0] - points[0][0])
    is_growing = (
        low > 0
        and _confidence(points) >= CONFIDENCE
        and growth > least_growth
        and growth > MIN_SIGNAL * _spread(points, slope)
        and _goes_on(points, slope)
    )
    return Trend(slope, low, high, _confidence(points), growth, is_growing, len(settled))


def block_minima(readings: Sequence[Point]) -> list[Point]:
    """The least reading of each of some equal blocks; the readings themselves where they are few."""
    num = max(1, len(readings) // NUM_BLOCKS)
    # From the end, so that the last block is whole and the newest reading counts.
    starts = range(len(readings) % num, len(readings), num)
    return [min(readings[start : start + num], key=lambda point: point[1]) for start in starts]


def _slope(first: Point, second: Point) -> float:
    distance = second[0] - first[0]
    return (second[1] - first[1]) / distance if distance else 0.0


def _deviation(num: int) -> float:
    """Standard deviation of Kendall's sum without ties."""
    return math.sqrt(num * (num - 1) * (2 * num + 5) / 18)


def _interval(slopes: list[float], num: int) -> tuple[float, float]:
    reach = NormalDist().inv_cdf(CONFIDENCE) * _deviation(num)
    below = max(0, math.floor((len(slopes) - reach) / 2))
    return slopes[below], slopes[len(slopes) - 1 - below]


def _confidence(points: list[Point]) -> float:
    signs = sum((second[1] > first[1]) - (second[1] < first[1]) for first, second in combinations(points, 2))
    return NormalDist().cdf((signs - 1) / _deviation(len(points))) if signs > 0 else 0.0


def _spread(points: list[Point], slope: float) -> float:
    """Median distance from the line."""
    rests = [value - slope * step for step, value in points]
    middle = median(rests)
    return median(abs(rest - middle) for rest in rests)


def _goes_on(points: list[Point], slope: float) -> bool:
    """Whether it rises in the last third as before, and in several places."""
    num_rises = sum(after[1] > before[1] for before, after in pairwise(points))
    third = points[-max(4, len(points) // 3) :]
    return num_rises >= MIN_RISES and _slope(third[0], third[-1]) >= LAST_SHARE * slope
