"""The best-fit allocator of TensorFlow, on paper: what its meter would say of a sequence of buffers.

It counts chunks, not requests: each request is rounded up to 256 bytes, takes the smallest free chunk that
holds it, and keeps all of that chunk unless half of it, or 128 MiB, would be left over. Free neighbours are
joined. The rules are those of `bfc_allocator.cc`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from memfit.units import GIB, MIB

ROUNDING_BYTES: Final = 256
LARGEST_WASTE_BYTES: Final = 128 * MIB
# More than any step: the simulated region need not grow.
REGION_BYTES: Final = 1024 * 1024 * GIB


def rounded(num_bytes: int) -> int:
    """What the allocator makes of a request, before it looks for a chunk.

    Example:
    >>> rounded(1), rounded(256), rounded(257), rounded(0)
    (256, 256, 512, 0)
    """
    return -(-num_bytes // ROUNDING_BYTES) * ROUNDING_BYTES


class Chunks:
    """One region of memory, free at first, and perhaps a small one beside it.

    Millions of requests are replayed, so the free chunks are kept in three ways: by size, to find one, and
    by where they begin and end, to join neighbours.

    Args:
        region_bytes: Its size.
        small_bytes: The size of the small one: what fits there is taken there first, being the smaller hole.
    """

    def __init__(self, region_bytes: int = REGION_BYTES, *, small_bytes: int = 0) -> None:
        self._held: dict[int, int] = {}
        self._free: list[tuple[int, int]] = []
        self._size_at_start: dict[int, int] = {}
        self._start_at_end: dict[int, int] = {}
        self.held_bytes = 0
        self.peak_bytes = 0
        self._add(0, region_bytes)
        if small_bytes:  # It ends before the other begins, so they are never joined.
            self._add(-small_bytes - ROUNDING_BYTES, small_bytes)

    def take(self, num_bytes: int) -> int | None:
        """The start of the chunk that a request gets; `None` for one of nothing, or if no chunk holds it."""
        need = rounded(num_bytes)
        free = self._free
        place = bisect_left(free, (need,))
        if place == len(free) or not need:
            return None
        size, start = free.pop(place)
        del self._size_at_start[start], self._start_at_end[start + size]
        if size >= 2 * need or size - need >= LARGEST_WASTE_BYTES:
            self._add(start + need, size - need)
            size = need
        self._held[start] = size
        self.held_bytes += size
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes
        return start

    def give_back(self, start: int) -> None:
        """Frees the chunk that starts there."""
        size = self._held.pop(start)
        self.held_bytes -= size
        after = self._size_at_start.pop(start + size, None)
        if after is not None:
            self._forget(start + size, after)
            size += after
        before = self._start_at_end.get(start)
        if before is not None:
            self._forget(before, self._size_at_start.pop(before))
            size += start - before
            start = before
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        insort(self._free, (size, start))
        self._size_at_start[start] = size
        self._start_at_end[start + size] = start

    def _forget(self, start: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, start))], self._start_at_end[start + size]
