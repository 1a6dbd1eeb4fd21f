"""Checkpoints in a folder: written whole or not at all, the last two good ones kept.

A checkpoint is one zip file: `state.json`, and the bytes of each array, all with checksums. One file can be
renamed in one go, which several (Keras's weights, TensorFlow's checkpoints) cannot, and it can hold what
neither has a place for. What the state means is left to `resuming_tf`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memfit.errors import ResumeError

Arrays = Callable[[], Iterable[tuple[str, memoryview]]]

STATE: Final = "state.json"
FINAL: Final = "final.zip"
NUM_KEPT: Final = 2
_PATTERN: Final = "checkpoint-*.zip"
_BROKEN: Final = (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, NotImplementedError)


class BrokenFileError(Exception):
    """A checkpoint file that is not whole; the message says in what way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A checkpoint file that was read to its end and found whole.

    Attributes:
        path: The file.
        state: What `state.json` says.
    """

    path: Path
    state: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Stored:
        """The checkpoint at `path`, or a `BrokenFileError`."""
        try:
            with zipfile.ZipFile(path) as archive:
                state = json.loads(archive.read(STATE))
                damaged = archive.testzip()
        except _BROKEN as fault:
            raise BrokenFileError(f"{path.name} cannot be read: {fault}") from None
        if damaged is not None:
            raise BrokenFileError(f"{path.name} is damaged in {damaged}")
        return cls(path=path, state=state)

    @contextmanager
    def arrays(self) -> Iterator[Callable[[str], bytes]]:
        """A function from the name of an array to its bytes, one array in memory at a time."""
        with zipfile.ZipFile(self.path) as archive:
            yield archive.read


class Store:
    """The folder of one run, locked while it is open.

    Args:
        folder: Made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        except OSError as fault:
            raise ResumeError(
                f"cannot keep checkpoints in {folder}: {fault.strerror}. Pass a folder that can be written "
                "in resume=."
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ResumeError(
                f"another process is training in {folder}. End it first, or pass another folder in resume=."
            ) from None
        for leftover in folder.glob(".*.part"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets another process have the folder."""
        self._lock.close()

    def newest(self, say: Callable[[str], None]) -> Stored | None:
        """The newest checkpoint that is whole, or `None` in a new folder.

        Args:
            say: Told of each file that is not whole.

        Raises:
            ResumeError: If there are checkpoints and none is whole.
        """
        paths = self._checkpoints()
        for path in reversed(paths):
            try:
                return Stored.read(path)
            except BrokenFileError as fault:
                say(str(fault))
        if paths:
            raise ResumeError(
                f"none of the {len(paths)} checkpoints in {self.folder} is whole. Remove the folder to begin "
                f"anew: rm -r {self.folder}"
            )
        return None

    def final(self) -> Stored | None:
        """The end of a run that is complete, or `None`."""
        try:
            return Stored.read(self.folder / FINAL)
        except BrokenFileError:
            return None

    def write(self, state: dict[str, Any], arrays: Arrays) -> Path:
        """Writes the next checkpoint; removes the oldest once the new one is on disk.

        On a full disk, the older of the two that are kept makes room.

        Raises:
            OSError: If it cannot be written. The checkpoints before it are untouched.
        """
        paths = self._checkpoints()
        number = int(paths[-1].stem.split("-")[1]) + 1 if paths else 0
        target = self.folder / f"checkpoint-{number:08d}.zip"
        try:
            _write(target, state, arrays)
        except OSError as fault:
            if fault.errno not in (errno.ENOSPC, errno.EDQUOT) or len(paths) < NUM_KEPT:
                raise
            _remove(paths[:-1])
            _write(target, state, arrays)
        _remove(self._checkpoints()[:-NUM_KEPT])
        return target

    def write_final(self, state: dict[str, Any], arrays: Arrays) -> Path:
        """Writes what the model is at the end of the run."""
        _write(self.folder / FINAL, state, arrays)
        return self.folder / FINAL

    def _checkpoints(self) -> list[Path]:
        return sorted(self.folder.glob(_PATTERN))


def _write(target: Path, state: dict[str, Any], arrays: Arrays) -> None:
    scratch = target.with_name(f".{target.name}.part")
    try:
        with scratch.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, values in arrays():
                    with archive.open(name, "w", force_zip64=True) as member:
                        member.write(values)
                archive.writestr(STATE, json.dumps(state))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(target)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name, too, must be on disk before an old file goes
    finally:
        os.close(handle)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
