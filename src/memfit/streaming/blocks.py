"""How rows are cut into blocks, and blocks into windows. Pure: numbers in, numbers out.

A block is what is read at once, from one place of a file. A window is what is in memory at once: some blocks
from all over the data, whose rows are mixed. Which blocks those are is left to `order_tf`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from memfit.units import KIB, MIB

# A window is made of about as many blocks from as many places: fewer mix worse, more read smaller pieces.
BLOCKS_PER_WINDOW: Final = 64
LEAST_BLOCK_BYTES: Final = 16 * KIB
MOST_WINDOW_BYTES: Final = 64 * MIB
MOST_BATCHES_AHEAD: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """All rows, cut.

    Attributes:
        borders: The first row of each block, and at last the number of rows.
        largest_bytes: Of all blocks.
        per_window: Blocks in a window.
    """

    borders: Sequence[int]
    largest_bytes: int
    per_window: int

    @property
    def num_blocks(self) -> int:
        """In an epoch."""
        return len(self.borders) - 1

    @property
    def num_windows(self) -> int:
        """In an epoch."""
        return -(-self.num_blocks // self.per_window)


def block_bytes(window_bytes: int) -> int:
    """The bytes of a block.

    Example:
    >>> block_bytes(64 * 2**20)
    1048576
    """
    return max(LEAST_BLOCK_BYTES, window_bytes // BLOCKS_PER_WINDOW)


def even_borders(num_rows: int, row_bytes: int, window_bytes: int) -> Sequence[int]:
    """Blocks of rows that are all of one size.

    Example:
    >>> list(even_borders(10, 16 * 1024, 64 * 1024))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    >>> list(even_borders(10, 5000, 64 * 1024))
    [0, 3, 6, 9, 10]
    """
    size = max(1, min(block_bytes(window_bytes), window_bytes) // max(1, row_bytes))
    return array("q", [*range(0, num_rows, size), num_rows])


def lay_out(borders: Sequence[int], bytes_between: Callable[[int, int], int], window_bytes: int) -> Blocks:
    """Windows of so many blocks that the largest would fit, at least one.

    Args:
        borders: Of the blocks.
        bytes_between: The bytes of the rows from one to another.
        window_bytes: The most of a window.

    Example:
    >>> lay_out([0, 4, 8, 9], lambda start, stop: 10 * (stop - start), 90).per_window
    2
    """
    largest = max(bytes_between(start, stop) for start, stop in pairwise(borders))
    return Blocks(borders=borders, largest_bytes=largest, per_window=max(1, window_bytes // max(1, largest)))


def window_for(host_bytes: int) -> int:
    """The bytes of a window where none is asked for: two of them are held at once."""
    return min(MOST_WINDOW_BYTES, max(1, host_bytes // 4))


def batches_ahead(host_bytes: int, batch_bytes: float) -> int:
    """How many batches to keep ready: at least one.

    Example:
    >>> batches_ahead(2**30, 2**20), batches_ahead(2**20, 2**20)
    (16, 1)
    """
    most = min(MOST_WINDOW_BYTES, host_bytes // 8)
    return max(1, min(MOST_BATCHES_AHEAD, math.floor(most / max(1.0, batch_bytes))))
