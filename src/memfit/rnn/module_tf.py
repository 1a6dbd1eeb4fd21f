"""Cells that are no Keras layers, TensorFlow 1's `rnn_cell`s among them, on the general block.

Such a cell reads its `tf.Variable`s itself. To make it a pure function of them, tensors take their places in
the attributes of the cell, and of the cells inside it, while it is traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from memfit.errors import UsageError
from memfit.rnn.block_tf import Tensors
from memfit.rnn.borders_tf import borders_of
from memfit.rnn.cell_tf import CellBlock
from memfit.rnn.engine_tf import Program, run
from memfit.rnn.repeating_tf import check_repeatable

FUNCTIONS: Final = "_memfit_functions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCellBlock(CellBlock):
    """Any `cell(inputs, state)` whose variables are attributes of it or of the modules inside it."""

    def call(
        self, weights: Tensors, carried: Tensors, inputs: tf.Tensor, state: Tensors
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """One step of the cell, with tensors in the places of its variables."""
        with tensors_in_place(self.cell, self.variables, weights):
            output, after = self.cell(inputs, tf.nest.pack_sequence_as(self.states, state))
        return output, tuple(tf.nest.flatten(after)), carried


def run_module_cell(
    cell: Any, values: tf.Tensor, mask: tf.Tensor | None, state: Any, segment: int | None
) -> tuple[tf.Tensor, Any]:
    """Outputs `[batch, time, ...]` and the final state of a cell over a sequence."""
    if not tf.executing_eagerly():
        return _run(cell, values, mask, state, segment)
    functions = vars(cell).setdefault(FUNCTIONS, {})
    if segment not in functions:

        def function(values: tf.Tensor, mask: tf.Tensor | None, state: Any) -> tuple[tf.Tensor, Any]:
            return _run(cell, values, mask, state, segment)

        _step(cell, values, state)  # A cell makes its variables when it is first called.
        functions[segment] = tf.function(function, reduce_retracing=True, autograph=False)
    outputs, state = functions[segment](values, mask, state)
    return outputs, state


def _run(
    cell: Any, values: tf.Tensor, mask: tf.Tensor | None, state: Any, segment: int | None
) -> tuple[tf.Tensor, Any]:
    output = _step(cell, values, state)
    check_repeatable(f"the cell {type(cell).__name__}", cell, values[:, 0], state)
    variables = _variables(cell)
    weights = tuple(tf.convert_to_tensor(variable) for variable in variables)
    flat = tuple(tf.nest.flatten(state))
    block = ModuleCellBlock(
        cell=cell,
        training=None,
        states=state,
        variables=variables,
        output=output,
        is_masked=mask is not None,
        zero_output=True,
    )
    previous = (tf.zeros_like(output),) if mask is not None else ()
    borders = borders_of(values, (block,), segment, can_keep=False)
    program = Program(blocks=(block,), return_sequences=True)
    outputs, (after,) = run(program, borders, values, mask, ((*flat, *previous),), (weights,), ((),))
    return outputs, tf.nest.pack_sequence_as(state, after[: len(flat)])


def _step(cell: Any, values: tf.Tensor, state: Any) -> tf.Tensor:
    """The output of one step: the cell makes its variables, and shows what it is made of."""
    output, _ = cell(values[:, 0], state)
    return output


def _variables(cell: Any) -> list[tf.Variable]:
    if not isinstance(cell, tf.Module):
        raise UsageError(
            f"the variables of a {type(cell).__name__} cannot be found: it is neither a Keras layer nor a "
            "tf.Module. Derive the cell from one of them."
        )
    # Not `cell.trainable_variables`: TensorFlow 1's wrappers do not tell of what they wrap.
    found = {id(variable): variable for _, _, variable in _places(cell) if variable.trainable}
    return list(found.values())


def _places(cell: tf.Module) -> list[tuple[dict[str, Any], str, tf.Variable]]:
    """Where a module and those inside it have variables: attributes, name, variable."""
    return [
        (vars(module), name, value)
        for module in (cell, *cell.submodules)
        for name, value in vars(module).items()
        if isinstance(value, tf.Variable)
    ]


@contextmanager
def tensors_in_place(cell: tf.Module, variables: Sequence[tf.Variable], tensors: Tensors) -> Iterator[None]:
    """Puts tensors where a module and those inside it have variables, and the variables back afterwards."""
    tensor_of = {id(variable): tensor for variable, tensor in zip(variables, tensors, strict=True)}
    places = [place for place in _places(cell) if id(place[2]) in tensor_of]
    for attributes, name, variable in places:
        attributes[name] = tensor_of[id(variable)]
    try:
        yield
    finally:
        for attributes, name, variable in places:
            attributes[name] = variable
