"""The sum of gradients over micro-batches, kept in the loop that computes them.

A dense gradient is added as soon as it is there, and a variable without one costs nothing at the end. A
sparse one (the rows of an embedding table) is kept as rows, in the order in which the whole batch would have
them: Keras's optimizers do not treat rows and tables alike, and a table may be far larger than the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


class SparseGradient(Exception):  # noqa: N818
    """Says while tracing that some gradients are sparse, so that room for rows is made for them.

    Args:
        rows: By the place of the variable, the type of its row numbers.
    """

    def __init__(self, rows: Mapping[int, tf.DType]) -> None:
        super().__init__("some gradients are sparse")
        self.rows = rows


class Gradients:
    """Room for the gradients of some variables.

    Args:
        variables: Keras variables.
        rows: By the place of a variable whose gradient is sparse, the type of its row numbers.
    """

    def __init__(self, variables: Sequence[Any], rows: Mapping[int, tf.DType]) -> None:
        self._variables = variables
        self._rows = rows
        self._missing: set[int] = set()

    def zeros(self, num_parts: Any) -> list[Any]:
        """The sums before the first micro-batch, of which there will be `num_parts`."""
        return [
            _empty_rows(variable, self._rows[place], num_parts)
            if place in self._rows
            else tf.zeros(variable.shape, variable.dtype)
            for place, variable in enumerate(self._variables)
        ]

    def add(self, sums: list[Any], found: list[Any], index: tf.Tensor) -> list[Any]:
        """The sums with the gradients of micro-batch number `index`."""
        sparse = {
            place: gradient.indices.dtype
            for place, gradient in enumerate(found)
            if isinstance(gradient, tf.IndexedSlices)
        }
        if sparse.keys() - self._rows.keys():
            raise SparseGradient(sparse)
        return [self._added(place, one, found[place], index) for place, one in enumerate(sums)]

    def _added(self, place: int, one: Any, gradient: Any, index: tf.Tensor) -> Any:
        if gradient is None:
            self._missing.add(place)
            return one
        if place not in self._rows:
            return one + tf.cast(gradient, one.dtype)
        values, rows = one
        return values.write(index, gradient.values), rows.write(index, gradient.indices)

    def whole(self, sums: list[Any]) -> list[Any]:
        """The gradients of the whole batch; `None` where there is none."""
        return [
            None if place in self._missing else self._finished(place, one) for place, one in enumerate(sums)
        ]

    def _finished(self, place: int, one: Any) -> Any:
        if place not in self._rows:
            return one
        values, rows = one
        shape = tf.constant(list(self._variables[place].shape))
        return tf.IndexedSlices(values.concat(), rows.concat(), dense_shape=shape)


def _empty_rows(variable: Any, index_type: tf.DType, num_parts: Any) -> tuple[Any, Any]:
    values = tf.TensorArray(
        variable.dtype, num_parts, infer_shape=False, element_shape=[None, *variable.shape[1:]]
    )
    return values, tf.TensorArray(index_type, num_parts, infer_shape=False, element_shape=[None])
