"""Sums into a table in place against TensorFlow's own scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from memfit.rnn.rows_tf import add_rows, no_rows

TABLE = tf.constant(np.arange(12.0).reshape(6, 2), tf.float32)
VALUES = tf.constant(np.random.RandomState(0).randn(3, 2), tf.float32)
INDICES = [tf.constant([1, 1, 5]), tf.constant([0, 1, 1])]


def in_place(values: tf.Tensor) -> tf.Tensor:
    total = no_rows(TABLE)
    for indices in INDICES:
        total = add_rows(total, tf.IndexedSlices(values, indices, tf.shape(TABLE)))
    return total


def by_scatter(values: tf.Tensor) -> tf.Tensor:
    total = tf.zeros_like(TABLE)
    for indices in INDICES:
        total = tf.tensor_scatter_nd_add(total, indices[:, tf.newaxis], values)
    return total


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_rows_of_every_dtype_are_summed(dtype: str) -> None:
    rows = tf.IndexedSlices(tf.ones((4, 2), dtype), tf.constant([2, 0, 2, 2]), [3, 2])
    found = tf.function(lambda: add_rows(no_rows(tf.zeros((3, 2), dtype)), rows))()
    np.testing.assert_array_equal(found, [[1, 1], [0, 0], [3, 3]])


def test_every_call_starts_from_nothing() -> None:
    """Written into a constant of the graph, the second call would add to what the first left there."""
    summed = tf.function(in_place)
    for _ in range(3):
        np.testing.assert_allclose(summed(VALUES), by_scatter(VALUES), rtol=1e-6)


def test_gradients_of_a_sum_of_rows() -> None:
    def slope(function: Any) -> Any:
        @tf.function
        def run(values: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(values)
                loss = tf.reduce_sum(function(values) ** 2)
            return tape.gradient(loss, values)

        return run(VALUES)

    np.testing.assert_allclose(slope(in_place), slope(by_scatter), rtol=1e-5)
