"""Rows that can be read from anywhere: the protocol, arrays in memory, arrays in files, several in a row.

Files are read by position into memory of our own, never mapped: a page that is mapped counts for the process
for as long as the kernel likes.
"""

from __future__ import annotations

import bisect
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from memfit.errors import UsageError

Array = np.ndarray[Any, Any]

# What a text costs beside its letters: an object of Python's, a pointer, a string of TensorFlow's.
TEXT_BYTES: Final = 33 + 8 + 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One array of a row.

    Attributes:
        dtype: `object` for text.
        shape: Of a single row.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Of a row, the letters of text aside."""
        size = TEXT_BYTES if self.dtype == object else self.dtype.itemsize
        return int(np.prod(self.shape, dtype=np.int64)) * size


class Rows(Protocol):
    """Rows of one or several arrays.

    Attributes:
        name: What errors call them.
        num_rows: How many there are.
        leaves: What a row is made of.
        cuts: The rows at which reading begins without reading more than is asked for; `None` for all.
    """

    name: str
    num_rows: int
    leaves: tuple[Leaf, ...]
    cuts: Sequence[int] | None

    def bytes_between(self, start: int, stop: int) -> int:
        """What rows take in memory."""

    def read(self, start: int, stop: int, into: Sequence[Array]) -> None:
        """Fills an array for each leaf with the rows."""


class ArrayRows:
    """An array in memory, or one whose rows are not next to each other in a file."""

    cuts: Sequence[int] | None = None

    def __init__(self, array: Array, name: str) -> None:
        check_array(array.dtype, array.shape, name)
        self.name, self.num_rows = name, len(array)
        self.leaves: tuple[Leaf, ...] = (Leaf(dtype=_kept(array.dtype), shape=array.shape[1:]),)
        self._array = array

    def bytes_between(self, start: int, stop: int) -> int:
        """By the size of a row."""
        return (stop - start) * self.leaves[0].row_bytes

    def read(self, start: int, stop: int, into: Sequence[Array]) -> None:
        """Copies."""
        into[0][...] = self._array[start:stop]


class FileRows:
    """An array that lies in a file as it would in memory.

    Args:
        path: The file.
        offset: Where the first row begins.
        shape: Of all rows.
        dtype: Of a number.
        name: What errors call it.
    """

    cuts: Sequence[int] | None = None

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], name: str
    ) -> None:
        check_array(dtype, shape, name)
        self.name, self.num_rows = name, shape[0]
        self.leaves: tuple[Leaf, ...] = (Leaf(dtype=_kept(dtype), shape=shape[1:]),)
        self._path, self._offset, self._dtype = path, offset, dtype
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._check_size(path.stat().st_size)

    def bytes_between(self, start: int, stop: int) -> int:
        """By the size of a row."""
        return (stop - start) * self.leaves[0].row_bytes

    def read(self, start: int, stop: int, into: Sequence[Array]) -> None:
        """Reads at the position of the first row, straight into the array where the bytes are as here."""
        (target,) = into
        assert len(target) == stop - start
        own = target if target.dtype == self._dtype else np.empty(target.shape, self._dtype)
        if own.size:
            self._fill(memoryview(own.reshape(-1).view(np.uint8)), start)  # type: ignore[arg-type]
        if own is not target:
            target[...] = own

    def _fill(self, view: memoryview, start: int) -> None:
        file = os.open(self._path, os.O_RDONLY)
        try:
            done, position = 0, self._offset + start * self._row_bytes
            while done < len(view):
                num = os.preadv(file, [view[done:]], position + done)
                if num == 0:
                    self._check_size(position + done)
                    raise UsageError(f"{self.name} ended while it was read. Was it being written?")
                done += num
        finally:
            os.close(file)

    def _check_size(self, size: int) -> None:
        there = size - self._offset
        if there < self.num_rows * self._row_bytes:
            raise UsageError(
                f"{self.name} ends in the middle of row {there // self._row_bytes:,}: it is to have "
                f"{self.num_rows:,} rows, {self._offset + self.num_rows * self._row_bytes:,} bytes, and has "
                f"{size:,}. Write it again."
            )


class JoinedRows:
    """The rows of several files, one file after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        first = parts[0]
        for part in parts:
            if part.leaves != first.leaves:
                raise UsageError(
                    f"{part.name} has rows of {describe_leaves(part.leaves)}, but {first.name} has rows of "
                    f"{describe_leaves(first.leaves)}. Files that are read as one must be alike."
                )
        self.name = f"{first.name} and {len(parts) - 1} more"
        self.leaves: tuple[Leaf, ...] = first.leaves
        self._parts = parts
        self._starts = [0]
        for part in parts:
            self._starts.append(self._starts[-1] + part.num_rows)
        self.num_rows = self._starts[-1]
        self.cuts: Sequence[int] | None = None
        if any(part.cuts is not None for part in parts):
            self.cuts = [
                start + cut
                for start, part in zip(self._starts, parts, strict=False)
                for cut in (part.cuts or [0])
            ]

    def bytes_between(self, start: int, stop: int) -> int:
        """The sum over the files."""
        return sum(part.bytes_between(first, last) for part, first, last, _ in self._pieces(start, stop))

    def read(self, start: int, stop: int, into: Sequence[Array]) -> None:
        """Each file its own piece."""
        for part, first, last, place in self._pieces(start, stop):
            part.read(first, last, [array[place : place + last - first] for array in into])

    def _pieces(self, start: int, stop: int) -> list[tuple[Rows, int, int, int]]:
        found = []
        index = bisect.bisect_right(self._starts, start) - 1
        while index < len(self._parts) and self._starts[index] < stop:
            begin, end = self._starts[index], self._starts[index + 1]
            first, last = max(start, begin), min(stop, end)
            if first < last:
                found.append((self._parts[index], first - begin, last - begin, first - start))
            index += 1
        return found


def new_array(leaf: Leaf, num_rows: int) -> Array:
    """An array that TensorFlow takes over as it is, and whose memory goes back to the system with it."""
    shape = (num_rows, *leaf.shape)
    num_bytes = num_rows * leaf.row_bytes
    if leaf.dtype == object or num_bytes == 0:
        return np.empty(shape, leaf.dtype)
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, leaf.dtype).reshape(shape)


def check_array(dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> None:
    """Refuses what cannot be a tensor, or has no rows to speak of."""
    if not shape:
        raise UsageError(f"{name} is a single value and has no rows. Pass an array whose first axis is rows.")
    if dtype.kind not in "biufc" or dtype.itemsize > 16 or dtype == np.longdouble:
        raise UsageError(
            f"{name} has elements of type {dtype}, which cannot be streamed. Save numbers, such as float32 "
            "or int64."
        )


def describe_leaves(leaves: Sequence[Leaf]) -> str:
    """Types and shapes, for an error."""
    return ", ".join(f"{'text' if leaf.dtype == object else leaf.dtype} {leaf.shape}" for leaf in leaves)


def _kept(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in the byte order of this machine."""
    return dtype.newbyteorder("=")
