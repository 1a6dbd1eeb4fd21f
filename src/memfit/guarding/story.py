"""The story of a script, a line a moment, in a file that survives the process. Pure but for the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from memfit.errors import RecordError
from memfit.records import Moment

STORY_NAME: Final = "companion-story.jsonl"
INVENTORY_NAME: Final = "companion-inventory.json"
MOST_BYTES: Final = 4 * 2**20  # A script that calls `predict` for days must not fill the disk.


class StoryFile:
    """Appends moments to a file, each in one system call."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = folder / STORY_NAME
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._num_bytes = 0
        self._most_bytes = most_bytes

    def tell(self, moment: Moment) -> None:
        """Writes a moment down; beyond some megabytes, every second line is left out."""
        line = json.dumps(moment.to_dict()).encode() + b"\n"
        if self._num_bytes + len(line) > self._most_bytes:
            kept = b"".join(self._path.read_bytes().splitlines(keepends=True)[::2])
            os.ftruncate(self._file, 0)
            self._num_bytes = os.write(self._file, kept)
        self._num_bytes += os.write(self._file, line)


def read_story(text: str) -> list[Moment]:
    """The moments in a file; a last line that was cut off is left out."""
    moments = []
    for line in text.splitlines():
        try:
            moments.append(Moment.from_json(line))
        except RecordError:
            continue
    return moments
