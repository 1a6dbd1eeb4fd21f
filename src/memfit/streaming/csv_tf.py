"""Columns of CSV files, with a header in the first line, by Python's own reader.

What a column holds is told by the first rows, or by `dtypes`. A value that does not fit is an error with its
line: nothing is filled in.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from memfit.errors import UsageError
from memfit.streaming.columns import check_columns
from memfit.streaming.lines_tf import BlockReader, index_lines
from memfit.streaming.rows_tf import Array, Leaf

NUM_LOOKED_AT: Final = 1000
_KINDS: Final[tuple[tuple[str, Callable[[str], Any]], ...]] = (("int64", int), ("float32", float))


def csv_names(path: Path) -> list[str]:
    """The names in the header."""
    return next(_records(path), [])


class CsvRows(BlockReader):
    """Some columns of a CSV file.

    Args:
        path: The file.
        block_bytes: Bytes of a block.
        columns: Their names.
        dtypes: The types of some of them: `"int64"`, `"float32"`, `"string"` and so on.
    """

    def __init__(
        self, path: Path, block_bytes: int, columns: Sequence[str], dtypes: Mapping[str, str]
    ) -> None:
        names = csv_names(path)
        check_columns(columns, names, path)
        index = index_lines(path, block_bytes, has_quotes=True, first=1)
        super().__init__(path, index.rows, index.places)
        self._lines, self._num_names = index.lines, len(names)
        self._columns = [(name, names.index(name)) for name in columns]
        looked_at = list(islice(_records(path), 1, NUM_LOOKED_AT))
        self._dtypes = [
            _dtype(dtypes[name], name)
            if name in dtypes
            else _guess([row[place] for row in looked_at if place < len(row)])
            for name, place in self._columns
        ]
        self.leaves = tuple(Leaf(dtype=dtype, shape=()) for dtype in self._dtypes)

    def _read_block(self, block: int, first: int, last: int, into: list[Array]) -> None:
        rows = self._parsed(block)[first:last]
        for (name, place), target in zip(self._columns, into, strict=True):
            values = [row[place] for _, row in rows]
            try:
                target[...] = _converted(values, target.dtype)
            except (ValueError, OverflowError):
                raise self._fault(rows, place, name, target.dtype) from None

    def _parsed(self, block: int) -> list[tuple[int, list[str]]]:
        """Rows with their lines."""
        reader = csv.reader(io.StringIO(self._decoded(block), newline=""), strict=True)
        found = []
        try:
            for row in reader:
                line = self._lines[block] + reader.line_num - 1
                if not row:
                    continue
                if len(row) != self._num_names:
                    raise UsageError(
                        f"{self.path}, line {line}, has {len(row)} columns, but the header has "
                        f"{self._num_names}: rows must be alike; the file may end in the middle of a record."
                    )
                found.append((line, row))
        except csv.Error as fault:
            raise UsageError(
                f"{self.path} is broken at line {self._lines[block] + reader.line_num - 1}: {fault}."
            ) from None
        return found[1:] if block == 0 else found

    def _decoded(self, block: int) -> str:
        try:
            return self.content(block).decode("utf-8-sig" if block == 0 else "utf-8")
        except UnicodeDecodeError as fault:
            raise UsageError(
                f"{self.path} is not UTF-8 text between lines {self._lines[block]} and "
                f"{self._lines[block + 1]}: {fault.reason}. Convert it."
            ) from None

    def _fault(
        self, rows: list[tuple[int, list[str]]], place: int, name: str, dtype: np.dtype[Any]
    ) -> UsageError:
        line, row = next((line, row) for line, row in rows if not _fits(row[place], dtype))
        said = "nothing" if not row[place].strip() else repr(row[place])
        return UsageError(
            f"{self.path}, line {line}, has {said} in the column {name!r}, which is read as {dtype}. Mend "
            f'the row, or say what the column holds: dtypes={{"{name}": "float32"}} or "string".'
        )


def _records(path: Path) -> Iterator[list[str]]:
    """The records from the beginning."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.reader(file, strict=True)
        except (csv.Error, UnicodeDecodeError):
            return  # Whoever reads these rows says where the fault is.


def _guess(values: list[str]) -> np.dtype[Any]:
    for name, read in _KINDS:
        try:
            for value in values:
                read(value)
        except ValueError:
            continue
        if values:
            return np.dtype(name)
    return np.dtype(object)


def _dtype(name: str, column: str) -> np.dtype[Any]:
    if name in ("string", "str", "object"):
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        raise UsageError(
            f'dtypes[{column!r}] is {name!r}, which is no type. Pass "int64", "float32", "string" or so.'
        ) from None


def _converted(values: list[str], dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "O":
        return [value.encode() for value in values]
    read = int if dtype.kind in "iu" else float
    return np.array([read(value) for value in values], dtype)


def _fits(value: str, dtype: np.dtype[Any]) -> bool:
    try:
        _converted([value], dtype)
    except (ValueError, OverflowError):
        return False
    return True
