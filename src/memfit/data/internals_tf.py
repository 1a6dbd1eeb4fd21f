"""The private names of TensorFlow and Keras that are used here: how sets and models are made of others."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def all_layers(model: Any) -> list[Any]:
    """All layers of a model, those inside of others included."""
    return list(model._flatten_layers())


def is_batched(dataset: tf.data.Dataset) -> bool:
    """Whether the elements of a set are batches.

    A set says nothing of it, so the way it was made is followed back; where that ends without an answer, an
    open second axis is taken for that of steps.
    """
    found = _made_by_batching(dataset)
    if found is not None:
        return found
    spec = dataset.element_spec
    leaves = tf.nest.flatten(spec[0] if isinstance(spec, tuple) else spec)
    return any(_has_open_steps(leaf.shape) for leaf in leaves)


def _made_by_batching(dataset: Any) -> bool | None:
    name = type(dataset).__name__
    if "Unbatch" in name:
        return False
    if "Batch" in name or "GroupByWindow" in name:
        return True
    found = {_made_by_batching(source) for source in dataset._inputs()}
    return True if True in found else False if False in found else None


def _has_open_steps(shape: tf.TensorShape) -> bool:
    return shape.rank is not None and shape.rank > 1 and shape[1] is None
