"""The longest batch that a data set shows in a moment."""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf

MOST_BATCHES: Final = 200
MOST_SECONDS: Final = 3.0


def longest(data: Any) -> int | None:
    """The greatest second axis among the first batches of a `tf.data` set that leaves it open, or `None`."""
    if not isinstance(data, tf.data.Dataset):
        return None
    specs = tf.nest.flatten(data.element_spec)
    if not any(isinstance(spec, tf.TensorSpec) and _is_open(spec.shape) for spec in specs):
        return None
    found, start = 0, time.monotonic()
    for batch in data.take(MOST_BATCHES):
        leaves = zip(specs, tf.nest.flatten(batch), strict=True)
        found = max([found, *(int(leaf.shape[1]) for spec, leaf in leaves if _is_open(spec.shape))])
        if time.monotonic() - start > MOST_SECONDS:
            break
    return found or None


def _is_open(shape: tf.TensorShape) -> bool:
    return shape.rank is not None and shape.rank > 1 and shape[1] is None
