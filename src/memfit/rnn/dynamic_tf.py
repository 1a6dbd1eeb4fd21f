"""`memfit.dynamic_rnn`: what `tf.compat.v1.nn.dynamic_rnn` did, by time segments and only as far as needed.

Keras cells run as a Keras RNN layer on the engine. Other cells, such as TensorFlow 1's `rnn_cell`s, are
called as pure functions: tensors stand in for their variables while a segment is recorded. Steps past the
longest sequence of the batch are not run at all.
"""

from __future__ import annotations

from typing import Any, Final

import keras
import tensorflow as tf

from memfit.errors import UsageError
from memfit.rnn import segments
from memfit.rnn.layer_tf import checkpoint_layer
from memfit.rnn.module_tf import run_module_cell
from memfit.rnn.timeline_tf import time_first

LAYERS: Final = "_memfit_layers"


def dynamic_rnn(
    cell: Any,
    inputs: tf.Tensor,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,  # noqa: ARG001 - segments run in order
    swap_memory: bool = False,  # noqa: ARG001 - it has done nothing in TensorFlow 2
    time_major: bool = False,
    scope: str | None = None,
    *,
    segment: int | None = None,
) -> tuple[tf.Tensor, Any]:
    """Runs a cell over time, as `tf.compat.v1.nn.dynamic_rnn` does, with a fraction of its memory.

    Args:
        cell: A Keras cell, or any callable `cell(inputs, state) -> (output, new_state)` with a `state_size`
            whose variables are found as a `tf.Module`'s, such as TensorFlow 1's `rnn_cell`s.
        inputs: `[batch, time, ...]`, or `[time, batch, ...]` with `time_major`.
        sequence_length: The real steps of each example, or `None` for all. Outputs past them are zero, and
            the state is that of the last real step. Steps past the longest are not run.
        initial_state: A structure like `cell.state_size`, or `None` for zeros.
        dtype: Of the initial state, where none is given; by default that of the inputs.
        parallel_iterations: Accepted, and without effect: segments run in order.
        swap_memory: Accepted, and without effect, as in TensorFlow 2.
        time_major: Whether time is the first axis of inputs and outputs.
        scope: A name for the operations.
        segment: Steps of a segment; `None` chooses from the length.

    Returns:
        Outputs, and the final state in the structure of `cell.state_size`.

    Raises:
        UsageError: If an argument cannot be right.

    Example:

    ```python
    outputs, state = memfit.dynamic_rnn(keras.layers.LSTMCell(256), inputs, sequence_length=lengths)
    ```
    """
    if segment is not None:
        segments.check_steps("segment", segment)
    if not hasattr(cell, "state_size") or not callable(cell):
        raise UsageError(
            f"a cell is called as cell(inputs, state) and has a state_size. Received: {cell!r}. "
            "Pass keras.layers.LSTMCell(units), for example."
        )
    if not tf.executing_eagerly() and not tf.compat.v1.control_flow_v2_enabled():
        raise UsageError(
            "the loops of TensorFlow 1 cannot be recomputed by segments. Before the graph is built, call "
            "tf.compat.v1.enable_control_flow_v2()."
        )
    with tf.name_scope(scope or "rnn"):
        inputs = tf.convert_to_tensor(inputs)
        values = time_first(inputs) if time_major else inputs
        values, mask, length = _as_far_as_needed(values, sequence_length)
        state = _initial(cell, initial_state, values, dtype)
        if isinstance(cell, keras.layers.Layer):
            outputs, state = _run_keras_cell(cell, values, mask, state, segment)
        else:
            outputs, state = run_module_cell(cell, values, mask, state, segment)
        outputs = _padded(outputs, length)
        return (time_first(outputs) if time_major else outputs), state


def _as_far_as_needed(
    values: tf.Tensor, sequence_length: Any
) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor]:
    """The steps up to the longest sequence, the mask of what is real in them, and the length of all."""
    length = tf.shape(values)[1]
    if sequence_length is None:
        return values, None, length
    lengths = tf.convert_to_tensor(sequence_length)
    if lengths.shape.rank != 1 or not lengths.dtype.is_integer:
        raise UsageError(
            "sequence_length is one whole number for each example. "
            f"Received: shape {lengths.shape}, {lengths.dtype.name}."
        )
    lengths = tf.minimum(tf.cast(lengths, tf.int32), length)
    # Of no step at all there would be no output to see the shape of.
    needed = tf.maximum(tf.reduce_max(lengths), tf.minimum(length, 1))
    return values[:, :needed], tf.sequence_mask(lengths, needed), length


def _initial(cell: Any, initial_state: Any, values: tf.Tensor, dtype: Any) -> Any:
    if initial_state is not None:
        return tf.nest.map_structure(tf.convert_to_tensor, initial_state)
    batch_size = tf.shape(values)[0] if values.shape[0] is None else values.shape[0]
    dtype = tf.as_dtype(dtype or values.dtype)
    if isinstance(cell, keras.layers.Layer):
        dtype = tf.as_dtype(cell.compute_dtype)

    def zeros(size: Any) -> tf.Tensor:
        return tf.zeros([batch_size, *tf.TensorShape(size).as_list()], dtype)

    return tf.nest.map_structure(zeros, cell.state_size)


def _run_keras_cell(
    cell: keras.layers.Layer, values: tf.Tensor, mask: tf.Tensor | None, state: Any, segment: int | None
) -> tuple[tf.Tensor, Any]:
    layer = _layer_of(cell, segment)
    flat = state if isinstance(state, (list, tuple)) else [state]
    outputs, *after = layer(values, initial_state=list(flat), mask=mask)
    return outputs, tf.nest.pack_sequence_as(state, tf.nest.flatten(after))


def _layer_of(cell: keras.layers.Layer, segment: int | None) -> keras.layers.RNN:
    """The layer that runs a cell. It stays with its cell, so that calls in a loop trace once."""
    layers = vars(cell).get(LAYERS, {})
    if segment not in layers:
        layer = keras.layers.RNN(cell, return_sequences=True, return_state=True, zero_output_for_mask=True)
        checkpoint_layer(layer, segment)
        object.__setattr__(cell, LAYERS, {**layers, segment: layer})
    return vars(cell)[LAYERS][segment]


def _padded(outputs: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The outputs with zeros up to the length."""
    missing = length - tf.shape(outputs)[1]
    return tf.pad(outputs, [[0, 0], [0, missing], *[[0, 0]] * (outputs.shape.rank - 2)])
