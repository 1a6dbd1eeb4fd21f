"""Which block runs a Keras RNN layer: a closed form, the general one, or none; and why.

A closed form is taken for exactly Keras's own cells with activations that it knows; a subclass may compute
anything. Whatever is not known goes to the general block, with a sentence that says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from memfit.rnn.block_tf import Block, Tensors
from memfit.rnn.cell_tf import CellBlock, masks_on, to_bits
from memfit.rnn.gru_tf import GruBlock
from memfit.rnn.internals_tf import dropout_cells, dropout_masks, raw_value, takes_training
from memfit.rnn.lstm_tf import LstmBlock
from memfit.rnn.masking_tf import nothing_seen
from memfit.rnn.repeating_tf import check_repeatable
from memfit.rnn.simple_tf import SLOPES, SimpleBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """How a layer runs.

    Args:
        layer_name: The layer.
        kind: "closed form", "general" or "plain".
        reason: Why it is not the better kind, a sentence; empty for a closed form.
    """

    layer_name: str
    kind: str
    reason: str = ""


class Part(NamedTuple):
    """A block with its values, for one call of a layer."""

    block: Block
    weights: Tensors
    states: Tensors
    noise: Any
    carried: Sequence[keras.Variable] = ()


def path_of(layer: keras.layers.RNN) -> Path:
    """The best path for a layer."""
    cell = layer.cell
    if not isinstance(cell, keras.layers.Layer):
        reason = f"its cell {type(cell).__name__} is not a keras.layers.Layer, so its weights are unknown"
        return Path(layer_name=layer.name, kind="plain", reason=reason)
    reason = _not_closed(cell)
    return Path(layer_name=layer.name, kind="general" if reason else "closed form", reason=reason)


def _not_closed(cell: keras.layers.Layer) -> str:
    kind = type(cell)
    if kind is keras.layers.SimpleRNNCell:
        if cell.activation in SLOPES:
            return ""
        return f"no closed form for activation {_name(cell.activation)}"
    if kind in (keras.layers.LSTMCell, keras.layers.GRUCell):
        if cell.activation is not keras.activations.tanh:
            return f"no closed form for activation {_name(cell.activation)}, only for tanh"
        if cell.recurrent_activation is not keras.activations.sigmoid:
            name = _name(cell.recurrent_activation)
            return f"no closed form for recurrent_activation {name}, only for sigmoid"
        return ""
    return (
        f"no closed form for the cell {kind.__name__}, only for Keras's LSTMCell, GRUCell and SimpleRNNCell"
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def closed_part(
    layer: keras.layers.RNN, states: Sequence[tf.Tensor], *, training: bool | None, is_masked: bool
) -> Part:
    """The closed-form block of a layer, with Keras's dropout masks of this call."""
    cell = layer.cell
    dtype = tf.as_dtype(cell.compute_dtype)
    shared = {"units": cell.units, "dtype": dtype, "zero_output": layer.zero_output_for_mask}
    if isinstance(cell, keras.layers.LSTMCell):
        block: Block = LstmBlock(**shared)
    elif isinstance(cell, keras.layers.GRUCell):
        block = GruBlock(**shared, reset_after=cell.reset_after)
    else:
        block = SimpleBlock(**shared, activation=cell.activation)
    weights = [cell.kernel, cell.recurrent_kernel, *([cell.bias] if cell.bias is not None else [])]
    seen = (nothing_seen(tf.shape(states[0])[0], dtype),) if is_masked else ()
    masks, recurrent_masks = dropout_masks(cell)
    noise: tuple[Any, Any] = (None, None)
    if training:
        noise = (_used(cell, cell.dropout, masks), _used(cell, cell.recurrent_dropout, recurrent_masks))
    return Part(block, tuple(raw_value(weight) for weight in weights), (*states, *seen), noise)


def _used(cell: keras.layers.Layer, rate: float, masks: Any) -> Any:
    """The masks that Keras would use; it ignores a rate of 1, but for SimpleRNN."""
    if rate == 1 and not isinstance(cell, keras.layers.SimpleRNNCell):
        return None
    return tuple(masks) if isinstance(masks, list) else masks


def general_part(
    layer: keras.layers.RNN,
    first: tf.Tensor,
    states: Sequence[Any],
    *,
    training: bool | None,
    is_masked: bool,
) -> Part:
    """The general block of a layer; `first` is the first step of its inputs.

    The cell is called once to see the shape of its output and which variables it changes. Keras does the
    same before its loop, so a cell that draws random numbers has drawn once by then, here as there.
    """
    cell = layer.cell
    trainable = list(cell.trainable_variables)
    others = [variable for variable in cell.variables if all(variable is not each for each in trainable)]
    noise = tuple(dropout_masks(each) for each in dropout_cells(cell))
    probe = CellBlock(
        cell=cell,
        training=training,
        states=list(states),
        variables=trainable,
        constants=[(variable, raw_value(variable)) for variable in others],
        output=first,
        is_masked=is_masked,
        zero_output=layer.zero_output_for_mask,
    )
    weights = tuple(raw_value(variable) for variable in trainable)
    flat = tuple(tf.nest.flatten(states))
    with masks_on(cell, noise):
        options = {"training": training} if takes_training(cell) else {}
        check_repeatable(f"the cell of {layer.name!r}", partial(cell, **options), first, list(states))
        output, changed = probe.trace(weights, first, flat)
    carried = [variable for variable, new in zip(others, changed, strict=True) if new is not None]
    constants = [constant for constant, new in zip(probe.constants, changed, strict=True) if new is None]
    block = dataclasses.replace(probe, carried=carried, constants=constants, output=output)
    previous = (tf.zeros_like(output),) if is_masked else ()
    if layer.unroll:
        values = [raw_value(variable) for variable in carried]
    else:
        values = [new for new in changed if new is not None]
    return Part(block, weights, (*flat, *previous, *map(to_bits, values)), noise, carried)
