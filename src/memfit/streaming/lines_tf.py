"""Text files, a row a line; and where the lines of any text begin, in blocks, in one pass.

In CSV files a line break inside of quotes is not the end of a row, and a blank line is no row.
"""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from memfit.errors import UsageError
from memfit.streaming.rows_tf import TEXT_BYTES, Array, Leaf

NEWLINE, RETURN, QUOTE = 10, 13, 34
TEXT: Final = Leaf(dtype=np.dtype(object), shape=())


@dataclass(kw_only=True)
class LineIndex:
    """Where blocks of whole rows begin.

    Attributes:
        rows: The first row of each block, and at last the number of rows.
        places: Its first byte, and at last the end of the file.
        lines: Its first line, from 1.
    """

    rows: list[int] = field(default_factory=lambda: [0])
    places: list[int] = field(default_factory=lambda: [0])
    lines: list[int] = field(default_factory=lambda: [1])

    def add(self, *, num_rows: int, place: int, num_lines: int) -> None:
        """Ends a block."""
        self.rows.append(self.rows[-1] + num_rows)
        self.places.append(place)
        self.lines.append(self.lines[-1] + num_lines)


def index_lines(path: Path, size: int, *, has_quotes: bool, first: int = 0) -> LineIndex:
    """Cuts a text into blocks of about `size` bytes.

    Args:
        path: The file.
        size: Bytes of a block.
        has_quotes: Whether it is CSV.
        first: Lines of a header, which are no rows.

    Raises:
        UsageError: If a CSV file ends inside of quotes: with the line.
    """
    scan = _Scan(has_quotes=has_quotes)
    with path.open("rb") as file:
        while data := file.read(size):
            scan.feed(np.frombuffer(data, np.uint8))
    scan.end(path)
    index = scan.index
    if first:
        index.rows = [max(0, row - first) for row in index.rows]
        # The header is in the first block, so its reader drops it.
    return index


@dataclass(kw_only=True)
class _Scan:
    """What is known after some bytes of a text."""

    has_quotes: bool
    index: LineIndex = field(default_factory=LineIndex)
    place: int = 0
    last_end: int = -1
    num_lines: int = 0
    is_quoted: bool = False
    is_after_return: bool = False

    def feed(self, data: Array) -> None:
        breaks = np.flatnonzero(data == NEWLINE)
        num_breaks = len(breaks)
        ends = breaks
        if self.has_quotes:
            quotes = (np.cumsum(data == QUOTE) + self.is_quoted) % 2
            ends = breaks[quotes[breaks] == 0]
            self.is_quoted = bool(quotes[-1])
        if len(ends):
            self._end_rows(data, ends, int(np.searchsorted(breaks, ends[-1], side="right")))
            self.num_lines = num_breaks - int(np.searchsorted(breaks, ends[-1], side="right"))
        else:
            self.num_lines += num_breaks
        self.place += len(data)
        self.is_after_return = bool(data[-1] == RETURN)

    def _end_rows(self, data: Array, ends: Array, num_breaks: int) -> None:
        num = len(ends)
        if self.has_quotes:
            lengths = np.diff(ends + self.place, prepend=self.last_end) - 1
            before = np.where(ends > 0, data[ends - 1] == RETURN, self.is_after_return)
            num -= int(((lengths == 0) | ((lengths == 1) & before)).sum())
        self.last_end = int(ends[-1]) + self.place
        self.index.add(num_rows=num, place=self.last_end + 1, num_lines=self.num_lines + num_breaks)

    def end(self, path: Path) -> None:
        if self.is_quoted:
            raise UsageError(
                f"{path} ends inside of quotes that were opened at line {self.index.lines[-1]} or after: the "
                "file may end in the middle of a record."
            )
        if self.index.places[-1] < self.place:
            self.index.add(num_rows=1, place=self.place, num_lines=1)


class BlockReader(ABC):
    """Rows of a file that is read in blocks, some of which may lie before or after what is asked for.

    Args:
        path: The file.
        rows: The first row of each block, and at last the number of rows.
        places: Its first byte, and at last the end of the file.
    """

    leaves: tuple[Leaf, ...] = (TEXT,)

    def __init__(self, path: Path, rows: list[int], places: list[int]) -> None:
        self.name, self.path, self._rows, self._places = str(path), path, rows, places
        self.num_rows = rows[-1]
        self.cuts: Sequence[int] | None = sorted(set(rows[:-1]))

    def bytes_between(self, start: int, stop: int) -> int:
        """By the bytes of the file, which are as good as evenly spread within a block."""
        return round(self._place(stop) - self._place(start)) + (stop - start) * TEXT_BYTES

    def read(self, start: int, stop: int, into: Sequence[Array]) -> None:
        """Each block that has some of the rows."""
        block = bisect.bisect_right(self._rows, start) - 1
        while block < len(self._rows) - 1 and self._rows[block] < stop:
            begin, end = self._rows[block], self._rows[block + 1]
            first, last = max(start, begin), min(stop, end)
            if first < last:
                targets = [array[first - start : last - start] for array in into]
                self._read_block(block, first - begin, last - begin, targets)
            block += 1

    def content(self, block: int) -> bytes:
        """The bytes of a block."""
        with self.path.open("rb") as file:
            file.seek(self._places[block])
            return file.read(self._places[block + 1] - self._places[block])

    @abstractmethod
    def _read_block(self, block: int, first: int, last: int, into: list[Array]) -> None:
        """Puts some rows of a block into arrays, one a leaf."""

    def _place(self, row: int) -> float:
        block = min(bisect.bisect_right(self._rows, row) - 1, len(self._rows) - 2)
        num = self._rows[block + 1] - self._rows[block]
        share = (row - self._rows[block]) / num if num else 0.0
        return self._places[block] + share * (self._places[block + 1] - self._places[block])


class BytesReader(BlockReader):
    """A file whose rows are bytes, all of a block at once."""

    def _read_block(self, block: int, first: int, last: int, into: list[Array]) -> None:
        into[0][...] = _object_array(self.split(block)[first:last])

    @abstractmethod
    def split(self, block: int) -> list[bytes]:
        """The rows of a block."""


class TextRows(BytesReader):
    """Lines of text, without what ends them."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        index = index_lines(path, block_bytes, has_quotes=False)
        super().__init__(path, index.rows, index.places)

    def split(self, block: int) -> list[bytes]:
        """The lines of a block."""
        lines = self.content(block).split(b"\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix(b"\r") for line in lines]


def _object_array(values: Sequence[Any]) -> Array:
    found = np.empty(len(values), object)
    found[:] = values
    return found
