"""Arrays in `.npy` and `.npz` files, and those that are mapped into memory already: where their rows lie."""

from __future__ import annotations

import mmap
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from memfit.errors import UsageError
from memfit.streaming.rows_tf import Array, FileRows

# Of a file inside a zip file: a header of 30 bytes, whose last four say how long name and extra field are.
_LOCAL_HEADER: Final = 30


def open_npy(path: Path) -> FileRows:
    """The rows of an `.npy` file.

    Raises:
        UsageError: If it is broken, or its rows are not next to each other.
    """
    with path.open("rb") as file:
        return _rows(path, file, str(path))


def open_npz(path: Path, columns: list[str]) -> list[FileRows]:
    """The rows of arrays in an `.npz` file that `np.savez` wrote."""
    with _archive(path) as archive, path.open("rb") as file:
        return [_member(path, file, archive, name) for name in columns]


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an `.npz` file."""
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def mapped_rows(array: Array, name: str) -> FileRows | None:
    """The rows of an array that is mapped from a file; `None` if it is not, or not row by row."""
    root: Any = array
    while isinstance(root, np.ndarray):
        owner, root = root, root.base
    is_shared = isinstance(array, np.memmap) and array.mode != "c" and array.filename is not None
    if not is_shared or not isinstance(root, mmap.mmap) or not array.flags.c_contiguous or not array.size:
        return None
    assert isinstance(array, np.memmap)
    first = np.frombuffer(root, np.uint8).__array_interface__["data"][0]
    # A map begins at a whole page, before the offset that was asked for.
    begin = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY  # type: ignore[attr-defined]
    offset = begin + array.__array_interface__["data"][0] - first
    return FileRows(Path(str(array.filename)), offset, array.shape, array.dtype, name)


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as fault:
        raise UsageError(
            f"{path} cannot be read as .npz: {fault}. It may end in the middle: write it again with np.savez."
        ) from None


def _member(path: Path, file: BinaryIO, archive: zipfile.ZipFile, name: str) -> FileRows:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise UsageError(
            f"{name!r} in {path} is compressed, so a row in its middle cannot be read without all before it. "
            "Write it with np.savez instead of np.savez_compressed, or save each array with np.save."
        )
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    return _rows(path, file, f"{name!r} in {path}")


def _rows(path: Path, file: BinaryIO, name: str) -> FileRows:
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, is_fortran, dtype = read(file)
    except (ValueError, EOFError) as fault:
        raise UsageError(
            f"{name} cannot be read: {fault}. The file may end in the middle of its header, or not be .npy."
        ) from None
    if is_fortran and len(shape) > 1:
        raise UsageError(
            f"{name} was saved column by column (Fortran order), so no row lies in one piece. Save "
            "np.ascontiguousarray(array)."
        )
    return FileRows(path, file.tell(), shape, dtype, name)
