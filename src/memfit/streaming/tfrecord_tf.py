"""Records of TFRecord files: one pass over their lengths, not their content, finds where each begins."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from memfit.errors import UsageError
from memfit.streaming.internals_tf import read_records
from memfit.streaming.lines_tf import BytesReader

# A record: its length in 8 bytes, their checksum in 4, the content, its checksum in 4.
HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
_GZIP: Final = b"\x1f\x8b"


class RecordRows(BytesReader):
    """Serialized records, whose checksums are verified when they are read."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        super().__init__(path, *_index(path, block_bytes))

    def split(self, block: int) -> list[bytes]:
        """The records of a block."""
        num = self._rows[block + 1] - self._rows[block]
        return read_records(self.path, self._places[block], num, first=self._rows[block])


def _index(path: Path, block_bytes: int) -> tuple[list[int], list[int]]:
    size = path.stat().st_size
    rows, places = [0], [0]
    num = place = 0
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            header = file.read(HEADER_BYTES)
            if len(header) == HEADER_BYTES:
                place += HEADER_BYTES + struct.unpack_from("<Q", header)[0] + FOOTER_BYTES
            if len(header) < HEADER_BYTES or place > size:
                _check_plain(path)
                raise UsageError(
                    f"{path} ends in the middle of record {num:,} (it has {size:,} bytes), or is no TFRecord "
                    "file. Write it again."
                )
            num += 1
            if place - places[-1] >= block_bytes:
                rows.append(num)
                places.append(place)
    if rows[-1] < num:
        rows.append(num)
        places.append(place)
    return rows, places


def _check_plain(path: Path) -> None:
    with path.open("rb") as file:
        is_compressed = file.read(len(_GZIP)) == _GZIP
    if is_compressed:
        raise UsageError(
            f"{path} is compressed, so a record in its middle cannot be read without all before it. Write it "
            "without compression."
        )
