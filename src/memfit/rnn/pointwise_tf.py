"""Layers that treat every time step alike, as blocks: what stands between and around the cells of a stack.

`PointwiseBlock` runs any such layer and walks it back with a `GradientTape`. Embeddings and dropout have
blocks of their own: the gradient of a table stays sparse, and a dropout mask is drawn again, not kept.
"""

# ruff: noqa: ARG002 (a block is given what the protocol says, whether it needs it or not)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from memfit.rnn.block_tf import Slice, Tensors, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseBlock:
    """A layer without state or randomness that works on the last axis.

    Args:
        layer: A built layer.
        variables: Its weights, in the order in which their values are given.
        width: Of its outputs.
    """

    layer: keras.layers.Layer
    variables: Sequence[keras.Variable]
    width: int

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the outputs."""
        return tf.as_dtype(self.layer.compute_dtype)

    @property
    def widths(self) -> Widths:
        """Inputs are the outputs of the block before, so only its own work counts."""
        return Widths(state=0, tape=self.width, work=3 * self.width)

    def prepare(self, weights: Tensors) -> Tensors:
        """The weights as they are: Keras casts them where they are used."""
        return weights

    def _call(self, weights: Tensors, values: tf.Tensor) -> tf.Tensor:
        with keras.StatelessScope(state_mapping=list(zip(self.variables, weights, strict=True))):
            return self.layer(values)

    def forward(
        self, weights: Tensors, noise: Any, state: Tensors, inputs: Slice, keep: bool
    ) -> tuple[Slice, Tensors, tf.Tensor | None]:
        """The slice forward; see `Block.forward`. The tape is the inputs."""
        values = self._call(weights, inputs.values)
        return Slice(values, inputs.mask, inputs.start), state, inputs.values if keep else None

    def backward(
        self, weights: Tensors, noise: Any, tape: tf.Tensor, upstream: tf.Tensor, d_state: Tensors
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """The slice backward; see `Block.backward`."""
        with tf.GradientTape(watch_accessed_variables=False) as recorder:
            recorder.watch((tape, *weights))
            values = self._call(weights, tape)
        d_inputs, *d_weights = recorder.gradient(
            values,
            (tape, *weights),
            output_gradients=upstream,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return d_inputs, d_state, tuple(d_weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingBlock:
    """`keras.layers.Embedding`; the gradient of its table comes as the rows that were looked up."""

    width: int
    dtype: tf.DType

    @property
    def widths(self) -> Widths:
        """The looked-up rows, and their gradient."""
        return Widths(state=0, tape=self.width, work=2 * self.width)

    def prepare(self, weights: Tensors) -> tf.Tensor:
        """The table."""
        return weights[0]

    def forward(
        self, weights: tf.Tensor, noise: Any, state: Tensors, inputs: Slice, keep: bool
    ) -> tuple[Slice, Tensors, tf.Tensor | None]:
        """The slice forward; see `Block.forward`. The tape is the indices."""
        values = tf.cast(tf.gather(weights, inputs.values), self.dtype)
        return Slice(values, inputs.mask, inputs.start), state, inputs.values if keep else None

    def backward(
        self, weights: tf.Tensor, noise: Any, tape: tf.Tensor, upstream: tf.Tensor, d_state: Tensors
    ) -> tuple[None, Tensors, tuple[tf.IndexedSlices]]:
        """The slice backward; see `Block.backward`."""
        rows = tf.reshape(tf.cast(upstream, weights.dtype), [tf.size(tape), self.width])
        return None, d_state, (tf.IndexedSlices(rows, tf.reshape(tape, [-1]), tf.shape(weights)),)


class DropoutTape(NamedTuple):
    """The seed of a slice."""

    seed: tf.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class DropoutBlock:
    """`keras.layers.Dropout` while training.

    Its noise is a seed an example, `[batch, 2]`; a slice uses that of its first example, with its start
    folded in. So lanes and segments draw different masks, and a recomputed slice the same one.
    """

    rate: float
    width: int
    dtype: tf.DType

    @property
    def widths(self) -> Widths:
        """The mask is drawn again."""
        return Widths(state=0, tape=self.width, work=2 * self.width)

    def prepare(self, weights: Tensors) -> Tensors:
        """There are none."""
        return weights

    def _drop(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.nn.experimental.stateless_dropout(values, self.rate, seed)

    def forward(
        self, weights: Tensors, noise: tf.Tensor, state: Tensors, inputs: Slice, keep: bool
    ) -> tuple[Slice, Tensors, DropoutTape | None]:
        """The slice forward; see `Block.forward`."""
        first = tf.reduce_sum(noise[:1], axis=0)  # of no example: zeros
        seed = tf.random.experimental.stateless_fold_in(first, inputs.start)
        values = self._drop(inputs.values, seed)
        return Slice(values, inputs.mask, inputs.start), state, DropoutTape(seed) if keep else None

    def backward(
        self,
        weights: Tensors,
        noise: tf.Tensor,
        tape: DropoutTape,
        upstream: tf.Tensor,
        d_state: Tensors,
    ) -> tuple[tf.Tensor, Tensors, Tensors]:
        """The slice backward; see `Block.backward`: dropping is linear, so it is its own gradient."""
        return self._drop(upstream, tape.seed), d_state, ()
