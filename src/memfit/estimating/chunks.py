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

    Args:
        region_bytes: Its size.
        small_bytes: The size of the small one: what fits there is taken there first, being the smaller hole.
    """

    def __init__(self, region_bytes: int = REGION_BYTES, *, small_bytes: int = 0) -> None:
        self._size = {0: region_bytes}
        self._next: dict[int, int] = {}
        self._previous: dict[int, int] = {}
        self._free = [(region_bytes, 0)]
        self._free_starts = {0}
        self.held_bytes = 0
        self.peak_bytes = 0
        if small_bytes:  # No neighbour of the other, so they are never joined.
            self._size[-small_bytes] = small_bytes
            insort(self._free, (small_bytes, -small_bytes))
            self._free_starts.add(-small_bytes)

    def has_room(self, num_bytes: int) -> bool:
        """Whether some chunk holds a request."""
        need = rounded(num_bytes)
        return not need or bisect_left(self._free, (need, -1)) < len(self._free)

    def take(self, num_bytes: int) -> int | None:
        """The start of the chunk that a request gets; `None` for a request of nothing."""
        need = rounded(num_bytes)
        if not need:
            return None
        place = bisect_left(self._free, (need, -1))
        size, start = self._free.pop(place)
        self._free_starts.discard(start)
        if size >= 2 * need or size - need >= LARGEST_WASTE_BYTES:
            self._split(start, size, need)
        self.held_bytes += self._size[start]
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        return start

    def give_back(self, start: int) -> None:
        """Frees the chunk that starts there."""
        self.held_bytes -= self._size[start]
        after = self._next.get(start)
        if after is not None and after in self._free_starts:
            self._forget(after)
            self._join(start, after)
        before = self._previous.get(start)
        if before is not None and before in self._free_starts:
            self._forget(before)
            self._join(before, start)
            start = before
        insort(self._free, (self._size[start], start))
        self._free_starts.add(start)

    def _split(self, start: int, size: int, need: int) -> None:
        rest = start + need
        self._size[start], self._size[rest] = need, size - need
        after = self._next.get(start)
        if after is not None:
            self._next[rest] = after
            self._previous[after] = rest
        self._next[start], self._previous[rest] = rest, start
        insort(self._free, (size - need, rest))
        self._free_starts.add(rest)

    def _forget(self, start: int) -> None:
        self._free_starts.discard(start)
        del self._free[bisect_left(self._free, (self._size[start], start))]

    def _join(self, first: int, second: int) -> None:
        self._size[first] += self._size.pop(second)
        after = self._next.pop(second, None)
        self._previous.pop(second, None)
        if after is None:
            self._next.pop(first, None)
        else:
            self._next[first] = after
            self._previous[after] = first
