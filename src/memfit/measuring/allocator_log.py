"""What TensorFlow's allocator says of itself when a request fails: every chunk, in its log.

At log level 0 the best-fit allocator lists all chunks, in use and free, after the line that says what was
asked for. It is the only witness of what was alive when a process dies in the next moment. This file reads;
what it means is left to others.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from memfit.units import parse_bytes

_CHUNK: Final = re.compile(r"\] (?P<state>InUse|Free)\s+at \S+ of size (?P<size>\d+)")
# Older versions write bytes, TensorFlow 2.21 writes "64.00MiB".
_POOL: Final = re.compile(
    r"Total (?:bytes|size) in pool: \S+ memory_limit_: (?P<limit>\S+) available (?:bytes|size): (?P<rest>\S+)"
)
_BEGIN: Final = "BFCAllocator dump for "


@dataclass(slots=True, kw_only=True)
class Dump:
    """The chunks of an allocator when a request failed.

    Attributes:
        in_use: How many chunks of each size were in use.
        free: How many of each size were free.
        limit_bytes: What the allocator may have, or `None` if it did not come to say it.
        untaken_bytes: What of that it has not yet asked the system for.
    """

    in_use: Counter[int] = field(default_factory=Counter)
    free: Counter[int] = field(default_factory=Counter)
    limit_bytes: int | None = None
    untaken_bytes: int = 0

    @property
    def in_use_bytes(self) -> int:
        """What was in use."""
        return sum(size * num for size, num in self.in_use.items())

    @property
    def free_bytes(self) -> int:
        """What was free in total."""
        return sum(size * num for size, num in self.free.items()) + self.untaken_bytes

    @property
    def largest_free_bytes(self) -> int:
        """The largest piece of it."""
        return max(max(self.free, default=0), self.untaken_bytes)

    def largest_in_use(self, most: int) -> list[tuple[int, int]]:
        """Sizes and numbers of the chunks in use that hold the most, together."""
        return sorted(self.in_use.items(), key=lambda each: each[0] * each[1], reverse=True)[:most]


class DumpReader:
    """Reads a log line by line; `dump` is the last list of chunks in it, or `None`."""

    def __init__(self) -> None:
        self.dump: Dump | None = None

    def feed(self, line: str) -> None:
        """Takes in a line of the log."""
        if _BEGIN in line:
            self.dump = Dump()
        elif self.dump is None:
            return
        elif chunk := _CHUNK.search(line):
            counted = self.dump.in_use if chunk["state"] == "InUse" else self.dump.free
            counted[int(chunk["size"])] += 1
        elif pool := _POOL.search(line):
            self.dump.limit_bytes = _size(pool["limit"])
            self.dump.untaken_bytes = _size(pool["rest"])


def _size(text: str) -> int:
    return 0 if text in ("0", "0B") else parse_bytes(text)
