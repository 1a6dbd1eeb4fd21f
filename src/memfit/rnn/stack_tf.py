"""Runs of time-local layers in a model, taken segment by segment together.

Alone, a layer with `return_sequences` hands the next one a tensor `[batch, time, units]`, and gets its
gradient back. In a stack the segment goes through all layers before the next segment starts, so that
neither is ever there as a whole. This file finds the stacks in the graph of a Sequential or Functional model
and builds their blocks; a stack ends where the graph branches, and at every layer that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from memfit.rnn.internals_tf import (
    GraphNode,
    draw_dropout,
    forget_dropout,
    graph_nodes,
    is_known_loop,
    raw_value,
)
from memfit.rnn.paths_tf import Part, closed_part, path_of
from memfit.rnn.pointwise_tf import DropoutBlock, EmbeddingBlock, PointwiseBlock

POINTWISE = (
    keras.layers.Dense,
    keras.layers.Activation,
    keras.layers.ReLU,
    keras.layers.LeakyReLU,
    keras.layers.LayerNormalization,
    keras.layers.Masking,
    keras.layers.Identity,
)
"""Layers that treat every step alike and have neither state nor randomness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Layers that run together, from the inputs to the outputs; at least one is an RNN."""

    layers: tuple[keras.layers.Layer, ...]

    @property
    def return_sequences(self) -> bool:
        """Whether the outputs of all steps come out."""
        last = self.layers[-1]
        return not isinstance(last, keras.layers.RNN) or bool(last.return_sequences)


def find_stacks(functional: Any) -> list[Stack]:
    """All stacks of two layers or more in a functional model."""
    nodes, outputs = graph_nodes(functional)
    calls = Counter(id(node.layer) for node in nodes)
    uses = Counter(tensor for node in nodes for tensor in node.inputs)
    stacks: list[list[GraphNode]] = []
    ends: dict[int, list[GraphNode]] = {}  # by the tensor that a stack could go on from
    for node in nodes:
        if calls[id(node.layer)] > 1 or not node.is_plain or not is_time_local(node):
            continue
        run = ends.pop(node.inputs[0], [])
        if not run or not _shares_mask(run, node):
            run = []
            stacks.append(run)
        run.append(node)
        (result,) = node.outputs
        if uses[result] == 1 and result not in outputs and _has_time(node.layer):
            ends[result] = run
    found = [Stack(layers=tuple(node.layer for node in run)) for run in stacks if len(run) > 1]
    return [stack for stack in found if any(isinstance(layer, keras.layers.RNN) for layer in stack.layers)]


def _shares_mask(run: list[GraphNode], node: GraphNode) -> bool:
    """Whether all RNNs of a stack see the same mask, this one included."""
    recurrent = [each.mask for each in (*run, node) if isinstance(each.layer, keras.layers.RNN)]
    return len(set(recurrent)) <= 1


def _has_time(layer: keras.layers.Layer) -> bool:
    return not isinstance(layer, keras.layers.RNN) or bool(layer.return_sequences)


def is_time_local(node: GraphNode) -> bool:
    """Whether a call can be a part of a stack."""
    layer = node.layer
    if (
        not isinstance(layer, keras.layers.Layer)
        or layer.activity_regularizer is not None
        or len(node.outputs) != 1
    ):
        return False
    if type(layer) is keras.layers.Embedding:
        return len(node.input_shape) == 2 and _is_ordinary(layer)
    if len(node.input_shape) != 3:
        return False
    if isinstance(layer, keras.layers.RNN):
        is_simple = not (layer.stateful or layer.return_state or layer.go_backwards)
        is_known = is_known_loop(type(layer).inner_loop) and "inner_loop" not in vars(layer)
        return is_simple and is_known and path_of(layer).kind == "closed form"
    if type(layer) is keras.layers.Dropout:
        return layer.noise_shape is None
    if type(layer) is keras.layers.LayerNormalization:
        return layer.axis in (-1, 2, [-1], [2])
    return type(layer) in POINTWISE and _is_ordinary(layer)


def _is_ordinary(layer: keras.layers.Layer) -> bool:
    """Whether a layer computes with the weights that it lists: not quantized, no low-rank adapter."""
    return not getattr(layer, "lora_enabled", False) and layer.dtype_policy.quantization_mode is None


def parts_of(stack: Stack, inputs: tf.Tensor, *, training: bool, is_masked: bool) -> list[Part]:
    """The blocks of a stack with their values, for one call.

    Args:
        stack: The layers.
        inputs: What the first layer gets, `[batch, time, ...]`.
        training: Whether dropout drops.
        is_masked: Whether the RNNs see a mask.
    """
    batch_size = tf.shape(inputs)[0] if inputs.shape[0] is None else inputs.shape[0]
    width = inputs.shape[-1]
    parts: list[Part] = []
    for layer in stack.layers:
        part = _part(layer, batch_size, width, training=training, is_masked=is_masked)
        if part is None:
            continue
        parts.append(part)
        width = _width_after(layer, width)
    return parts


def _width_after(layer: keras.layers.Layer, width: int) -> int:
    if isinstance(layer, keras.layers.Embedding):
        return int(layer.output_dim)
    if isinstance(layer, keras.layers.RNN):
        return int(layer.cell.units)
    return int(layer.units) if isinstance(layer, keras.layers.Dense) else width


def _part(
    layer: keras.layers.Layer, batch_size: Any, width: int, *, training: bool, is_masked: bool
) -> Part | None:
    dtype = tf.as_dtype(layer.compute_dtype)
    if isinstance(layer, keras.layers.RNN):
        states = layer.get_initial_state(batch_size)
        draw_dropout(layer, tf.zeros([batch_size, width], dtype), states)
        part = closed_part(layer, states, training=training, is_masked=is_masked)
        forget_dropout(layer)
        return part
    if isinstance(layer, keras.layers.Embedding):
        return Part(
            EmbeddingBlock(width=layer.output_dim, dtype=dtype), (raw_value(layer.embeddings),), (), ()
        )
    if isinstance(layer, keras.layers.Dropout):
        if not training or layer.rate == 0:
            return None
        seed = tf.cast(layer.seed_generator.next(), tf.int64)
        seeds = tf.random.experimental.stateless_split(seed, batch_size)
        return Part(DropoutBlock(rate=layer.rate, width=width, dtype=dtype), (), (), seeds)
    variables: Sequence[keras.Variable] = layer.variables
    block = PointwiseBlock(layer=layer, variables=variables, width=_width_after(layer, width))
    return Part(block, tuple(raw_value(variable) for variable in variables), (), ())
