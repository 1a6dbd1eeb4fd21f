"""What sequences, labels and weights are made of: values a step, or one a sequence; and how to read them.

Lists, ragged tensors and arrays come in, one form comes out. What fits together is left to `sequences_tf`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from memfit.errors import UsageError

Numbers = npt.NDArray[np.int64]
INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A feature, label or weight with a value a step.

    Attributes:
        values: The steps of all sequences, `[steps, ...]`.
        starts: Where each sequence begins in them.
        lengths: Steps of each sequence.
        width: The steps that all are padded to in `values`, or `None` if they are not.
    """

    values: Any
    starts: Numbers
    lengths: Numbers
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A feature, label or weight with one value a sequence.

    Attributes:
        values: `[sequences, ...]`.
    """

    values: Any


Leaf = Steps | Rows


def leaves(part: Any) -> list[Any]:
    """The leaves of dicts and tuples, in order. A list is a leaf: it holds sequences."""
    found: list[Any] = []
    mapped(found.append, part)
    return found


def mapped(function: Callable[[Any], Any], part: Any) -> Any:
    """The same dicts and tuples with `function` applied to every leaf."""
    if isinstance(part, dict):
        return {name: mapped(function, part[name]) for name in part}
    if isinstance(part, tuple):
        return tuple(mapped(function, each) for each in part)
    return function(part)


def num_of(leaf: Leaf) -> int:
    """Samples of a leaf."""
    return len(leaf.lengths) if isinstance(leaf, Steps) else int(leaf.values.shape[0])


def as_leaf(value: Any) -> Leaf:
    """A feature, label or weight in one form: lists and ragged tensors have steps, arrays may have.

    Raises:
        UsageError: If it is none of these, or a sample in it is not a sequence: with its index.
    """
    if isinstance(value, tf.RaggedTensor):
        if value.ragged_rank != 1:
            raise UsageError(
                f"a ragged tensor may be ragged over its steps alone. Received: "
                f"ragged_rank={value.ragged_rank}. Make the others even: value.to_tensor()."
            )
        splits = value.row_splits.numpy().astype(np.int64)
        return Steps(values=value.values, starts=splits[:-1], lengths=np.diff(splits))
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = list(value)
    if isinstance(value, list):
        return _from_list(value)
    if not isinstance(value, (np.ndarray, tf.Tensor)) or not len(value.shape):
        raise UsageError(
            f"a feature or label is a list, an array, a tensor or a tf.RaggedTensor. Received: {value!r:.60} "
            f"(a {type(value).__name__})."
        )
    is_double = isinstance(value, np.ndarray) and value.dtype == np.float64
    return Rows(values=_array(value) if is_double else value)


def _from_list(items: Sequence[Any]) -> Leaf:
    if not items:
        raise UsageError("there are no sequences: a list is empty. Pass at least one.")
    if not isinstance(items[0], (list, tuple, np.ndarray, tf.Tensor)):
        return Rows(values=_array(_checked_scalars(items)))
    arrays = [_item(item, index) for index, item in enumerate(items)]
    tail = next((array.shape[1:] for array in arrays if array.size), arrays[0].shape[1:])
    for index, array in enumerate(arrays):
        if not array.size:
            arrays[index] = np.zeros((0, *tail), _kind(arrays))
        elif array.shape[1:] != tail:
            raise UsageError(
                f"sample {index} has steps of the shape {array.shape[1:]}, but those before have {tail}. "
                "All steps must have the same shape."
            )
    lengths: Numbers = np.array([len(array) for array in arrays], np.int64)
    values = _array(np.concatenate(arrays))
    return Steps(values=values, starts=np.cumsum(lengths) - lengths, lengths=lengths)


def _item(item: Any, index: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(item)
    except ValueError:  # Lists of different lengths within a sample.
        array = np.asarray(None)
    if not array.ndim or array.dtype == object:
        raise UsageError(
            f"sample {index} is not a sequence of steps of one shape. Received: {item!r:.60}. Mend it, or "
            "leave it out."
        )
    return array


def _kind(arrays: Sequence[npt.NDArray[Any]]) -> Any:
    return next((array.dtype for array in arrays if array.size), arrays[0].dtype)


def _checked_scalars(items: Sequence[Any]) -> npt.NDArray[Any]:
    for index, item in enumerate(items):
        if isinstance(item, (list, tuple, np.ndarray)) or item is None:
            raise UsageError(
                f"sample {index} is {item!r:.60}, but those before are single values. Pass either everywhere."
            )
    return np.asarray(items)


def _array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """As Keras takes it: its own float type, and small whole numbers in 4 bytes."""
    if array.dtype == np.float64:
        return array.astype(keras.config.floatx())
    if array.dtype == np.int64 and (not array.size or INT32.min <= array.min() <= array.max() <= INT32.max):
        return array.astype(np.int32)
    return array


def width_of(leaf: Leaf) -> int | None:
    """The second axis of an array, or `None` if there is none."""
    return int(leaf.values.shape[1]) if isinstance(leaf, Rows) and len(leaf.values.shape) > 1 else None


def as_steps(leaf: Leaf) -> Steps:
    """An array `[sequences, steps, ...]` as steps, none of them left out."""
    num, width, *tail = (int(size) for size in leaf.values.shape)
    is_tensor = isinstance(leaf.values, tf.Tensor)
    values = tf.reshape(leaf.values, [-1, *tail]) if is_tensor else leaf.values.reshape(-1, *tail)
    starts: Numbers = np.arange(num, dtype=np.int64) * width
    return Steps(values=values, starts=starts, lengths=np.full(num, width, np.int64), width=width)


def as_even(leaf: Leaf) -> Leaf:
    """A list of lists of one length is an array: a one-hot label, for example, has no steps."""
    if isinstance(leaf, Rows) or leaf.lengths.min() != leaf.lengths.max():
        return leaf
    return Rows(values=leaf.values.reshape(len(leaf.lengths), -1, *leaf.values.shape[1:]))
