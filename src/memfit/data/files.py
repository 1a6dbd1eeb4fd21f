"""Lengths from files: lines of text, a column of a CSV or Parquet file, an `.npy` array.

Text and CSV files are read line by line with the standard library, Parquet by groups of rows with pyarrow.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from memfit.data.found import Found, check_length
from memfit.errors import SetupError, UsageError

UNITS: Final = ("words", "characters", "number")
ID_BYTES: Final = 4


def read(
    name: str, *, column: str | None, unit: str, limit: int | None, padding_value: float | None
) -> Found:
    """The lengths in a file, by its ending.

    Raises:
        UsageError: If there is no such file or column, or it is broken: with the line.
    """
    path = Path(name)
    if unit not in UNITS:
        raise UsageError(f"unit must be one of {', '.join(UNITS)}. Received: {unit!r}.")
    if not path.is_file():
        raise UsageError(f"there is no file {name}. Pass a text, .csv, .parquet or .npy file.")
    ending = path.suffix.lower()
    if ending == ".npy":
        from memfit.data.reading_tf import read_npy

        return read_npy(path, limit=limit, padding_value=padding_value)
    if ending not in _COLUMNS:
        return _found(name, _lines(path, unit), limit)
    values, words = _COLUMNS[ending](path, column, unit), f"column {column!r} of {name}"
    return _found(words, values, limit)


def text_length(text: str, unit: str, place: str) -> int:
    """Steps of a text."""
    if unit == "number":
        return check_length(text.strip(), place)
    return len(text.split()) if unit == "words" else len(text)


def _found(source: str, values: Iterator[int], limit: int | None) -> Found:
    counts = Counter(islice(values, limit))
    is_sample = limit is not None and next(values, None) is not None
    return Found(counts=counts, source=source, step_bytes=ID_BYTES, is_sample=is_sample)


def _lines(path: Path, unit: str) -> Iterator[int]:
    for number, line in _numbered(path):
        yield text_length(line.rstrip("\r\n"), unit, f"{path}, line {number},")


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1."""
    number = 0
    with path.open(encoding="utf-8", newline="") as file:
        try:
            for number, line in enumerate(file, start=1):
                yield number, line
        except UnicodeDecodeError as fault:
            raise UsageError(
                f"{path} is not UTF-8 text after line {number}: {fault.reason}. Convert it, or name a .csv, "
                ".parquet or .npy file by its ending."
            ) from None


def _csv_column(path: Path, column: str | None, unit: str) -> Iterator[int]:
    rows = csv.reader((line for _, line in _numbered(path)), strict=True)
    try:
        place = _place(next(rows, []), column, path)
        for index, row in enumerate(rows):
            where = f"{path}, sample {index} (line {rows.line_num}),"
            if not row:
                continue
            if place >= len(row):
                raise UsageError(
                    f"{where} has {len(row)} columns, too few for {column!r}: the file may end in the "
                    "middle of a record."
                )
            yield text_length(row[place], unit, where)
    except csv.Error as fault:
        raise UsageError(
            f"{path} is broken at line {rows.line_num}: {fault}. The file may end in the middle of a record."
        ) from None


def _parquet_column(path: Path, column: str | None, unit: str) -> Iterator[int]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise SetupError(
            "reading Parquet files needs pyarrow, which is not installed. Type: pip install 'memfit[parquet]'"
        ) from None
    try:
        file = ParquetFile(path)
        place = _place(file.schema_arrow.names, column, path)
        name = file.schema_arrow.names[place]
        batches = file.iter_batches(columns=[name])
        values: Iterable[Any] = (value for batch in batches for value in batch.column(0).to_pylist())
        for index, value in enumerate(values):
            yield _value_length(value, unit, f"{path}, sample {index},")
    except (ArrowException, OSError) as fault:
        raise UsageError(
            f"{path} cannot be read as Parquet: {fault}. The file may end in the middle of a record."
        ) from None


def _value_length(value: Any, unit: str, place: str) -> int:
    if isinstance(value, str):
        return text_length(value, unit, place)
    if isinstance(value, (list, bytes)):
        return len(value)
    return check_length(value, place)


def _place(names: list[str], column: str | None, path: Path) -> int:
    if column is None or column not in names:
        said = "no column was named" if column is None else f"there is no column {column!r}"
        raise UsageError(
            f"{said} of {path}. It has: {', '.join(names) or 'none'}. Pass column=, or type --column NAME"
        )
    return names.index(column)


_COLUMNS: Final[dict[str, Callable[[Path, str | None, str], Iterator[int]]]] = {
    ".csv": _csv_column,
    ".parquet": _parquet_column,
}
