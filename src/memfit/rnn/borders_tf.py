"""The borders of a call: the schedule of `segments` for a known length, its formula for an unknown one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from memfit.rnn import segments
from memfit.rnn.block_tf import Block
from memfit.rnn.segments import StepCost

KEPT_SEGMENT = 32
"""Steps of a segment when all tapes are kept: enough for large products, few enough for small temporaries."""


USUAL_BATCH = 32
"""What a batch is taken for whose size is not known while tracing."""


class Borders(NamedTuple):
    """Where the segments start, and whether their tapes are kept.

    Args:
        starts: First step of every segment, and the length as the last entry, int32.
        keep_tapes: Whether nothing is to be recomputed.
        inner: With two levels, the steps of the segments inside a segment.
    """

    starts: tf.Tensor
    keep_tapes: bool = False
    inner: int | None = None


def cost_of(blocks: Sequence[Block]) -> StepCost:
    """What one step of one example holds.

    All blocks keep their tape of a segment; they are walked back one after the other.
    """
    state = sum(block.widths.state * block.dtype.size for block in blocks)
    tape = sum(block.widths.tape * block.dtype.size for block in blocks)
    work = max(block.widths.work * block.dtype.size for block in blocks)
    return StepCost(state_bytes=max(state, 1), tape_bytes=tape + work)


def borders_of(inputs: tf.Tensor, blocks: Sequence[Block], segment: int | None, *, can_keep: bool) -> Borders:
    """The borders for `[batch, time, ...]` inputs.

    Args:
        inputs: What the first block gets.
        blocks: What runs.
        segment: Steps of a segment; `None` chooses; the length or more recomputes nothing.
        can_keep: Whether the tapes of all blocks are tensors, so that many segments of them can be kept.
    """
    cost = cost_of(blocks)
    batch, length = inputs.shape[0] or USUAL_BATCH, inputs.shape[1]
    shortest = segments.shortest_for(batch * cost.tape_bytes)
    if length is None:
        return Borders(_unknown(tf.shape(inputs)[1], cost, segment, shortest))
    if segment is not None and segment >= length:
        pieces = KEPT_SEGMENT if can_keep else length
        return Borders(tf.constant(segments.equal(length, pieces).starts), keep_tapes=can_keep)
    schedule = segments.choose(length, cost, segment=segment, shortest=shortest)
    return Borders(tf.constant(schedule.starts), inner=schedule.inner)


def _unknown(length: tf.Tensor, cost: StepCost, segment: int | None, shortest: int) -> tf.Tensor:
    """Equal segments for a length that only the running graph knows.

    When they are chosen here, their length is `shortest` times a power of two, so that the lengths of a whole
    data set come down to a few that have to be compiled.
    """
    if segment is None:
        best = tf.sqrt(tf.cast(length, tf.float32) / cost.tape_states)
        doublings = tf.round(tf.math.log(best / shortest) / math.log(2))
        steps = shortest * tf.cast(2 ** tf.maximum(doublings, 0), tf.int32)
    else:
        steps = tf.constant(segment)
    num_segments = tf.maximum((length + steps - 1) // steps, 1)
    return tf.minimum(tf.range(num_segments + 1) * steps, length)
