"""Keras's rules for masked time steps, for cells whose output is their first state.

At a masked step the state stays what it was. The output repeats the output of the step before, which is
zero before the first real step *even if the initial state is not*; with `zero_output_for_mask` it is zero.
So the output is the state where it is *visible*: from the first real step on, or at real steps only.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors


class Masking(NamedTuple):
    """The mask of one slice, ready for a cell.

    Args:
        real: `[steps, batch, 1]` of booleans, or `None` when nothing is masked.
        visible: `[steps, batch, 1]` of booleans, or `None` when everything is.
    """

    real: tf.Tensor | None
    visible: tf.Tensor | None

    def elements(self) -> Tensors:
        """What a loop over steps has to read in addition: the mask, if there is one."""
        return () if self.real is None else (self.real,)

    def show(self, values: tf.Tensor) -> tf.Tensor:
        """`values` where they are visible, else 0: outputs from states, and gradients the other way."""
        if self.visible is None:
            return values
        return tf.where(self.visible, values, tf.zeros([], values.dtype))


def hold(values: tf.Tensor, otherwise: tf.Tensor | float, real: Tensors) -> tf.Tensor:
    """`values` for the examples whose step is real, `otherwise` for the masked ones.

    Args:
        values: `[batch, ...]`.
        otherwise: Of the same shape, or a number.
        real: What `Masking.elements` gives for a step: empty when nothing is masked.
    """
    if not real:
        return values
    return tf.where(real[0], values, tf.cast(otherwise, values.dtype))


def masking_of(inputs: Slice, seen: Tensors, *, zero_output: bool) -> tuple[Masking, Tensors]:
    """The masking of a slice, and whether a real step has been seen by its end (a part of the state).

    Args:
        inputs: The slice.
        seen: Empty without a mask, else one tensor `[batch, 1]`, positive once a step was real.
        zero_output: Keras's `zero_output_for_mask`.
    """
    if inputs.mask is None:
        return Masking(real=None, visible=None), seen
    real = tf.cast(inputs.mask, tf.bool)[..., tf.newaxis]
    counted = tf.cumsum(tf.cast(real, seen[0].dtype), axis=0) + seen[0]
    visible = real if zero_output else counted > 0
    return Masking(real=real, visible=visible), (tf.minimum(counted[-1], 1.0),)


def nothing_seen(batch_size: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What a caller gives as the last state of a masked block: no real step was seen yet."""
    return tf.zeros([batch_size, 1], dtype)


def no_gradient(seen: Tensors) -> Tensors:
    """The gradient of `seen`."""
    return tuple(tf.zeros_like(value) for value in seen)
