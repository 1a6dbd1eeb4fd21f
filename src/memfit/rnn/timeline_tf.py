"""A batch of whole sequences, batch first as Keras has it, read and written by slices, time first."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from memfit.rnn.block_tf import Slice


@dataclass(frozen=True, slots=True)
class Timeline:
    """Sequences in the order in which their steps are run.

    Args:
        values: `[batch, time, ...]`.
        mask: `[batch, time]` of booleans, or `None`.
        go_backwards: Whether the last step is run first.
    """

    values: tf.Tensor
    mask: tf.Tensor | None = None
    go_backwards: bool = False

    def read(self, begin: tf.Tensor, end: tf.Tensor) -> Slice:
        """Steps `begin` to `end`, counted as they are run."""
        mask = None if self.mask is None else self._cut(self.mask, begin, end)
        return Slice(self._cut(self.values, begin, end), mask, begin)

    def _cut(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        if not self.go_backwards:
            return time_first(values[:, begin:end])
        length = tf.shape(values)[1]
        return tf.reverse(time_first(values[:, length - end : length - begin]), axis=[0])


def time_first(values: tf.Tensor) -> tf.Tensor:
    """Swaps the first two axes; its own inverse."""
    return tf.transpose(values, [1, 0, *range(2, values.shape.rank)])


def slices(dtype: tf.DType, size: tf.Tensor) -> tf.TensorArray:
    """An array for slices of different numbers of steps."""
    return tf.TensorArray(dtype, size=size, infer_shape=False)


def joined(array: tf.TensorArray, like: tf.Tensor) -> tf.Tensor:
    """All slices of an array one after the other; they are `like` but for their number of steps."""
    values = array.concat()
    values.set_shape([None, *like.shape[1:]])
    return values
