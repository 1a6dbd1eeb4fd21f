"""The LSTM in closed form: `tanh` and `sigmoid`, any bias, mask and dropout.

The products that need not wait for the step before (inputs, weight gradients, the element-wise factors of
the backward pass) are taken over a whole slice at once; only `h @ R` and its transpose are left in the loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors, Widths, scan
from memfit.rnn.masking_tf import Masking, masking_of, no_gradient
from memfit.rnn.products_tf import (
    DropoutMask,
    gradient_of_inputs,
    gradient_of_kernel,
    product,
    sigmoid_slope,
    tanh_slope,
)


class LstmWeights(NamedTuple):
    """The weights as Keras has them, columns in the order i, f, g, o, and transposed for the way back."""

    kernel: tf.Tensor
    recurrent_kernel: tf.Tensor
    bias: tf.Tensor | None
    transposed_kernel: tf.Tensor
    transposed_recurrent_kernel: tf.Tensor


class LstmTape(NamedTuple):
    """What the backward pass of a slice needs; h, c and the gates after activation are of all steps."""

    inputs: tf.Tensor
    masking: Masking
    first_state: Tensors
    h: tf.Tensor
    c: tf.Tensor
    i: tf.Tensor
    f: tf.Tensor
    g: tf.Tensor
    o: tf.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmBlock:
    """`keras.layers.LSTM` by slices of time. Its state is h, c and, with a mask, `nothing_seen`."""

    units: int
    dtype: tf.DType
    zero_output: bool = False

    @property
    def widths(self) -> Widths:
        """Counted from the tensors of a slice that are alive together."""
        return Widths(state=2 * self.units, tape=6 * self.units, work=11 * self.units)

    def prepare(self, weights: Tensors) -> LstmWeights:
        """The weights in the dtype of the computation."""
        kernel, recurrent_kernel, *bias = (tf.cast(weight, self.dtype) for weight in weights)
        return LstmWeights(
            kernel,
            recurrent_kernel,
            bias[0] if bias else None,
            tf.transpose(kernel),
            tf.transpose(recurrent_kernel),
        )

    def forward(
        self,
        weights: LstmWeights,
        noise: tuple[DropoutMask, DropoutMask],
        state: Tensors,
        inputs: Slice,
        keep: bool,
    ) -> tuple[Slice, Tensors, LstmTape | None]:
        """The slice forward; see `Block.forward`."""
        dropped, dropped_h = noise
        masking, seen = masking_of(inputs, state[2:], zero_output=self.zero_output)
        projected = product(inputs.values, weights.kernel, dropped)
        if weights.bias is not None:
            projected += weights.bias

        def step(state: Tensors, projected: tf.Tensor, *real: tf.Tensor) -> tuple[Tensors, Tensors]:
            h, c = state
            i, f, g, o = tf.split(projected + product(h, weights.recurrent_kernel, dropped_h), 4, axis=1)
            i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
            new_c = f * c + i * g
            new_h = o * tf.tanh(new_c)
            if real:
                new_h, new_c = tf.where(real[0], new_h, h), tf.where(real[0], new_c, c)
            return (new_h, new_c), (new_h, new_c, i, f, g, o) if keep else (new_h,)

        shapes = [[self.units]] * (6 if keep else 1)
        after, collected = scan(step, state[:2], (projected, *masking.elements()), shapes, dtype=self.dtype)
        tape = LstmTape(inputs.values, masking, state, *collected) if keep else None
        return Slice(masking.show(collected[0]), inputs.mask, inputs.start), (*after, *seen), tape

    def backward(
        self,
        weights: LstmWeights,
        noise: tuple[DropoutMask, DropoutMask],
        tape: LstmTape,
        upstream: tf.Tensor | None,
        d_state: Tensors,
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """The slice backward; see `Block.backward`."""
        dropped, dropped_h = noise
        masking = tape.masking
        first_h, first_c, *seen = tape.first_state
        tanh_c = tf.tanh(tape.c)
        h_to_c = masking.hold(tanh_slope(tanh_c, tape.o), 0.0)
        forget = masking.hold(tape.f, 1.0)
        previous_c = tf.concat([first_c[tf.newaxis], tape.c[:-1]], axis=0)
        factors = tf.concat(  # of d_c, d_c, d_c and d_h in the gradient of the gates before activation
            [
                sigmoid_slope(tape.i, tape.g),
                sigmoid_slope(tape.f, previous_c),
                tanh_slope(tape.g, tape.i),
                sigmoid_slope(tape.o, tanh_c),
            ],
            axis=-1,
        )
        factors = masking.hold(factors, 0.0)
        shown = () if upstream is None else (masking.show(upstream),)

        def step(
            state: Tensors, h_to_c: tf.Tensor, factors: tf.Tensor, forget: tf.Tensor, *rest: tf.Tensor
        ) -> tuple[Tensors, Tensors]:
            d_h, d_c = state
            if shown:
                d_h += rest[0]
            d_c += d_h * h_to_c
            d_gates = tf.concat([d_c, d_c, d_c, d_h], axis=1) * factors
            d_before = gradient_of_inputs(d_gates, weights.transposed_recurrent_kernel, dropped_h)
            if masking.real is not None:
                d_before = tf.where(rest[-1], d_before, d_h)
            return (d_before, d_c * forget), (d_gates,)

        elements = (h_to_c, factors, forget, *shown, *masking.elements())
        before, (d_gates,) = scan(
            step, d_state[:2], elements, [[4 * self.units]], dtype=self.dtype, reverse=True
        )
        previous_h = tf.concat([first_h[tf.newaxis], tape.h[:-1]], axis=0)
        d_weights = [
            gradient_of_kernel(tape.inputs, d_gates, dropped),
            gradient_of_kernel(previous_h, d_gates, dropped_h),
        ]
        if weights.bias is not None:
            d_weights.append(tf.reduce_sum(d_gates, axis=[0, 1]))
        d_inputs = gradient_of_inputs(d_gates, weights.transposed_kernel, dropped)
        return d_inputs, (*before, *no_gradient(tuple(seen))), tuple(d_weights)
