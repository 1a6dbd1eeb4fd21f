"""Columns of Parquet files, a group of rows at a time, by pyarrow."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from memfit.errors import SetupError, UsageError
from memfit.streaming.columns import check_columns
from memfit.streaming.rows_tf import Array, Leaf


def parquet_names(path: Path) -> list[str]:
    """The names of the columns."""
    return list(_open(path).schema_arrow.names)


class ParquetRows:
    """Some columns of a Parquet file. A group of rows is read as a whole, as Parquet wants it.

    Args:
        path: The file.
        columns: Their names.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        file = _open(path)
        check_columns(columns, file.schema_arrow.names, path)
        groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
        self.name, self._path, self._columns = str(path), path, list(columns)
        self._starts = [0, *accumulate(group.num_rows for group in groups)]
        self.num_rows = self._starts[-1]
        self.cuts: Sequence[int] | None = sorted(set(self._starts[:-1]))
        self._bytes = [group.total_byte_size for group in groups]
        self.leaves: tuple[Leaf, ...] = ()
        if self.num_rows:
            first = next(group for group in range(len(groups)) if groups[group].num_rows)
            self.leaves = tuple(
                Leaf(dtype=array.dtype, shape=array.shape[1:]) for array in self._group(first, None)
            )

    def bytes_between(self, start: int, stop: int) -> int:
        """By the types; for text by what the file says of its groups."""
        has_text = any(leaf.dtype == object for leaf in self.leaves)
        rows = (stop - start) * sum(leaf.row_bytes for leaf in self.leaves)
        letters = 0.0
        for group, size in enumerate(self._bytes) if has_text else ():
            begin, end = self._starts[group], self._starts[group + 1]
            shared = max(0, min(stop, end) - max(start, begin))
            letters += size * shared / max(1, end - begin)
        return rows + round(letters)

    def read(self, start: int, stop: int, into: Sequence[Array]) -> None:
        """Each group that has some of the rows."""
        group = bisect.bisect_right(self._starts, start) - 1
        while group < len(self._bytes) and self._starts[group] < stop:
            begin, end = self._starts[group], self._starts[group + 1]
            first, last = max(start, begin), min(stop, end)
            if first < last:
                for array, target in zip(self._group(group, self.leaves), into, strict=True):
                    target[first - start : last - start] = array[first - begin : last - begin]
            group += 1

    def _group(self, group: int, leaves: tuple[Leaf, ...] | None) -> list[Array]:
        from pyarrow import ArrowException

        try:
            table = _open(self._path).read_row_group(group, columns=self._columns, use_threads=False)
        except (ArrowException, OSError) as fault:
            raise UsageError(
                f"{self._path} cannot be read in rows {self._starts[group]:,} to "
                f"{self._starts[group + 1]:,}: {fault}. The file may be cut off."
            ) from None
        found = []
        for place, name in enumerate(self._columns):
            where = f"{self._path}, column {name!r}"
            array = _as_array(table.column(name).combine_chunks(), self._starts[group], where)
            shape = array.shape[1:] if leaves is None else leaves[place].shape
            if array.shape[1:] != shape:
                raise UsageError(
                    f"{where}, row {self._starts[group]:,}, has {array.shape[1:]} values, but those before "
                    f"have {shape}. Rows must be of one length: pad them, or write them as {shape}."
                )
            found.append(array)
        return found


def _open(path: Path) -> Any:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise SetupError(
            "reading Parquet files needs pyarrow, which is not installed. Type: pip install 'memfit[parquet]'"
        ) from None
    try:
        return ParquetFile(path)
    except (ArrowException, OSError) as fault:
        raise UsageError(
            f"{path} cannot be read as Parquet: {fault}. The file may end in the middle of a record."
        ) from None


def _as_array(column: Any, first_row: int, where: str) -> Array:
    import pyarrow

    if column.null_count:
        index = column.is_null().to_pylist().index(True)
        raise UsageError(
            f"{where}, row {first_row + index:,}, has no value. Fill it in, or leave the row out."
        )
    kind = column.type
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if is_list or pyarrow.types.is_fixed_size_list(kind):
        return _lists(column, first_row, where)
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_binary(kind):
        texts = [value.encode() if isinstance(value, str) else value for value in column.to_pylist()]
        found = np.empty(len(texts), object)
        found[:] = texts
        return found
    array = np.asarray(column.to_numpy(zero_copy_only=False))
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"{where} holds {kind}, which cannot be streamed. Write numbers, lists of them or text."
        )
    return array


def _lists(column: Any, first_row: int, where: str) -> Array:
    """Lists that are all of one length, as an array."""
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if len(set(lengths.tolist())) > 1:
        index = int(np.argmax(lengths != lengths[0]))
        raise UsageError(
            f"{where}, row {first_row + index:,}, is a list of {lengths[index]:,}, but the one before is of "
            f"{lengths[0]:,}. Rows must be of one length: pad them."
        )
    values = _as_array(column.flatten(), first_row, f"{where}, inside of a list at or after")
    return values.reshape(len(lengths), -1, *values.shape[1:])
