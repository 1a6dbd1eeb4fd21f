"""The SimpleRNN in closed form, for activations whose slope is known from their value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import keras
import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors, Widths, scan
from memfit.rnn.masking_tf import Masking, masking_of, no_gradient
from memfit.rnn.products_tf import DropoutMask, gradient_of_inputs, gradient_of_kernel, product

SLOPES: dict[Callable[..., object], Callable[[tf.Tensor], tf.Tensor]] = {
    keras.activations.tanh: lambda value: 1 - value * value,
    keras.activations.sigmoid: lambda value: value * (1 - value),
    keras.activations.relu: lambda value: tf.cast(value > 0, value.dtype),
    keras.activations.linear: tf.ones_like,
}
"""The derivative of an activation as a function of its value."""


class SimpleWeights(NamedTuple):
    """The weights as Keras has them, and transposed for the way back."""

    kernel: tf.Tensor
    recurrent_kernel: tf.Tensor
    bias: tf.Tensor | None
    transposed_kernel: tf.Tensor
    transposed_recurrent_kernel: tf.Tensor


class SimpleTape(NamedTuple):
    """What the backward pass of a slice needs."""

    inputs: tf.Tensor
    masking: Masking
    first_state: Tensors
    h: tf.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleBlock:
    """`keras.layers.SimpleRNN` by slices of time. Its state is h and, with a mask, `nothing_seen`."""

    units: int
    dtype: tf.DType
    activation: Callable[..., tf.Tensor] = keras.activations.tanh
    zero_output: bool = False

    @property
    def widths(self) -> Widths:
        """Counted from the tensors of a slice that are alive together."""
        return Widths(state=self.units, tape=self.units, work=4 * self.units)

    def prepare(self, weights: Tensors) -> SimpleWeights:
        """The weights in the dtype of the computation."""
        kernel, recurrent_kernel, *bias = (tf.cast(weight, self.dtype) for weight in weights)
        return SimpleWeights(
            kernel,
            recurrent_kernel,
            bias[0] if bias else None,
            tf.transpose(kernel),
            tf.transpose(recurrent_kernel),
        )

    def forward(
        self,
        weights: SimpleWeights,
        noise: tuple[DropoutMask, DropoutMask],
        state: Tensors,
        inputs: Slice,
        keep: bool,
    ) -> tuple[Slice, Tensors, SimpleTape | None]:
        """The slice forward; see `Block.forward`."""
        dropped, dropped_h = noise
        masking, seen = masking_of(inputs, state[1:], zero_output=self.zero_output)
        projected = product(inputs.values, weights.kernel, dropped)
        if weights.bias is not None:
            projected += weights.bias

        def step(state: Tensors, projected: tf.Tensor, *real: tf.Tensor) -> tuple[Tensors, Tensors]:
            new_h = self.activation(projected + product(state[0], weights.recurrent_kernel, dropped_h))
            if real:
                new_h = tf.where(real[0], new_h, state[0])
            return (new_h,), (new_h,)

        after, (h,) = scan(
            step, state[:1], (projected, *masking.elements()), [[self.units]], dtype=self.dtype
        )
        tape = SimpleTape(inputs.values, masking, state, h) if keep else None
        return Slice(masking.show(h), inputs.mask, inputs.start), (*after, *seen), tape

    def backward(
        self,
        weights: SimpleWeights,
        noise: tuple[DropoutMask, DropoutMask],
        tape: SimpleTape,
        upstream: tf.Tensor | None,
        d_state: Tensors,
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """The slice backward; see `Block.backward`."""
        dropped, dropped_h = noise
        masking = tape.masking
        slope = masking.hold(SLOPES[self.activation](tape.h), 0.0)
        shown = () if upstream is None else (masking.show(upstream),)

        def step(state: Tensors, slope: tf.Tensor, *rest: tf.Tensor) -> tuple[Tensors, Tensors]:
            d_h = state[0] + rest[0] if shown else state[0]
            d_sum = d_h * slope
            before = gradient_of_inputs(d_sum, weights.transposed_recurrent_kernel, dropped_h)
            if masking.real is not None:
                before = tf.where(rest[-1], before, d_h)
            return (before,), (d_sum,)

        elements = (slope, *shown, *masking.elements())
        before, (d_sum,) = scan(step, d_state[:1], elements, [[self.units]], dtype=self.dtype, reverse=True)
        previous_h = tf.concat([tape.first_state[0][tf.newaxis], tape.h[:-1]], axis=0)
        d_weights = [
            gradient_of_kernel(tape.inputs, d_sum, dropped),
            gradient_of_kernel(previous_h, d_sum, dropped_h),
        ]
        if weights.bias is not None:
            d_weights.append(tf.reduce_sum(d_sum, axis=[0, 1]))
        d_inputs = gradient_of_inputs(d_sum, weights.transposed_kernel, dropped)
        return d_inputs, (*before, *no_gradient(tape.first_state[1:])), tuple(d_weights)
