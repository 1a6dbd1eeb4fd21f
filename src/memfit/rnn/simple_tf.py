"""The SimpleRNN in closed form, for activations whose slope is known from their value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import keras
import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors, Widths
from memfit.rnn.loop_tf import Loop
from memfit.rnn.masking_tf import Masking, hold, masking_of, no_gradient
from memfit.rnn.products_tf import (
    DropoutMask,
    gradient_of_all_inputs,
    gradient_of_inputs,
    gradient_of_kernel,
    one_later,
    product,
)

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
    transposed_recurrent_kernel: tf.Tensor


class SimpleTape(NamedTuple):
    """What the backward pass of a slice needs."""

    inputs: tf.Tensor
    masking: Masking
    first_state: Tensors
    h: tf.Tensor


class _ForwardConstants(NamedTuple):
    recurrent_kernel: tf.Tensor
    bias: tf.Tensor | None
    dropped: DropoutMask


@dataclass(frozen=True, slots=True)
class _Forward:
    """One step forward: collects h."""

    activation: Callable[..., tf.Tensor]

    def __call__(
        self, constants: _ForwardConstants, state: Tensors, projected: tf.Tensor, *real: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        (h,) = state
        before = projected + product(h, constants.recurrent_kernel, constants.dropped)
        if constants.bias is not None:
            before += constants.bias
        new_h = hold(self.activation(before), h, real)
        return (new_h,), (new_h,)


class _BackwardConstants(NamedTuple):
    transposed_recurrent_kernel: tf.Tensor
    dropped: DropoutMask


@dataclass(frozen=True, slots=True)
class _Backward:
    """One step backward: collects the gradient of the sum before activation."""

    activation: Callable[..., tf.Tensor]
    has_upstream: bool

    def __call__(
        self, constants: _BackwardConstants, state: Tensors, h: tf.Tensor, *rest: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        d_h = state[0] + rest[0] if self.has_upstream else state[0]
        real = rest[self.has_upstream :]
        d_sum = hold(d_h * SLOPES[self.activation](h), 0, real)
        d_before = gradient_of_inputs(d_sum, constants.transposed_recurrent_kernel, constants.dropped)
        return (hold(d_before, d_h, real),), (d_sum,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleBlock:
    """`keras.layers.SimpleRNN` by slices of time. Its state is h and, with a mask, `nothing_seen`."""

    units: int
    dtype: tf.DType
    activation: Callable[..., tf.Tensor] = keras.activations.tanh
    zero_output: bool = False
    compiled: bool = False

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
        after, (h,) = Loop(body=_Forward(self.activation), shapes=((self.units,),), dtype=self.dtype).run(
            _ForwardConstants(weights.recurrent_kernel, weights.bias, dropped_h),
            state[:1],
            (product(inputs.values, weights.kernel, dropped), *masking.elements()),
            compiled=self.compiled,
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
        shown = () if upstream is None else (masking.show(upstream),)
        before, (d_sum,) = Loop(
            body=_Backward(self.activation, bool(shown)),
            shapes=((self.units,),),
            dtype=self.dtype,
            reverse=True,
        ).run(
            _BackwardConstants(weights.transposed_recurrent_kernel, dropped_h),
            d_state[:1],
            (tape.h, *shown, *masking.elements()),
            compiled=self.compiled,
        )
        previous_h = one_later(tape.first_state[0], tape.h, once=d_sum)
        d_weights = [
            gradient_of_kernel(tape.inputs, d_sum, dropped),
            gradient_of_kernel(previous_h, d_sum, dropped_h),
        ]
        if weights.bias is not None:
            d_weights.append(tf.reduce_sum(d_sum, axis=[0, 1]))
        d_inputs = gradient_of_all_inputs(d_sum, weights.kernel, dropped)
        return d_inputs, (*before, *no_gradient(tape.first_state[1:])), tuple(d_weights)
