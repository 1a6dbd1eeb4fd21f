"""Examples of a batch: how many there are, and some of them. A batch is any structure of tensors."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def num_examples(batch: Any) -> Any:
    """Examples in a batch: a number where it is known while tracing, else a scalar tensor."""
    for leaf in keras.tree.flatten(batch):
        if leaf is None or isinstance(leaf, tf.experimental.Optional):
            continue
        if isinstance(leaf, tf.SparseTensor):
            return leaf.shape[0] if leaf.shape[0] is not None else tf.cast(leaf.dense_shape[0], tf.int32)
        if isinstance(leaf, tf.RaggedTensor):
            return leaf.shape[0] if leaf.shape[0] is not None else leaf.nrows(out_type=tf.int32)
        tensor = tf.convert_to_tensor(leaf)
        return tensor.shape[0] if tensor.shape[0] is not None else tf.shape(tensor)[0]
    raise ValueError("a batch without a single tensor has no examples")


def take(batch: Any, start: Any, stop: Any) -> Any:
    """The examples of a batch from `start` to before `stop`."""

    def cut(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, tf.experimental.Optional):
            return leaf
        if isinstance(leaf, tf.SparseTensor):
            rest = tf.zeros_like(leaf.dense_shape[1:])
            return tf.sparse.slice(
                leaf,
                tf.concat([tf.cast([start], tf.int64), rest], 0),
                tf.concat([tf.cast([stop - start], tf.int64), leaf.dense_shape[1:]], 0),
            )
        if isinstance(leaf, tf.RaggedTensor):
            return leaf[start:stop]
        return tf.convert_to_tensor(leaf)[start:stop]

    return keras.tree.map_structure(cut, batch)
