"""The gradient of an embedding table, summed in place.

A segment looks up few rows of a large table. `tf.tensor_scatter_nd_add` copies the table for every sum, and
in a loop two or three copies of it are alive. `InplaceAdd` writes into the buffer that it is given, so that
buffer must be nobody else's: `no_rows` makes it at run time; zeros could be a constant of the graph.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from memfit.rnn.internals_tf import with_gradient


def no_rows(table: tf.Tensor) -> tf.Tensor:
    """Zeros like the table, in a buffer of their own."""
    return tf.ensure_shape(tf.raw_ops.Empty(shape=tf.shape(table), dtype=table.dtype, init=True), table.shape)


def add_rows(total: tf.Tensor, rows: tf.IndexedSlices) -> tf.Tensor:
    """`total` with the rows added; it must come from `no_rows` or `add_rows`, and not be used again."""

    def function(total: tf.Tensor, values: tf.Tensor) -> tuple[tuple[tf.Tensor], Any]:
        added = tf.raw_ops.InplaceAdd(x=total, i=tf.cast(rows.indices, tf.int32), v=values)
        return (added,), lambda upstream: [upstream, tf.gather(upstream, rows.indices)]

    (added,) = with_gradient(function, total, rows.values)
    return added
