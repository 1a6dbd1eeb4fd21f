"""The private names of TensorFlow that streaming leans on: the reader of single records."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from tensorflow.python.lib.io import tf_record

from memfit.errors import UsageError


def read_records(path: Path, place: int, num: int, *, first: int) -> list[bytes]:
    """So many records of a TFRecord file from a byte on, checksums verified.

    Args:
        path: The file.
        place: Where the first of them begins.
        num: How many.
        first: The index of the first of them, for errors.
    """
    reader = tf_record.tf_record_random_reader(str(path))
    found: list[bytes] = []
    try:
        for _ in range(num):
            record, place = reader.read(place)
            found.append(record)
    except (IndexError, tf.errors.DataLossError) as fault:
        raise UsageError(
            f"record {first + len(found):,} of {path} is broken: {fault}. Write the file again."
        ) from None
    finally:
        reader.close()
    return found
