"""The LSTM in closed form: `tanh` and `sigmoid`, any bias, mask and dropout.

The products that need not wait for the step before (inputs, weight gradients) are taken over a whole slice at
once; only `h @ R` and its transpose are left in the loops. The gradient of a step is linear in what comes
back, so the forward loop keeps its factors, not the gates: the backward loop has nothing else to work out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors, Widths
from memfit.rnn.loop_tf import WIDE, Loop, spilled
from memfit.rnn.masking_tf import Masking, hold, masking_of, no_gradient
from memfit.rnn.products_tf import (
    DropoutMask,
    gradient_of_all_inputs,
    gradient_of_inputs,
    gradient_of_kernel,
    one_later,
    product,
    sigmoid_slope,
    tanh_slope,
)


class LstmWeights(NamedTuple):
    """The weights as Keras has them, columns in the order i, f, g, o, and transposed for the way back."""

    kernel: tf.Tensor
    recurrent_kernel: tf.Tensor
    bias: tf.Tensor | None
    transposed_recurrent_kernel: tf.Tensor


class LstmTape(NamedTuple):
    """What the backward pass of a slice needs.

    Args:
        inputs: Of the slice.
        masking: Of the slice.
        first_state: Before its first step.
        h: After every step.
        h_to_c: The factor of h's gradient in that of c.
        forget: The factor of c's gradient in that of c one step before.
        to_gates: The factors of c's gradient (i, f, g) and of h's (o) in that of the gates before activation.
    """

    inputs: tf.Tensor
    masking: Masking
    first_state: Tensors
    h: tf.Tensor
    h_to_c: tf.Tensor
    forget: tf.Tensor
    to_gates: tf.Tensor


class _ForwardConstants(NamedTuple):
    recurrent_kernel: tf.Tensor
    bias: tf.Tensor | None
    dropped: DropoutMask


@dataclass(frozen=True, slots=True)
class _Forward:
    """One step forward: collects h and, if `keep`, the factors of the way back; may spill its gates."""

    units: int
    keep: bool
    spills: bool = False

    def __call__(
        self, constants: _ForwardConstants, state: Tensors, projected: tf.Tensor, *real: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        h, c = state[:2]
        before = projected + product(h, constants.recurrent_kernel, constants.dropped)
        if constants.bias is not None:
            before += constants.bias
        i, f, _, o = tf.split(tf.sigmoid(before), 4, axis=1)  # one pass, though g's part is for nothing
        g = tf.tanh(before[:, 2 * self.units : 3 * self.units])
        new_c = f * c + i * g
        tanh_c = tf.tanh(new_c)
        new_h = o * tanh_c
        new_state = hold(new_h, h, real), hold(new_c, c, real)
        if not self.keep:
            return (*new_state, *((i, f, g, o) if self.spills else ())), new_state[:1]
        to_gates = [
            sigmoid_slope(i, g),
            sigmoid_slope(f, c),
            tanh_slope(g, i),
            sigmoid_slope(o, tanh_c),
        ]
        h_to_c = hold(tanh_slope(tanh_c, o), 0, real)
        return new_state, (
            new_state[0],
            h_to_c,
            hold(f, 1, real),
            hold(tf.concat(to_gates, axis=1), 0, real),
        )


class _BackwardConstants(NamedTuple):
    transposed_recurrent_kernel: tf.Tensor
    dropped: DropoutMask


@dataclass(frozen=True, slots=True)
class _Backward:
    """One step backward: collects the gradient of the gates before activation."""

    has_upstream: bool

    def __call__(
        self,
        constants: _BackwardConstants,
        state: Tensors,
        h_to_c: tf.Tensor,
        forget: tf.Tensor,
        to_gates: tf.Tensor,
        *rest: tf.Tensor,
    ) -> tuple[Tensors, Tensors]:
        d_h, d_c = state
        if self.has_upstream:
            d_h += rest[0]
        d_c += d_h * h_to_c
        d_gates = tf.concat([d_c, d_c, d_c, d_h], axis=1) * to_gates
        d_before = gradient_of_inputs(d_gates, constants.transposed_recurrent_kernel, constants.dropped)
        return (hold(d_before, d_h, rest[self.has_upstream :]), d_c * forget), (d_gates,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmBlock:
    """`keras.layers.LSTM` by slices of time. Its state is h, c and, with a mask, `nothing_seen`."""

    units: int
    dtype: tf.DType
    zero_output: bool = False
    compiled: bool = False

    @property
    def widths(self) -> Widths:
        """Counted from the tensors of a slice that are alive together."""
        return Widths(state=2 * self.units, tape=7 * self.units, work=6 * self.units)

    def prepare(self, weights: Tensors) -> LstmWeights:
        """The weights in the dtype of the computation."""
        kernel, recurrent_kernel, *bias = (tf.cast(weight, self.dtype) for weight in weights)
        return LstmWeights(
            kernel,
            recurrent_kernel,
            bias[0] if bias else None,
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
        spills = self.compiled and not keep and self.units >= WIDE
        loop = Loop(
            body=_Forward(self.units, keep, spills),
            shapes=((self.units,), *(((self.units,), (self.units,), (4 * self.units,)) if keep else ())),
            dtype=self.dtype,
        )
        after, collected = loop.run(
            _ForwardConstants(weights.recurrent_kernel, weights.bias, dropped_h),
            (*state[:2], *spilled(state[0], 4 * spills)),
            (product(inputs.values, weights.kernel, dropped), *masking.elements()),
            compiled=self.compiled,
        )
        tape = LstmTape(inputs.values, masking, state, *collected) if keep else None
        return Slice(masking.show(collected[0]), inputs.mask, inputs.start), (*after[:2], *seen), tape

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
        first_h, _, *seen = tape.first_state
        shown = () if upstream is None else (masking.show(upstream),)
        loop = Loop(body=_Backward(bool(shown)), shapes=((4 * self.units,),), dtype=self.dtype, reverse=True)
        before, (d_gates,) = loop.run(
            _BackwardConstants(weights.transposed_recurrent_kernel, dropped_h),
            d_state[:2],
            (tape.h_to_c, tape.forget, tape.to_gates, *shown, *masking.elements()),
            compiled=self.compiled,
        )
        d_weights = [
            gradient_of_kernel(tape.inputs, d_gates, dropped),
            gradient_of_kernel(one_later(first_h, tape.h, once=d_gates), d_gates, dropped_h),
        ]
        if weights.bias is not None:
            d_weights.append(tf.reduce_sum(d_gates, axis=[0, 1]))
        d_inputs = gradient_of_all_inputs(d_gates, weights.kernel, dropped)
        return d_inputs, (*before, *no_gradient(tuple(seen))), tuple(d_weights)
