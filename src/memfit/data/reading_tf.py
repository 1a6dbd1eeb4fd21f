"""Lengths from arrays, ragged tensors and `tf.data` sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from memfit.data.found import Found, check_length
from memfit.data.internals_tf import is_batched
from memfit.data.sequences_tf import read_sequences
from memfit.errors import UsageError
from memfit.records import Padding

# A set may have no end, so reading it needs one.
MOST_ELEMENTS: Final = 100_000


def read_lengths(data: Any, *, limit: int | None, padding_value: float | None) -> Found:
    """The lengths of what `memfit.lengths` takes, beside files and plain lists."""
    if isinstance(data, tf.data.Dataset):
        return _read_set(data, limit or MOST_ELEMENTS, padding_value)
    x = data[0] if isinstance(data, tuple) else data
    if isinstance(x, list) and x and isinstance(x[0], np.number):
        x = np.asarray(x)
    if isinstance(x, (np.ndarray, tf.Tensor)) and len(x.shape) == 1 and x.dtype != object:
        numbers = np.asarray(x)
        _check_numbers(numbers)
        counts = _counted(numbers)
        return Found(counts=counts, source=f"{len(numbers):,} lengths", step_bytes=4)
    found = read_sequences(x if not isinstance(x, tuple) else (x,), padding_value=padding_value)
    is_padded = isinstance(x, (np.ndarray, tf.Tensor)) and x.dtype != object
    return Found(
        counts=_counted(found.lengths),
        source=f"{len(found.lengths):,} sequences",
        step_bytes=found.step_bytes,
        padded_length=int(x.shape[1]) if is_padded else None,
    )


def read_npy(path: Path, *, limit: int | None, padding_value: float | None) -> Found:
    """The lengths in an `.npy` file: a padded array, of which the first `limit` sequences are read."""
    try:
        array = np.load(path, mmap_mode="r")
    except (ValueError, OSError, EOFError) as fault:
        raise UsageError(
            f"{path} cannot be read: {fault}. The file may end in the middle of a record, or not be .npy."
        ) from None
    part = array[:limit]
    found = read_lengths(np.asarray(part), limit=None, padding_value=padding_value)
    return Found(
        counts=found.counts,
        source=str(path),
        step_bytes=found.step_bytes,
        is_sample=len(part) < len(array),
        padded_length=found.padded_length,
    )


def _counted(lengths: Any) -> dict[int, int]:
    values, counts = np.unique(lengths, return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}


def _check_numbers(numbers: Any) -> None:
    with np.errstate(invalid="ignore"):
        is_good = (numbers >= 0) & (numbers == np.floor(numbers)) & np.isfinite(numbers)
    if not is_good.all():
        index = int(np.argmin(is_good))
        check_length(numbers[index], f"sample {index}")


def _read_set(dataset: tf.data.Dataset, limit: int, padding_value: float | None) -> Found:
    counts: Counter[int] = Counter()
    num_elements = num_steps = step_bytes = 0
    is_sample = False
    has_batches = is_batched(dataset)
    for element in dataset:
        if num_elements == limit:
            is_sample = True
            break
        num_elements += 1
        x = element[0] if isinstance(element, tuple) else element
        if has_batches:
            found = read_sequences((x,), padding_value=padding_value)
            counts.update(_counted(found.lengths))
            num_steps += _padded_steps(x, found.lengths)
            step_bytes = found.step_bytes
        else:
            sequences = [leaf for leaf in tf.nest.flatten(x) if leaf.shape.rank]
            if not sequences:
                raise UsageError(
                    f"element {num_elements - 1} of the tf.data set has no steps: it is a single value. "
                    "Turn text into numbers first."
                )
            counts[max(int(leaf.shape[0]) for leaf in sequences)] += 1
            step_bytes = step_bytes or sum(
                leaf.dtype.size * int(np.prod(leaf.shape[1:])) for leaf in sequences
            )
    if not num_elements:
        raise UsageError("the tf.data set is empty. Pass one with at least one element.")
    own = (Padding(how="batches as they come", num_steps=num_steps),) if has_batches else ()
    return Found(
        counts=counts, source="a tf.data set", step_bytes=step_bytes, is_sample=is_sample, paddings=own
    )


def _padded_steps(x: Any, lengths: Any) -> int:
    """Steps of a batch as it comes; a ragged one is taken as padded to its longest."""
    widths = [
        leaf.shape[1] for leaf in tf.nest.flatten(x) if isinstance(leaf, tf.Tensor) and leaf.shape.rank > 1
    ]
    return len(lengths) * int(max(widths, default=lengths.max()))
