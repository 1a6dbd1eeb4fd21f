"""The GRU in closed form: `tanh` and `sigmoid`, the reset gate after or before the product.

With the reset gate after the product (Keras's default) one product a step is left in each loop, and the
gradient of everything is the gradient of h times factors that are known for the whole slice. With the reset
gate before it, the candidate needs a second product in the step.
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


class GruWeights(NamedTuple):
    """The weights, columns in the order z, r, g.

    Args:
        kernel: For the inputs.
        recurrent_kernels: For h: one of all gates (reset after), or one of z and r and one of g (before).
        bias: Added to the projected inputs; with the reset gate after, what is added to h for z and r, too.
        inner_bias: Added to the candidate's part of the projected h; only with the reset gate after.
        transposed_kernel: For the way back.
        transposed_recurrent_kernels: For the way back.
    """

    kernel: tf.Tensor
    recurrent_kernels: Tensors
    bias: tf.Tensor | None
    inner_bias: tf.Tensor | None
    transposed_kernel: tf.Tensor
    transposed_recurrent_kernels: Tensors


class GruTape(NamedTuple):
    """What the backward pass of a slice needs; `inner` is the candidate's part of `h @ R` (reset after)."""

    inputs: tf.Tensor
    masking: Masking
    first_state: Tensors
    h: tf.Tensor
    z: tf.Tensor
    r: tf.Tensor
    g: tf.Tensor
    inner: tf.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GruBlock:
    """`keras.layers.GRU` by slices of time. Its state is h and, with a mask, `nothing_seen`."""

    units: int
    dtype: tf.DType
    reset_after: bool = True
    zero_output: bool = False

    @property
    def widths(self) -> Widths:
        """Counted from the tensors of a slice that are alive together."""
        return Widths(state=self.units, tape=5 * self.units, work=9 * self.units)

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
        return GruWeights(kernel, parts, bias, inner_bias, tf.transpose(kernel), transposed)

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
        projected = product(inputs.values, weights.kernel, dropped)
        if weights.bias is not None:
            projected += weights.bias
        for_gates, for_candidate = tf.split(projected, [2 * self.units, self.units], axis=-1)
        gates = self._gates_reset_after if self.reset_after else self._gates_reset_before

        def step(
            state: Tensors, for_gates: tf.Tensor, for_candidate: tf.Tensor, *real: tf.Tensor
        ) -> tuple[Tensors, Tensors]:
            (h,) = state
            z, r, g, *inner = gates(weights, dropped_h, h, for_gates, for_candidate)
            new_h = g + z * (h - g)
            if real:
                new_h = tf.where(real[0], new_h, h)
            return (new_h,), (new_h, z, r, g, *inner) if keep else (new_h,)

        num_kept = 5 if self.reset_after else 4
        shapes = [[self.units]] * (num_kept if keep else 1)
        after, collected = scan(
            step, state[:1], (for_gates, for_candidate, *masking.elements()), shapes, dtype=self.dtype
        )
        tape = None
        if keep:
            inner = () if self.reset_after else (None,)
            tape = GruTape(inputs.values, masking, state, *collected, *inner)
        return Slice(masking.show(collected[0]), inputs.mask, inputs.start), (*after, *seen), tape

    def _gates_reset_after(
        self,
        weights: GruWeights,
        dropped_h: DropoutMask,
        h: tf.Tensor,
        for_gates: tf.Tensor,
        for_candidate: tf.Tensor,
    ) -> Tensors:
        recurrent = product(h, weights.recurrent_kernels[0], dropped_h)
        recurrent, inner = tf.split(recurrent, [2 * self.units, self.units], axis=1)
        if weights.inner_bias is not None:
            inner += weights.inner_bias
        z, r = tf.split(tf.sigmoid(for_gates + recurrent), 2, axis=1)
        return z, r, tf.tanh(for_candidate + r * inner), inner

    def _gates_reset_before(
        self,
        weights: GruWeights,
        dropped_h: DropoutMask,
        h: tf.Tensor,
        for_gates: tf.Tensor,
        for_candidate: tf.Tensor,
    ) -> Tensors:
        dropped_gates, dropped_candidate = _split_dropout(dropped_h)
        recurrent = product(h, weights.recurrent_kernels[0], dropped_gates)
        z, r = tf.split(tf.sigmoid(for_gates + recurrent), 2, axis=1)
        inner = product(r * h, weights.recurrent_kernels[1], dropped_candidate)
        return z, r, tf.tanh(for_candidate + inner)

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
        masking = tape.masking
        previous_h = tf.concat([tape.first_state[0][tf.newaxis], tape.h[:-1]], axis=0)
        # Of d_h in the gradient of z, of the candidate before activation, and of the previous h.
        to_z = masking.hold(sigmoid_slope(tape.z, previous_h - tape.g), 0.0)
        to_g = masking.hold(tanh_slope(tape.g, 1 - tape.z), 0.0)
        to_h = masking.hold(tape.z, 1.0)
        shown = () if upstream is None else (masking.show(upstream),)
        walk = self._back_reset_after if self.reset_after else self._back_reset_before
        before, d_projected, d_recurrent = walk(
            weights, dropped_h, tape, previous_h, (to_z, to_g, to_h), shown, d_state[:1]
        )
        d_weights = [gradient_of_kernel(tape.inputs, d_projected, dropped), d_recurrent[0]]
        if weights.bias is not None:
            d_bias = tf.reduce_sum(d_projected, axis=[0, 1])
            d_weights.append(tf.stack([d_bias, d_recurrent[1]]) if self.reset_after else d_bias)
        d_inputs = gradient_of_inputs(d_projected, weights.transposed_kernel, dropped)
        return d_inputs, (*before, *no_gradient(tape.first_state[1:])), tuple(d_weights)

    def _back_reset_after(
        self,
        weights: GruWeights,
        dropped_h: DropoutMask,
        tape: GruTape,
        previous_h: tf.Tensor,
        factors: Tensors,
        shown: Tensors,
        d_state: Tensors,
    ) -> tuple[Tensors, tf.Tensor, Tensors]:
        to_z, to_g, to_h = factors
        to_r = sigmoid_slope(tape.r, to_g * tape.inner)
        to_recurrent = tf.concat([to_z, to_r, to_g * tape.r], axis=-1)

        def step(
            state: Tensors, to_recurrent: tf.Tensor, to_h: tf.Tensor, *shown: tf.Tensor
        ) -> tuple[Tensors, Tensors]:
            d_h = state[0] + shown[0] if shown else state[0]
            d_recurrent = tf.concat([d_h, d_h, d_h], axis=1) * to_recurrent
            back = gradient_of_inputs(d_recurrent, weights.transposed_recurrent_kernels[0], dropped_h)
            return (d_h * to_h + back,), (d_h, d_recurrent)

        elements, shapes = (to_recurrent, to_h, *shown), [[self.units], [3 * self.units]]
        before, (d_h, d_recurrent) = scan(step, d_state, elements, shapes, dtype=self.dtype, reverse=True)
        d_gates, _ = tf.split(d_recurrent, [2 * self.units, self.units], axis=-1)
        d_projected = tf.concat([d_gates, d_h * to_g], axis=-1)
        d_kernel = gradient_of_kernel(previous_h, d_recurrent, dropped_h)
        return before, d_projected, (d_kernel, tf.reduce_sum(d_recurrent, axis=[0, 1]))

    def _back_reset_before(
        self,
        weights: GruWeights,
        dropped_h: DropoutMask,
        tape: GruTape,
        previous_h: tf.Tensor,
        factors: Tensors,
        shown: Tensors,
        d_state: Tensors,
    ) -> tuple[Tensors, tf.Tensor, Tensors]:
        to_z, to_g, to_h = factors
        to_r = sigmoid_slope(tape.r, previous_h)
        for_gates, for_candidate = _split_dropout(dropped_h)
        back_gates, back_candidate = weights.transposed_recurrent_kernels

        def step(
            state: Tensors,
            to_z: tf.Tensor,
            to_g: tf.Tensor,
            to_h: tf.Tensor,
            to_r: tf.Tensor,
            r: tf.Tensor,
            *shown: tf.Tensor,
        ) -> tuple[Tensors, Tensors]:
            d_h = state[0] + shown[0] if shown else state[0]
            d_reset = gradient_of_inputs(d_h * to_g, back_candidate, for_candidate)
            d_gates = tf.concat([d_h * to_z, d_reset * to_r], axis=1)
            back = gradient_of_inputs(d_gates, back_gates, for_gates)
            return (d_h * to_h + d_reset * r + back,), (d_h, d_reset)

        elements = (to_z, to_g, to_h, to_r, tape.r, *shown)
        before, (d_h, d_reset) = scan(
            step, d_state, elements, [[self.units]] * 2, dtype=self.dtype, reverse=True
        )
        d_gates = tf.concat([d_h * to_z, d_reset * to_r], axis=-1)
        d_candidate = d_h * to_g
        d_kernel = tf.concat(
            [
                gradient_of_kernel(previous_h, d_gates, for_gates),
                gradient_of_kernel(tape.r * previous_h, d_candidate, for_candidate),
            ],
            axis=1,
        )
        return before, tf.concat([d_gates, d_candidate], axis=-1), (d_kernel,)


def _split_dropout(dropped: DropoutMask) -> tuple[DropoutMask, DropoutMask]:
    """The masks of z and r, and the mask of the candidate."""
    return (dropped[:2], dropped[2]) if isinstance(dropped, tuple) else (dropped, dropped)
