"""Runs blocks over a sequence by time segments: forward with borders kept, backward with one tape at a time.

The forward pass keeps the states at the start of every segment, and the tape of the last segment only. The
backward pass starts from that tape, then goes back segment by segment: recompute it from its border, walk it
back, add its weight gradients. With one segment nothing is recomputed and everything is kept. With two levels
a segment is itself walked back by segments.

The batch is cut into *lanes* that do not depend on each other. A chain of small matrix products runs on one
core however many there are; two chains run on two.

Where the borders are is decided by `segments`; what happens in a segment, by the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tensorflow as tf

from memfit.rnn.block_tf import Block, Tensors, with_compiled
from memfit.rnn.borders_tf import Borders
from memfit.rnn.internals_tf import with_gradient
from memfit.rnn.timeline_tf import Timeline
from memfit.rnn.walk_tf import Lane, States, Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run, and how, without any of the values.

    Args:
        blocks: From the inputs to the outputs.
        return_sequences: Whether the outputs of all steps are wanted, or only of the last.
        go_backwards: Whether the last step of the inputs comes first.
        num_lanes: Into how many independent parts the batch is cut.
        compiled: Whether the loops over the steps of a segment are compiled, where a block can do that. The
            last segment is not, if its length is unknown: it would be another one every time.
    """

    blocks: tuple[Block, ...]
    return_sequences: bool
    go_backwards: bool = False
    num_lanes: int = 1
    compiled: bool = False


@tf.autograph.experimental.do_not_convert
def run(
    program: Program,
    borders: Borders,
    inputs: tf.Tensor,
    mask: tf.Tensor | None,
    states: States,
    weights: tuple[Tensors, ...],
    noise: tuple[Any, ...],
) -> tuple[tf.Tensor, States]:
    """Outputs and final states of a program, with gradients by time segments.

    It must be called while a graph is built.

    Args:
        program: What to run.
        borders: Of the segments.
        inputs: `[batch, time, ...]`.
        mask: `[batch, time]` of booleans, or `None`.
        states: Initial states `[batch, ...]`, a tuple a block, empty for a block without.
        weights: A tuple a block. Gradients come back in their dtype, and are summed in it.
        noise: A structure a block of tensors `[batch, ...]`; no gradient goes into it.

    Returns:
        `[batch, time, ...]`, or `[batch, ...]` of the last step; and the final states, a tuple a block.
    """
    given = (inputs, states, weights)

    def function(*flat: tf.Tensor) -> tuple[Tensors, Any]:
        inputs, states, weights = tf.nest.pack_sequence_as(given, flat)
        parts = _cut((inputs, mask, states, noise), program.num_lanes)
        is_known = inputs.shape[1] is not None
        walk = Walk(
            blocks=tuple(with_compiled(block, program.compiled) for block in program.blocks),
            last_blocks=tuple(
                with_compiled(block, program.compiled and is_known) for block in program.blocks
            ),
            weights=tuple(block.prepare(each) for block, each in zip(program.blocks, weights, strict=True)),
            lanes=tuple(
                Lane(Timeline(values, real, program.go_backwards), masks) for values, real, _, masks in parts
            ),
            starts=borders.starts,
            return_sequences=program.return_sequences,
            keep_tapes=borders.keep_tapes,
            inner=borders.inner,
        )
        passed = walk.forward(tuple(part for _, _, part, _ in parts))
        results = _join(tuple(zip(passed.outputs, passed.states, strict=True)))

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            parts = _cut(tf.nest.pack_sequence_as(results, upstream), program.num_lanes)
            d_outputs, d_states = zip(*parts, strict=True)
            found = walk.backward(passed, d_outputs, d_states, weights)
            d_inputs = None if found.inputs is None else _join(found.inputs)
            return [d_inputs, *tf.nest.flatten(_join(found.states)), *tf.nest.flatten(found.weights)]

        return tuple(tf.nest.flatten(results)), gradient

    results = with_gradient(function, *tf.nest.flatten(given))
    outputs, final = tf.nest.pack_sequence_as((inputs, states), results)
    return outputs, final


def _cut(structure: Any, num_lanes: int) -> list[Any]:
    """The structure in parts along the batch, which is the first axis of every tensor in it."""
    if num_lanes == 1:
        return [structure]
    first = tf.nest.flatten(structure)[0]
    size = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
    bounds = [size * lane // num_lanes for lane in range(num_lanes + 1)]

    def part(begin: Any, end: Any) -> Any:
        return tf.nest.map_structure(lambda each: None if each is None else each[begin:end], structure)

    return [part(begin, end) for begin, end in pairwise(bounds)]


def _join(parts: tuple[Any, ...]) -> Any:
    """The inverse of `_cut`."""
    if len(parts) == 1:
        return parts[0]
    return tf.nest.map_structure(lambda *each: tf.concat(each, axis=0), *parts)
