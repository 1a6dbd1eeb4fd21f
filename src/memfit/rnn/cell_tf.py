"""Any Keras cell by slices of time: the slice is run under a `GradientTape` of its own.

The cell is called as a pure function. Its trainable weights come in as tensors; variables that it changes as
it goes (the seeds of a dropout inside it, moving averages) are carried as a part of its state, so that a
recomputed slice draws the same numbers and moves no average twice. Dropout masks that Keras draws once a
call are put back on the cell while it is traced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors, Widths
from memfit.rnn.internals_tf import dropout_cells, dropout_masks, set_dropout_masks, takes_training
from memfit.rnn.loop_tf import Loop

TAPE_OF_A_STATE = 9
"""What Keras's own loop keeps of a step, in states; measured on LSTM(256)."""


class CellTape(NamedTuple):
    """The recorded slice."""

    recorder: tf.GradientTape
    inputs: tf.Tensor
    state: Tensors
    outputs: tf.Tensor
    state_after: Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBlock:
    """Any cell by slices of time.

    Its state is the flat state of the cell; with a mask, the previous output; then the carried variables.

    Args:
        cell: A built cell.
        training: As in `cell.call`.
        states: The initial state of the cell, for its structure.
        variables: The trainable weights, in the order in which their values are given.
        carried: Variables that the cell changes.
        constants: Variables that it only reads, with their values.
        output: An output of the cell, for its dtype and shape.
        is_masked: Whether slices come with a mask.
        zero_output: Keras's `zero_output_for_mask`.
    """

    cell: keras.layers.Layer
    training: bool | None
    states: Any
    variables: Sequence[keras.Variable]
    carried: Sequence[keras.Variable] = ()
    constants: Sequence[tuple[keras.Variable, tf.Tensor]] = ()
    output: tf.Tensor
    is_masked: bool = False
    zero_output: bool = False

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the outputs."""
        return self.output.dtype

    @property
    def widths(self) -> Widths:
        """The state is known; the tape is taken for that of an LSTM of this size."""
        state = sum(math.prod(each.shape[1:]) for each in tf.nest.flatten(self.states))
        return Widths(state=state, tape=TAPE_OF_A_STATE * state, work=0)

    def prepare(self, weights: Tensors) -> Tensors:
        """The weights as they are: Keras casts them where they are used."""
        return weights

    def call(
        self, weights: Tensors, carried: Tensors, inputs: tf.Tensor, state: Tensors
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """One step of the cell as a pure function: output, new state, new values of what is carried."""
        values = [from_bits(bits, variable) for bits, variable in zip(carried, self.carried, strict=True)]
        known = [*zip(self.variables, weights, strict=True), *zip(self.carried, values, strict=True)]
        options = {"training": self.training} if takes_training(self.cell) else {}
        with keras.StatelessScope(state_mapping=[*known, *self.constants]) as scope:
            states = tf.nest.pack_sequence_as(self.states, state)
            output, new_states = self.cell(inputs, states, **options)
        new_values = tuple(to_bits(scope.get_current_value(variable)) for variable in self.carried)
        return output, tuple(tf.nest.flatten(new_states)), new_values

    def trace(
        self, weights: Tensors, inputs: tf.Tensor, state: Tensors
    ) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
        """An output of the cell, and for each of the `constants` its new value if the cell changes it."""
        options = {"training": self.training} if takes_training(self.cell) else {}
        known = [*zip(self.variables, weights, strict=True), *self.constants]
        with keras.StatelessScope(state_mapping=known) as scope:
            before = [scope.get_current_value(variable) for variable, _ in self.constants]
            output, _ = self.cell(inputs, tf.nest.pack_sequence_as(self.states, state), **options)
            after = [scope.get_current_value(variable) for variable, _ in self.constants]
        return output, [None if new is old else new for new, old in zip(after, before, strict=True)]

    def forward(
        self, weights: Tensors, noise: Any, state: Tensors, inputs: Slice, keep: bool
    ) -> tuple[Slice, Tensors, CellTape | None]:
        """The slice forward; see `Block.forward`."""
        if not keep:
            outputs, after = self._run(weights, noise, state, inputs)
            return Slice(outputs, inputs.mask, inputs.start), after, None
        with tf.GradientTape(watch_accessed_variables=False) as recorder:
            recorder.watch([value for value in (*weights, *state, inputs.values) if value.dtype.is_floating])
            outputs, after = self._run(weights, noise, state, inputs)
        tape = CellTape(recorder, inputs.values, state, outputs, after)
        return Slice(outputs, inputs.mask, inputs.start), after, tape

    def _run(self, weights: Tensors, noise: Any, state: Tensors, inputs: Slice) -> tuple[tf.Tensor, Tensors]:
        num_states = len(tf.nest.flatten(self.states))
        num_outputs = int(self.is_masked)

        def step(
            weights: Tensors, state: Tensors, inputs: tf.Tensor, *real: tf.Tensor
        ) -> tuple[Tensors, Tensors]:
            before, previous, carried = (
                state[:num_states],
                state[num_states : num_states + num_outputs],
                state[num_states + num_outputs :],
            )
            output, after, carried = self.call(weights, carried, inputs, before)
            if real:
                otherwise = tf.zeros_like(output) if self.zero_output else previous[0]
                output = _where(real[0], output, otherwise)
                after = tuple(_where(real[0], new, old) for new, old in zip(after, before, strict=True))
                previous = (output,)
            return (*after, *previous, *carried), (output,)

        elements = (inputs.values,) if inputs.mask is None else (inputs.values, inputs.mask)
        with masks_on(self.cell, noise):
            loop = Loop(body=step, shapes=(tuple(self.output.shape[1:]),), dtype=self.dtype)
            after, (outputs,) = loop(weights, state, elements)
        return outputs, after

    def backward(
        self, weights: Tensors, noise: Any, tape: CellTape, upstream: tf.Tensor | None, d_state: Tensors
    ) -> tuple[tf.Tensor | None, Tensors, Tensors]:
        """The slice backward; see `Block.backward`."""
        targets, gradients = list(tape.state_after), list(d_state)
        if upstream is not None:
            targets.append(tape.outputs)
            gradients.append(upstream)
        sources = (*tape.state, *weights, *((tape.inputs,) if tape.inputs.dtype.is_floating else ()))
        with masks_on(self.cell, noise):
            found = tape.recorder.gradient(
                targets,
                sources,
                output_gradients=gradients,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
        found = tuple(tf.convert_to_tensor(gradient) for gradient in found)
        d_before, rest = found[: len(d_state)], found[len(d_state) :]
        d_weights, d_inputs = rest[: len(weights)], rest[len(weights) :]
        return d_inputs[0] if d_inputs else None, d_before, d_weights


@contextmanager
def masks_on(cell: Any, noise: Any) -> Iterator[None]:
    """Has the cell use these dropout masks, and what it had before when the block is left."""
    cells = dropout_cells(cell)
    before = [dropout_masks(each) for each in cells]
    for each, masks in zip(cells, noise, strict=True):
        set_dropout_masks(each, masks)
    try:
        yield
    finally:
        for each, masks in zip(cells, before, strict=True):
            set_dropout_masks(each, masks)


def to_bits(value: tf.Tensor) -> tf.Tensor:
    """A value as floating point, bit for bit, so that it can go where states go."""
    value = tf.convert_to_tensor(value)
    if value.dtype.is_floating:
        return value
    if value.dtype == tf.bool:
        return tf.cast(value, tf.float32)
    return tf.bitcast(value, {4: tf.float32, 8: tf.float64}[value.dtype.size])


def from_bits(bits: tf.Tensor, variable: keras.Variable) -> tf.Tensor:
    """The inverse of `to_bits` for the value of a variable."""
    dtype = tf.as_dtype(variable.dtype)
    if dtype.is_floating:
        return bits
    return tf.cast(bits, dtype) if dtype == tf.bool else tf.bitcast(bits, dtype)


def _where(real: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """`new` for the examples whose step is real, else `old`."""
    return tf.where(tf.reshape(real, [-1] + [1] * (new.shape.rank - 1)), new, old)
