"""Ragged batches as what a model with masks takes: padded, and padding weighs nothing.

A batch is padded to its own longest sequence, inside of `tf.data` where the batches come from. What has steps
is what is ragged; all else has one value a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.data.masking_tf import padding_values_of
from memfit.errors import UsageError

# Sequences that stand for all of them where only shapes and a few values matter.
NUM_SAMPLES: Final = 64


def has_ragged(data: Any) -> bool:
    """Whether there is a ragged tensor in a structure, or in the batches of a `tf.data` set."""
    found = data.element_spec if isinstance(data, tf.data.Dataset) else data
    return any(isinstance(leaf, (tf.RaggedTensor, tf.RaggedTensorSpec)) for leaf in keras.tree.flatten(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Padder:
    """Pads batches for one model.

    Attributes:
        values: What each input is padded with, in the order of `keras.tree.flatten`.
    """

    values: tuple[float, ...]

    def pad(self, *parts: Any) -> Any:
        """A batch `x`, `(x, y)` or `(x, y, weights)` without ragged tensors."""
        x, y, weights = keras.utils.unpack_x_y_sample_weight(parts)
        _assert_lengths(x, y, weights)
        if y is not None and has_ragged(y):
            weights = _step_weights(y, weights)
        inputs = zip(keras.tree.flatten(x), self.values, strict=True)
        features = keras.tree.pack_sequence_as(x, [_padded(leaf, value) for leaf, value in inputs])
        return keras.utils.pack_x_y_sample_weight(features, _zero_padded(y), _zero_padded(weights))

    def pad_set(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """A set of batches without ragged tensors, as long as before."""
        return dataset.map(self.pad, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def padder_for(model: Any, x: Any, y: Any = None, weights: Any = None, *, is_quiet: bool = False) -> Padder:
    """How the batches of some data are padded for a model; `x` and so on may be specs.

    Raises:
        UsageError: If it cannot be done, with the reason.
    """
    labels = [leaf for leaf in keras.tree.flatten(y) if _is_ragged(leaf)]
    ragged_weights = [leaf for leaf in keras.tree.flatten(weights) if _is_ragged(leaf)]
    if (labels or ragged_weights) and not has_ragged(x):
        raise UsageError(
            "labels or weights are ragged, but no input is, so nobody knows how long a sequence is. Pass x "
            "as a tf.RaggedTensor, too, or labels.to_tensor() and weights that are 0 on padding."
        )
    if ragged_weights and not labels:
        raise UsageError(
            "the weights are ragged, but the labels are not: they have one value a sequence. Pass one weight "
            "a sequence, or labels a step as a tf.RaggedTensor."
        )
    for leaf in (*labels, *ragged_weights):
        if leaf.ragged_rank != 1:
            raise UsageError(
                f"labels and weights may be ragged over their steps alone. Received: ragged_rank="
                f"{leaf.ragged_rank}. Make the other axes even: value.to_tensor()."
            )
    return Padder(values=tuple(padding_values_of(model, x, is_quiet=is_quiet)))


def check_lengths(x: Any, y: Any, weights: Any) -> None:
    """Raises a `UsageError` with the index of the first sample whose labels are not as long as an input."""
    inputs = [leaf.row_lengths() for leaf in keras.tree.flatten(x) if _is_ragged(leaf)]
    for name, part in (("the label", y), ("the weight", weights)):
        for leaf in filter(_is_ragged, keras.tree.flatten(part)):
            own = leaf.row_lengths()
            if own.shape != inputs[0].shape:
                continue  # Keras says so.
            fits = tf.reduce_any([tf.equal(own, each) for each in inputs], axis=0)
            if not bool(tf.reduce_all(fits)):
                index = int(tf.argmin(tf.cast(fits, tf.int32)))
                raise UsageError(
                    f"{name} of sample {index} has {int(own[index])} steps, but its input has "
                    f"{' or '.join(str(int(each[index])) for each in inputs)}. Make them equal."
                )


def longest_of(data: Any) -> int:
    """The most steps of a ragged tensor in a structure."""
    ragged = [leaf for leaf in keras.tree.flatten(data) if _is_ragged(leaf)]
    return max(int(leaf.bounding_shape(axis=1)) for leaf in ragged)


def padded_sample(model: Any, data: Any) -> Any:
    """Data for looking at in place of ragged data: a set of padded batches, or a few sequences of arrays.

    These are padded to the longest of all, since that is what the largest batch is like.
    """
    if not has_ragged(data):
        return data
    if isinstance(data, tf.data.Dataset):
        parts = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        return padder_for(model, *parts, is_quiet=True).pad_set(data)
    parts = keras.utils.unpack_x_y_sample_weight(data)
    return sample_of(padder_for(model, *parts, is_quiet=True), *parts)


def sample_of(padder: Padder, x: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """The first sequences of ragged data, padded to the longest of all."""
    longest = longest_of(x)
    some = keras.tree.map_structure(
        lambda leaf: None if leaf is None else leaf[:NUM_SAMPLES], (x, y, weights), none_is_leaf=True
    )
    padded = keras.utils.unpack_x_y_sample_weight(padder.pad(*(part for part in some if part is not None)))
    # Weights of labels with steps have steps, too.
    had_steps = (x, y, y if has_ragged(y) else padded[2])
    return tuple(
        keras.tree.map_structure(
            lambda leaf, was: _widened(leaf, longest) if _is_ragged(was) else leaf, *pair
        )
        for pair in zip(padded, had_steps, strict=True)
        if pair[0] is not None
    )


def _widened(leaf: tf.Tensor, width: int) -> tf.Tensor:
    """A padded tensor with its steps repeated up to another width."""
    return tf.gather(leaf, tf.range(width) % tf.shape(leaf)[1], axis=1)


def _is_ragged(leaf: Any) -> bool:
    return isinstance(leaf, (tf.RaggedTensor, tf.RaggedTensorSpec))


def _zero_padded(part: Any) -> Any:
    return None if part is None else keras.tree.map_structure(lambda leaf: _padded(leaf, 0.0), part)


def _padded(leaf: Any, value: float) -> Any:
    if not isinstance(leaf, tf.RaggedTensor):
        return leaf
    if leaf.dtype.is_integer and value != int(value):
        raise UsageError(
            f"the model masks {value}, with which a whole-numbered input cannot be padded. Pass it as "
            "floats: tf.cast(x, tf.float32)."
        )
    default = tf.constant("") if leaf.dtype == tf.string else tf.cast(value, leaf.dtype)
    dense = leaf.to_tensor(default)
    # A batch of empty sequences has one step of padding: no model runs over none.
    missing = tf.maximum(0, 1 - tf.shape(dense)[1])
    rest = [[0, 0]] * (dense.shape.rank - 2)
    found = tf.pad(dense, [[0, 0], [0, missing], *rest], constant_values=default)
    found.set_shape([dense.shape[0], None, *dense.shape[2:]])
    return found


def _step_weights(y: Any, weights: Any) -> Any:
    """A weight for each label: where labels have steps, one a step that is 0 on padding."""
    if weights is None:
        return keras.tree.map_structure(_ones, y)
    if not keras.tree.is_nested(weights):
        return keras.tree.map_structure(lambda label: _spread(weights, label), y)
    return keras.tree.map_structure(lambda label, weight: _spread(weight, label), y, weights)


def _ones(label: Any) -> Any:
    if not isinstance(label, tf.RaggedTensor):
        return tf.ones(tf.shape(label)[:1], keras.config.floatx())
    return label.with_values(tf.ones(tf.shape(label.values)[:1], keras.config.floatx()))


def _spread(weight: Any, label: Any) -> Any:
    """A weight a sequence as one a step, where its label has steps."""
    if isinstance(weight, tf.RaggedTensor) or not isinstance(label, tf.RaggedTensor):
        return weight
    a_sequence = tf.reshape(tf.convert_to_tensor(weight), [-1])
    return label.with_values(tf.repeat(a_sequence, label.row_lengths()))


def _assert_lengths(x: Any, y: Any, weights: Any) -> None:
    """Fails where a label or weight of a batch has another length than all its inputs."""
    inputs = [leaf.row_lengths() for leaf in keras.tree.flatten(x) if isinstance(leaf, tf.RaggedTensor)]
    for leaf in keras.tree.flatten((y, weights)):
        if isinstance(leaf, tf.RaggedTensor):
            own = leaf.row_lengths()
            fits = tf.reduce_any([tf.equal(own, each) for each in inputs], axis=0)
            said = [
                "memfit: labels or weights of a batch have these steps:",
                own,
                "but its inputs",
                inputs[0],
            ]
            tf.debugging.Assert(tf.reduce_all(fits), said, summarize=32)
