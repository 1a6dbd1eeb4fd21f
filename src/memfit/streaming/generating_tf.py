"""Windows from a function of the user's that makes a generator of rows, anew for each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from memfit.errors import UsageError
from memfit.streaming.order_tf import shuffled
from memfit.streaming.rows_tf import TEXT_BYTES, Array, Leaf, describe_leaves


class GeneratedRows:
    """Rows that only come one after the other.

    Args:
        function: Called without arguments at the beginning of each pass; gives rows: `x`, `(x, y)` or
            `(x, y, weight)`, each a number, an array, text, or a dict or tuple of these.
        window_bytes: The most of a window.
        is_shuffled: Whether the rows of a window are mixed.
    """

    def __init__(
        self, function: Callable[[], Iterable[Any]], *, window_bytes: int, is_shuffled: bool
    ) -> None:
        self._function, self._window_bytes, self._is_shuffled = function, window_bytes, is_shuffled
        first = next(iter(function()), None)
        if first is None:
            raise UsageError(
                "the generator has no rows. Pass a function whose generator yields at least one."
            )
        self.structure = _with_arrays(first)
        arrays = tf.nest.flatten(self.structure)
        self.leaves = [Leaf(dtype=array.dtype, shape=array.shape) for array in arrays]
        self.row_bytes = _row_bytes(arrays)

    def windows(self, number: int) -> Iterator[tuple[Array, ...]]:
        """The windows of a pass, each with the order to use its rows in."""
        rows: list[list[Array]] = []
        num_bytes = index = 0
        for place, row in enumerate(self._function()):
            arrays = self._checked(row, place)
            size = _row_bytes(arrays)
            if rows and num_bytes + size > self._window_bytes:
                yield self._window(rows, number, index)
                rows, num_bytes, index = [], 0, index + 1
            rows.append(arrays)
            num_bytes += size
        if rows:
            yield self._window(rows, number, index)

    def _window(self, rows: list[list[Array]], number: int, index: int) -> tuple[Array, ...]:
        order = shuffled(len(rows), number, index) if self._is_shuffled else np.arange(len(rows))
        return (*(np.stack(column) for column in zip(*rows, strict=True)), order.astype(np.int64))

    def _checked(self, row: Any, place: int) -> list[Array]:
        arrays = tf.nest.flatten(_with_arrays(row))
        leaves = [Leaf(dtype=array.dtype, shape=array.shape) for array in arrays]
        if leaves != self.leaves:
            raise UsageError(
                f"row {place} of the generator is {describe_leaves(leaves)}, but the first is "
                f"{describe_leaves(self.leaves)}. Rows must be alike: pad them and give them one type."
            )
        return list(arrays)


def _with_arrays(row: Any) -> Any:
    """A row with arrays for leaves; a list is one."""
    if isinstance(row, tuple):
        return tuple(_with_arrays(each) for each in row)
    if isinstance(row, dict):
        return {name: _with_arrays(each) for name, each in row.items()}
    if isinstance(row, (str, bytes)):
        found = np.empty((), object)
        found[()] = row.encode() if isinstance(row, str) else row
        return found
    array = np.asarray(row)
    return array.astype(np.float32) if isinstance(row, float) else array


def _row_bytes(arrays: list[Array]) -> int:
    return sum(
        TEXT_BYTES + len(array[()]) if array.dtype == object and array.ndim == 0 else array.nbytes
        for array in arrays
    )
