"""What padding costs: the steps of an epoch for random batches, as an expectation and not by drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping


def num_random_steps(counts: Mapping[int, int], batch_size: int) -> int:
    """The steps of an epoch of random batches, each padded to its longest sequence: what to expect.

    Of n sequences of which m are no longer than l, a batch of b has none longer with the probability
    C(m, b) / C(n, b). The last batch may be smaller.

    Args:
        counts: How many sequences have each length.
        batch_size: Sequences in a batch.

    Example:
    >>> num_random_steps({1: 50, 100: 1}, 51), num_random_steps({3: 10}, 4)
    (5100, 30)
    """
    num = sum(counts.values())
    whole, rest = divmod(num, batch_size)
    steps = whole * batch_size * _expected_longest(counts, num, batch_size) if whole else 0.0
    if rest:
        steps += rest * _expected_longest(counts, num, rest)
    return round(steps)


def _expected_longest(counts: Mapping[int, int], num: int, batch_size: int) -> float:
    expected = before = 0.0
    no_longer = 0
    for length in sorted(counts):
        no_longer += counts[length]
        chance = _share(no_longer, num, batch_size)
        expected += length * (chance - before)
        before = chance
    return expected


def _share(part: int, whole: int, size: int) -> float:
    """C(part, size) / C(whole, size)."""
    if part < size:
        return 0.0
    return math.exp(
        math.lgamma(part + 1)
        - math.lgamma(part - size + 1)
        - math.lgamma(whole + 1)
        + math.lgamma(whole - size + 1)
    )
