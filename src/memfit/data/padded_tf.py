"""One batch: sequences, labels and weights gathered and padded to one length, inside of `tf.data`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from memfit.data.leaves_tf import Rows, Steps, leaves, mapped
from memfit.data.sequences_tf import Sequences, padding_values
from memfit.errors import UsageError


def with_weights(found: Sequences, *, is_weighed: bool) -> tuple[Any, ...]:
    """`(x, y, weights)` with weights a step wherever labels have steps, so that padding weighs nothing.

    Args:
        found: Sequences, of which those without labels stay as they are.
        is_weighed: Whether there are weights where neither the labels nor the user ask for them.
    """
    if len(found.parts) == 1:
        return found.parts
    x, y, *given = found.parts
    has_steps = any(isinstance(leaf, Steps) for leaf in leaves(y))
    if not given:
        return (x, y, mapped(_ones, y)) if has_steps or is_weighed else (x, y)
    if not has_steps:
        return found.parts
    if len(leaves(y)) != len(leaves(given[0])):
        raise UsageError(
            f"there are {len(leaves(given[0]))} weights for {len(leaves(y))} labels. Pass one for each label."
        )
    weights = iter(leaves(given[0]))
    return x, y, mapped(lambda label: _spread(next(weights), label), y)


def as_tensors(parts: tuple[Any, ...], padding_value: Any) -> tuple[Any, ...]:
    """Leaves as dicts of tensors that `tf.data` can carry."""
    values = iter(padding_values(parts[0], padding_value))
    x = mapped(lambda leaf: _tensors(leaf, next(values)), parts[0])
    return x, *(beside_tensors(part) for part in parts[1:])


def beside_tensors(part: Any) -> Any:
    """The same for labels and what else is beside inputs: it is padded with zeros."""
    return mapped(lambda leaf: _tensors(leaf, 0.0), part)


def make_batch(tensors: Any, indices: tf.Tensor, length: tf.Tensor, most_steps: int | None) -> Any:
    """The batch of the sequences at `indices`, padded to `length`."""
    if isinstance(tensors, dict) and _MARK in tensors:
        return _padded(tensors, indices, length, most_steps)
    if isinstance(tensors, dict):
        return {name: make_batch(each, indices, length, most_steps) for name, each in tensors.items()}
    return tuple(make_batch(each, indices, length, most_steps) for each in tensors)


# No name of a feature: features are named by people.
_MARK = "memfit values"


def _padded(leaf: dict[str, tf.Tensor], indices: tf.Tensor, length: tf.Tensor, most_steps: int | None) -> Any:
    if "starts" not in leaf:
        return tf.gather(leaf[_MARK], indices)
    lengths = tf.gather(leaf["lengths"], indices)
    if most_steps is not None:
        lengths = tf.minimum(lengths, most_steps)
    places = tf.range(length)[tf.newaxis, :]
    is_real = places < lengths[:, tf.newaxis]
    where = tf.where(is_real, tf.gather(leaf["starts"], indices)[:, tf.newaxis] + places, 0)
    values = tf.gather(leaf[_MARK], where)
    mask = tf.reshape(is_real, tf.concat([tf.shape(is_real), tf.ones([values.shape.rank - 2], tf.int32)], 0))
    return tf.where(mask, values, leaf["padding"])


def _tensors(leaf: Steps | Rows, padding_value: float) -> dict[str, Any]:
    values = tf.convert_to_tensor(leaf.values)
    if isinstance(leaf, Rows):
        return {_MARK: values}
    if not len(leaf.values):  # All are empty, but something must be gathered.
        values = tf.zeros([1, *values.shape[1:]], values.dtype)
    return {
        _MARK: values,
        "starts": tf.constant(leaf.starts, tf.int64),
        "lengths": tf.constant(leaf.lengths, tf.int64),
        "padding": _padding(values.dtype, padding_value),
    }


def _padding(dtype: tf.DType, value: float) -> tf.Tensor:
    if dtype == tf.string:
        return tf.constant("")
    if dtype.is_integer and value != int(value):
        raise UsageError(f"a whole-numbered feature cannot be padded with {value}. Pass padding_value=0.")
    return tf.cast(value, dtype)


def _ones(label: Steps | Rows) -> Steps | Rows:
    if isinstance(label, Rows):
        return Rows(values=np.ones(int(label.values.shape[0]), np.float32))
    return _spread(Rows(values=np.ones(len(label.lengths), np.float32)), label)


def _spread(weight: Steps | Rows, label: Steps | Rows) -> Steps | Rows:
    """A weight a sequence as one a step, where its label has steps."""
    if isinstance(weight, Steps) or isinstance(label, Rows):
        return weight
    values = np.repeat(
        np.asarray(weight.values).astype(np.float32).reshape(len(label.lengths)), label.lengths
    )
    return Steps(values=values, starts=np.cumsum(label.lengths) - label.lengths, lengths=label.lengths)
