"""The GRU in closed form: `tanh` and `sigmoid`, the reset gate after or before the product.

With the reset gate after the product (Keras's default) one product a step is left in each loop. With the
reset gate before it, the candidate needs a second one. Either way the gradient of a step is linear in what
comes back, so the forward loop keeps its factors, not the gates.
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


class GruWeights(NamedTuple):
    """The weights, columns in the order z, r, g.

    Args:
        kernel: For the inputs.
        recurrent_kernels: For h: one of all gates (reset after), or one of z and r and one of g (before).
        bias: Added to the projected inputs; with the reset gate after, what is added to h for z and r, too.
        inner_bias: Added to the candidate's part of the projected h; only with the reset gate after.
        transposed_recurrent_kernels: For the way back.
    """

    kernel: tf.Tensor
    recurrent_kernels: Tensors
    bias: tf.Tensor | None
    inner_bias: tf.Tensor | None
    transposed_recurrent_kernels: Tensors


class GruTape(NamedTuple):
    """What the backward pass of a slice needs: its inputs, h after every step, and what its loop reads."""

    inputs: tf.Tensor
    masking: Masking
    first_state: Tensors
    h: tf.Tensor
    factors: Tensors


class _ForwardConstants(NamedTuple):
    recurrent_kernels: Tensors
    bias: tf.Tensor | None
    inner_bias: tf.Tensor | None
    dropped: DropoutMask


class _BackwardConstants(NamedTuple):
    transposed_recurrent_kernels: Tensors
    dropped: DropoutMask


@dataclass(frozen=True, slots=True)
class _ForwardResetAfter:
    """One step forward: collects h and, if `keep`, three factors of h's gradient.

    In that of h one step before; in that of the candidate before activation; and in that of the product
    with the recurrent kernel. May spill r (1), or all gates (3).
    """

    units: int
    keep: bool
    spills: int = 0

    def __call__(
        self, constants: _ForwardConstants, state: Tensors, projected: tf.Tensor, *real: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        h = state[0]
        if constants.bias is not None:
            projected += constants.bias
        recurrent = product(h, constants.recurrent_kernels[0], constants.dropped)
        for_gates, for_candidate = tf.split(projected, [2 * self.units, self.units], axis=1)
        recurrent, inner = tf.split(recurrent, [2 * self.units, self.units], axis=1)
        if constants.inner_bias is not None:
            inner += constants.inner_bias
        z, r = tf.split(tf.sigmoid(for_gates + recurrent), 2, axis=1)
        g = tf.tanh(for_candidate + r * inner)
        new_h = hold(g + z * (h - g), h, real)
        if not self.keep:
            return (new_h, *(r, z, g)[: self.spills]), (new_h,)
        to_g = tanh_slope(g, 1 - z)
        to_recurrent = tf.concat([sigmoid_slope(z, h - g), sigmoid_slope(r, to_g * inner), to_g * r], axis=1)
        factors = hold(z, 1, real), hold(to_g, 0, real), hold(to_recurrent, 0, real)
        return (new_h,), (new_h, *factors)


@dataclass(frozen=True, slots=True)
class _BackwardResetAfter:
    """One step backward: collects the gradients of the candidate and of the recurrent product."""

    has_upstream: bool

    def __call__(
        self,
        constants: _BackwardConstants,
        state: Tensors,
        to_h: tf.Tensor,
        to_g: tf.Tensor,
        to_recurrent: tf.Tensor,
        *upstream: tf.Tensor,
    ) -> tuple[Tensors, Tensors]:
        d_h = state[0] + upstream[0] if self.has_upstream else state[0]
        d_recurrent = tf.concat([d_h, d_h, d_h], axis=1) * to_recurrent
        (kernel,) = constants.transposed_recurrent_kernels
        d_before = d_h * to_h + gradient_of_inputs(d_recurrent, kernel, constants.dropped)
        return (d_before,), (d_h * to_g, d_recurrent)


@dataclass(frozen=True, slots=True)
class _ForwardResetBefore:
    """One step forward: collects h and, if `keep`, r and four factors.

    Of h's gradient in that of h one step before, of z and of the candidate before activation; of the
    gradient of the reset h in that of r before activation. May spill r (1), or all gates (3).
    """

    units: int
    keep: bool
    spills: int = 0

    def __call__(
        self, constants: _ForwardConstants, state: Tensors, projected: tf.Tensor, *real: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        h = state[0]
        if constants.bias is not None:
            projected += constants.bias
        for_gates, for_candidate = tf.split(projected, [2 * self.units, self.units], axis=1)
        dropped_gates, dropped_candidate = _split_dropout(constants.dropped)
        recurrent = product(h, constants.recurrent_kernels[0], dropped_gates)
        z, r = tf.split(tf.sigmoid(for_gates + recurrent), 2, axis=1)
        inner = product(r * h, constants.recurrent_kernels[1], dropped_candidate)
        g = tf.tanh(for_candidate + inner)
        new_h = hold(g + z * (h - g), h, real)
        if not self.keep:
            return (new_h, *(r, z, g)[: self.spills]), (new_h,)
        to_z, to_g = sigmoid_slope(z, h - g), tanh_slope(g, 1 - z)
        factors = hold(z, 1, real), hold(to_z, 0, real), hold(to_g, 0, real)
        return (new_h,), (new_h, *factors, sigmoid_slope(r, h), r)


@dataclass(frozen=True, slots=True)
class _BackwardResetBefore:
    """One step backward: collects the gradients of the candidate and of z and r before activation."""

    has_upstream: bool

    def __call__(
        self,
        constants: _BackwardConstants,
        state: Tensors,
        to_h: tf.Tensor,
        to_z: tf.Tensor,
        to_g: tf.Tensor,
        to_r: tf.Tensor,
        r: tf.Tensor,
        *upstream: tf.Tensor,
    ) -> tuple[Tensors, Tensors]:
        d_h = state[0] + upstream[0] if self.has_upstream else state[0]
        for_gates, for_candidate = _split_dropout(constants.dropped)
        back_gates, back_candidate = constants.transposed_recurrent_kernels
        d_candidate = d_h * to_g
        d_reset = gradient_of_inputs(d_candidate, back_candidate, for_candidate)
        d_gates = tf.concat([d_h * to_z, d_reset * to_r], axis=1)
        d_before = d_h * to_h + d_reset * r + gradient_of_inputs(d_gates, back_gates, for_gates)
        return (d_before,), (d_candidate, d_gates)


@dataclass(frozen=True, slots=True, kw_only=True)
class GruBlock:
    """`keras.layers.GRU` by slices of time. Its state is h and, with a mask, `nothing_seen`."""

    units: int
    dtype: tf.DType
    reset_after: bool = True
    zero_output: bool = False
    compiled: bool = False

    @property
    def widths(self) -> Widths:
        """Counted from the tensors of a slice that are alive together."""
        return Widths(state=self.units, tape=6 * self.units, work=8 * self.units)

    def prepare(self, weights: Tensors) -> GruWeights:
        """The weights in the dtype of the computation."""
        kernel, recurrent_kernel, *biases = (tf.cast(weight, self.dtype) for weight in weights)
        bias, inner_bias = biases[0] if biases else None, None
        parts: Tensors = (recurrent_kernel,)
        if not self.reset_after:
            parts = tuple(tf.split(recurrent_kernel, [2 * self.units, self.units], axis=1))
        elif bias is not None:
            bias, recurrent_bias = tf.unstack(bias)
            gates_bias, inner_bias = tf.split(recurrent_bias, [2 * self.units, self.units])
            bias += tf.concat([gates_bias, tf.zeros_like(inner_bias)], axis=0)
        transposed = tuple(tf.transpose(part) for part in parts)
        return GruWeights(kernel, parts, bias, inner_bias, transposed)

    def forward(
        self,
        weights: GruWeights,
        noise: tuple[DropoutMask, DropoutMask],
        state: Tensors,
        inputs: Slice,
        keep: bool,
    ) -> tuple[Slice, Tensors, GruTape | None]:
        """The slice forward; see `Block.forward`."""
        dropped, dropped_h = noise
        masking, seen = masking_of(inputs, state[1:], zero_output=self.zero_output)
        forward = _ForwardResetAfter if self.reset_after else _ForwardResetBefore
        spills = (3 if self.units >= WIDE else 1) if self.compiled and not keep else 0
        factors = (1, 1, 3) if self.reset_after else (1, 1, 1, 1, 1)
        after, collected = Loop(
            body=forward(self.units, keep, spills),
            shapes=tuple((size * self.units,) for size in (1, *(factors if keep else ()))),
            dtype=self.dtype,
        ).run(
            _ForwardConstants(weights.recurrent_kernels, weights.bias, weights.inner_bias, dropped_h),
            (state[0], *spilled(state[0], spills)),
            (product(inputs.values, weights.kernel, dropped), *masking.elements()),
            compiled=self.compiled,
        )
        tape = GruTape(inputs.values, masking, state, collected[0], collected[1:]) if keep else None
        return Slice(masking.show(collected[0]), inputs.mask, inputs.start), (after[0], *seen), tape

    def backward(
        self,
        weights: GruWeights,
        noise: tuple[DropoutMask, DropoutMask],
        tape: GruTape,
        upstream: tf.Tensor | None,
        d_state: Tensors,
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """The slice backward; see `Block.backward`."""
        dropped, dropped_h = noise
        shown = () if upstream is None else (tape.masking.show(upstream),)
        backward = _BackwardResetAfter if self.reset_after else _BackwardResetBefore
        before, (d_candidate, d_product) = Loop(
            body=backward(bool(shown)),
            shapes=((self.units,), ((3 if self.reset_after else 2) * self.units,)),
            dtype=self.dtype,
            reverse=True,
        ).run(
            _BackwardConstants(weights.transposed_recurrent_kernels, dropped_h),
            d_state[:1],
            (*tape.factors, *shown),
            compiled=self.compiled,
        )
        d_projected = tf.concat([d_product[..., : 2 * self.units], d_candidate], axis=-1)
        previous_h = one_later(tape.first_state[0], tape.h, once=d_product)
        if self.reset_after:
            d_recurrent_kernel = gradient_of_kernel(previous_h, d_product, dropped_h)
        else:
            for_gates, for_candidate = _split_dropout(dropped_h)
            d_gates_kernel = gradient_of_kernel(previous_h, d_product, for_gates)
            r = tape.factors[-1]
            d_candidate_kernel = gradient_of_kernel(r * previous_h, d_candidate, for_candidate)
            d_recurrent_kernel = tf.concat([d_gates_kernel, d_candidate_kernel], axis=1)
        d_weights = [gradient_of_kernel(tape.inputs, d_projected, dropped), d_recurrent_kernel]
        if weights.bias is not None:
            d_bias = tf.reduce_sum(d_projected, axis=[0, 1])
            if self.reset_after:
                d_bias = tf.stack([d_bias, tf.reduce_sum(d_product, axis=[0, 1])])
            d_weights.append(d_bias)
        d_inputs = gradient_of_all_inputs(d_projected, weights.kernel, dropped)
        return d_inputs, (*before, *no_gradient(tape.first_state[1:])), tuple(d_weights)


def _split_dropout(dropped: DropoutMask) -> tuple[DropoutMask, DropoutMask]:
    """The masks of z and r, and the mask of the candidate."""
    return (dropped[:2], dropped[2]) if isinstance(dropped, tuple) else (dropped, dropped)
