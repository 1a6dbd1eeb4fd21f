"""How buckets are cut into batches of about the same number of steps, in few shapes.

Pure: sequences in each bucket in, slices of a sorted order out. Which sequences those are, and their order in
an epoch, is left to `pipeline_tf`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# What is left over in a bucket joins the next one if that pads it by no more than this share of a batch.
MOST_ADDED: Final = 0.25
MOST_ADDED_WHEN_EVEN: Final = 1.0
# The most sequences of a batch, as a multiple of those asked for, so that no update is far larger than the
# others. Batches of longer ones have 4 to 13 % more steps for that, and an epoch about as many as before.
MOST_TIMES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A batch of an epoch: a slice of all sequences in order of their buckets.

    Attributes:
        start: Where it begins.
        size: Sequences in it.
        length: The steps that each is padded to.
    """

    start: int
    size: int
    length: int


def cut(
    sizes: Sequence[int], boundaries: Sequence[int], tokens: int, most_size: int | None = None
) -> tuple[Slot, ...]:
    """The batches of an epoch: each sequence in one of them, none with more than `tokens` steps.

    A sequence longer than that is a batch of its own. What is left over when a bucket is cut joins the next
    bucket where that costs little, so that nearly all batches of a length have the same size.

    Args:
        sizes: Sequences in each bucket.
        boundaries: The steps that each bucket is padded to, rising.
        tokens: The most steps of a batch, padding included.
        most_size: The most sequences of a batch; `None`: as many as have so many steps.

    Example:
    >>> [(slot.size, slot.length) for slot in cut((5, 3), (10, 12), 40)]
    [(4, 10), (3, 12), (1, 12)]
    """
    most = [batch_size_of(length, tokens, most_size) for length in boundaries]
    return _cut(sizes, boundaries, most, most_added=[MOST_ADDED * tokens] * len(most))


def cut_by_sizes(sizes: Sequence[int], boundaries: Sequence[int], most: Sequence[int]) -> tuple[Slot, ...]:
    """The batches of an epoch, each of as many sequences as its bucket may have, if there are so many.

    What is left over joins the next bucket more often than in `cut`: batches are to be equally full.

    Args:
        sizes: Sequences in each bucket.
        boundaries: The steps that each bucket is padded to, rising.
        most: The most sequences of a batch in each bucket.

    Example:
    >>> [(slot.size, slot.length) for slot in cut_by_sizes((5, 5), (10, 12), (4, 3))]
    [(4, 10), (3, 12), (3, 12)]
    """
    added = [MOST_ADDED_WHEN_EVEN * size * length for size, length in zip(most, boundaries, strict=True)]
    return _cut(sizes, boundaries, most, most_added=added)


def _cut(
    sizes: Sequence[int], boundaries: Sequence[int], most: Sequence[int], *, most_added: Sequence[float]
) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    start = waiting = 0
    for place, (size, length) in enumerate(zip(sizes, boundaries, strict=True)):
        waiting += size
        while waiting >= most[place]:
            slots.append(Slot(start=start, size=most[place], length=length))
            start, waiting = start + most[place], waiting - most[place]
        is_last = place + 1 == len(boundaries)
        if waiting and (is_last or waiting * (boundaries[place + 1] - length) > most_added[place]):
            slots.append(Slot(start=start, size=waiting, length=length))
            start, waiting = start + waiting, 0
    return tuple(slots)


def num_windows(
    counts: Mapping[int, int], boundaries: Sequence[int], most: Sequence[int], *, is_sample: bool
) -> float:
    """How many batches sequences of these lengths make that are batched as they are read.

    What is longer than all boundaries comes one at a time, and what is left over of a bucket is a batch.

    Args:
        counts: How many sequences have each length.
        boundaries: The steps that each bucket is padded to, rising.
        most: The most sequences of a batch in each bucket.
        is_sample: Whether there are more sequences like these, so that little is left over.

    Example:
    >>> num_windows({9: 6, 10: 4, 30: 1}, (10, 20), (4, 2), is_sample=False)
    4
    """
    sizes = [0] * (len(boundaries) + 1)
    for length, num in counts.items():
        sizes[bisect_left(boundaries, length)] += num
    shares = [size / each for size, each in zip(sizes, [*most, 1], strict=True)]
    return sum(shares) if is_sample else sum(map(math.ceil, shares))


def batch_size_of(length: int, tokens: int, most_size: int | None = None) -> int:
    """Sequences of a length in a batch of `tokens` steps: at least one, and at most `most_size`."""
    size = tokens // length
    return max(1, size if most_size is None else min(size, most_size))


def most_size_for(batch_size: int) -> int:
    """The most sequences of a batch where so many are asked for: an update is to be of about so many."""
    return MOST_TIMES * batch_size


def tokens_for(batch_size: int, sizes: Sequence[int], boundaries: Sequence[int]) -> int:
    """The least steps of a batch that make no more batches than `batch_size` sequences in each would.

    Example:
    >>> tokens_for(4, (8, 8), (10, 30))
    90
    """
    most_size = most_size_for(batch_size)
    most = math.ceil(sum(sizes) / batch_size)
    low, high = 1, batch_size * boundaries[-1]
    while low < high:
        middle = (low + high) // 2
        if len(cut(sizes, boundaries, middle, most_size)) <= most:
            high = middle
        else:
            low = middle + 1
    return low
