"""The worst batch that a data set shows in a moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

MOST_BATCHES: Final = 200
MOST_SECONDS: Final = 3.0
# Batches with at least this share of the most steps are taken for equally large.
AS_LARGE: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """What the largest batch of a data set is like.

    Attributes:
        length: Its steps; `None` where the data leaves no axis open.
        batch_size: Its examples, where batches differ in them by more than a smaller last one; else `None`.
    """

    length: int | None = None
    batch_size: int | None = None


def worst(data: Any) -> Worst:
    """The worst of the first batches of a `tf.data` set whose second axis is open.

    Where all batches are of one size, that is as many examples of the greatest length. Where long sequences
    come in smaller batches, as `memfit.batch_by_length` makes them, it is the longest of those batches that
    have about the most steps.
    """
    return worst_of(_shapes(data))


def worst_of(shapes: Sequence[tuple[int, int]]) -> Worst:
    """The worst of batches of some examples and steps."""
    if not shapes:
        return Worst()
    sizes = [size for size, _ in shapes]
    if len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]:
        return Worst(length=max(length for _, length in shapes))
    most = max(size * length for size, length in shapes)
    large = [(length, size) for size, length in shapes if size * length >= AS_LARGE * most]
    length, size = max(large)
    return Worst(length=length, batch_size=size)


def _shapes(data: Any) -> Sequence[tuple[int, int]]:
    """Examples and steps of the first batches."""
    if not isinstance(data, tf.data.Dataset):
        return []
    specs = tf.nest.flatten(data.element_spec)
    if not any(_is_open(spec) for spec in specs):
        return []
    found: list[tuple[int, int]] = []
    start = time.monotonic()
    for batch in data.take(MOST_BATCHES):
        leaves = [leaf for spec, leaf in zip(specs, tf.nest.flatten(batch), strict=True) if _is_open(spec)]
        found.append((int(leaves[0].shape[0]), max(map(_width, leaves))))
        if time.monotonic() - start > MOST_SECONDS:
            break
    return found


def _is_open(spec: Any) -> bool:
    if not isinstance(spec, (tf.TensorSpec, tf.RaggedTensorSpec)):
        return False
    return spec.shape.rank is not None and spec.shape.rank > 1 and spec.shape[1] is None


def _width(leaf: Any) -> int:
    return int(leaf.bounding_shape(axis=1) if isinstance(leaf, tf.RaggedTensor) else leaf.shape[1])
