"""What the user names (files, patterns, arrays) as rows that can be read, by the endings of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from memfit.errors import UsageError
from memfit.streaming.columns import Chosen, Names, choose
from memfit.streaming.csv_tf import CsvRows, csv_names
from memfit.streaming.lines_tf import TextRows
from memfit.streaming.npy_tf import mapped_rows, npz_names, open_npy, open_npz
from memfit.streaming.parquet_tf import ParquetRows, parquet_names
from memfit.streaming.rows_tf import ArrayRows, JoinedRows, Rows
from memfit.streaming.tfrecord_tf import RecordRows

ENDINGS: Final = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".txt": "text",
    ".text": "text",
    ".jsonl": "text",
}
TABLES: Final = ("npz", "csv", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How files are to be read.

    Attributes:
        block_bytes: What is read at once, where files do not say.
        kind: What files are, whatever they are called; `None` goes by their endings.
        columns: Of tables, for the inputs.
        labels: Of tables.
        weights: Of tables.
        dtypes: Of columns of CSV files.
    """

    block_bytes: int
    kind: str | None = None
    columns: Names = None
    labels: Names = None
    weights: str | None = None
    dtypes: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Rows, and what a batch is made of them.

    Attributes:
        parts: The rows.
        structure: `x`, `(x, y)` or `(x, y, weights)`, with the places of leaves among all for leaves.
    """

    parts: tuple[Rows, ...]
    structure: Any


def open_data(data: Any, how: How) -> Opened:
    """What `memfit.stream` takes, generators aside."""
    if _are_paths(data):
        paths, kind = _paths(data), _kind(_paths(data), how)
        if kind in TABLES:
            return _open_table(paths, kind, how)
    if any(each is not None for each in (how.columns, how.labels, how.weights)):
        raise UsageError(
            "columns=, labels= and weights= choose from one table, a .csv, .parquet or .npz file. For files "
            "of their own, pass them side by side: memfit.stream((x, y))."
        )
    parts: list[Rows] = []
    structure = _open(data, how, parts)
    return Opened(parts=tuple(parts), structure=structure)


def _open(data: Any, how: How, parts: list[Rows]) -> Any:
    """Appends rows, and returns the structure with their places."""
    if isinstance(data, tuple) and not _are_paths(data):
        return tuple(_open(each, how, parts) for each in data)
    if isinstance(data, Mapping):
        return {name: _open(each, how, parts) for name, each in data.items()}
    place = sum(len(part.leaves) for part in parts)
    parts.append(_open_files(data, how) if _are_paths(data) else _open_array(data, f"array {len(parts)}"))
    return place


def _open_array(data: Any, name: str) -> Rows:
    if not isinstance(data, (np.ndarray, list)):
        raise UsageError(
            f"memfit.stream takes files, arrays, or a function that makes a generator. Received: "
            f"{type(data).__name__}."
        )
    array = np.asanyarray(data)
    return mapped_rows(array, name) or ArrayRows(array, name)


def _open_files(data: Any, how: How) -> Rows:
    paths = _paths(data)
    kind = _kind(paths, how)
    if kind == "npz":
        if any(len(npz_names(path)) != 1 for path in paths):
            raise UsageError(
                f"{paths[0]} beside other data must hold a single array. Pass the .npz file alone, with "
                'columns="x", labels="y".'
            )
        return _joined([open_npz(path, npz_names(path))[0] for path in paths])
    if kind in TABLES:
        raise UsageError(
            f"{paths[0]} is a table, which is streamed alone: memfit.stream(file, columns=..., labels=...)."
        )
    if kind == "npy":
        return _joined([open_npy(path) for path in paths])
    reader = TextRows if kind == "text" else RecordRows
    return _joined([reader(path, how.block_bytes) for path in paths])


def _open_table(paths: Sequence[Path], kind: str, how: How) -> Opened:
    names = {"npz": npz_names, "csv": csv_names, "parquet": parquet_names}[kind](paths[0])
    chosen = choose(names, paths[0], columns=how.columns, labels=how.labels, weights=how.weights)
    parts: tuple[Rows, ...]
    if kind == "npz":
        opened = [open_npz(path, _present(chosen, npz_names(path), path)) for path in paths]
        parts = tuple(_joined(list(same)) for same in zip(*opened, strict=True))
    elif kind == "csv":
        first = CsvRows(paths[0], how.block_bytes, chosen.names, how.dtypes or {})
        types = {
            name: "string" if leaf.dtype == object else leaf.dtype.name
            for name, leaf in zip(chosen.names, first.leaves, strict=True)
        }
        others = [CsvRows(path, how.block_bytes, chosen.names, types) for path in paths[1:]]
        parts = (_joined([first, *others]),)
    else:
        parts = (_joined([ParquetRows(path, chosen.names) for path in paths]),)
    return Opened(parts=parts, structure=_structure(chosen))


def _present(chosen: Chosen, available: Sequence[str], path: Path) -> list[str]:
    choose(available, path, columns=chosen.names, labels=None, weights=None)
    return chosen.names


def _structure(chosen: Chosen) -> Any:
    places = {name: place for place, name in enumerate(chosen.names)}

    def of(names: str | tuple[str, ...]) -> Any:
        return places[names] if isinstance(names, str) else {name: places[name] for name in names}

    parts = (chosen.x, *(part for part in (chosen.y, chosen.weights) if part is not None))
    if chosen.weights is not None and chosen.y is None:
        raise UsageError("weights= was given without labels=. Pass labels=, too.")
    return tuple(of(part) for part in parts) if len(parts) > 1 else of(chosen.x)


def _joined(parts: Sequence[Rows]) -> Rows:
    full = [part for part in parts if part.num_rows] or list(parts[:1])
    return full[0] if len(full) == 1 else JoinedRows(full)


def _are_paths(data: Any) -> bool:
    if isinstance(data, (str, Path)):
        return True
    return isinstance(data, list) and bool(data) and all(isinstance(each, (str, Path)) for each in data)


def _paths(data: Any) -> list[Path]:
    found: list[Path] = []
    for name in data if isinstance(data, list) else [data]:
        path = Path(name)
        names = [path] if path.is_file() else sorted(_matching(path))
        if not names:
            raise UsageError(f"there is no file {name}. Pass a file, a list of files, or a pattern.")
        found += names
    return found


def _matching(path: Path) -> list[Path]:
    """The files that a pattern means."""
    folder = Path(path.anchor)
    return [each for each in folder.glob(str(path.relative_to(folder))) if each.is_file()]


def _kind(paths: Sequence[Path], how: How) -> str:
    kinds = {how.kind or ENDINGS.get(path.suffix.lower(), "") for path in paths}
    unknown = next((path for path in paths if path.suffix.lower() not in ENDINGS), paths[0])
    choices = ", ".join(dict.fromkeys(ENDINGS.values()))
    if not kinds <= set(ENDINGS.values()):
        raise UsageError(
            f"what {unknown} holds cannot be told by its ending {unknown.suffix!r}"
            + (f" and kind={how.kind!r}" if how.kind else "")
            + f". Pass kind=, one of: {choices}."
        )
    if len(kinds) > 1:
        raise UsageError(f"files of several kinds cannot be read as one: {', '.join(sorted(kinds))}.")
    return kinds.pop()
