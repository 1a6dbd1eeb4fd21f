"""Of which shape each batch was that Keras trained on, noted by the training step itself.

Keras fetches a batch inside of a traced function, so no callback ever sees one, and the one that ran out of
memory is gone with it. So the step notes the shapes of its inputs in a small variable, by operations that are
traced after all others: what the step computes, with which random numbers, stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from math import prod
from typing import Any, Final
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from memfit.guarding.first_epoch import Shapes
from memfit.splitting import internals_tf as internals

MOST_INPUTS: Final = 8
MOST_AXES: Final = 8


class BatchShapes:
    """Notes the shapes of batches while it is installed."""

    def __init__(self) -> None:
        self._noted: WeakKeyDictionary[Any, tf.Variable] = WeakKeyDictionary()
        self._largest: WeakKeyDictionary[Any, Shapes] = WeakKeyDictionary()
        self._is_installed = False

    def install(self) -> None:
        """Takes the place of Keras's training step, which is run as it is."""
        keras.Model.train_step = self._noting(keras.Model.train_step)
        self._is_installed = True

    def undo(self) -> None:
        """Gives Keras its step back; functions that are traced already go on noting."""
        if self._is_installed:
            self._is_installed = False
            del keras.Model.train_step

    def went_well(self, model: Any) -> None:
        """The batch that was noted last is through."""
        last = self.last(model)
        if _num_elements(last) > _num_elements(self.largest(model)):
            self._largest[model] = last

    def last(self, model: Any) -> Shapes:
        """The shapes of the inputs of the last batch, whatever became of it; empty if they are not known."""
        noted = self._noted.get(model)
        return () if noted is None else tuple(_rows(noted.numpy()))

    def largest(self, model: Any) -> Shapes:
        """The same of the largest batch that went well."""
        return self._largest.get(model, ())

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def train_step(model: Any, data: Any) -> Any:
            result = original(model, data)
            if _can_note(model):
                self._note(model, keras.utils.unpack_x_y_sample_weight(data)[0])
            return result

        return train_step

    def _note(self, model: Any, inputs: Any) -> None:
        ranks = (
            (each, each.shape.rank) for each in keras.tree.flatten(inputs) if isinstance(each, tf.Tensor)
        )
        known = [(each, rank) for each, rank in ranks if rank is not None and 0 < rank <= MOST_AXES]
        rows = [
            tf.pad(tf.shape(each, tf.int64), [[0, MOST_AXES - rank]]) for each, rank in known[:MOST_INPUTS]
        ]
        if rows:
            noted = self._variable(model)
            noted.assign(tf.pad(tf.stack(rows), [[0, MOST_INPUTS - len(rows)], [0, 0]]))

    def _variable(self, model: Any) -> tf.Variable:
        if model not in self._noted:
            with tf.init_scope(), tf.device("CPU:0"):
                zeros = tf.zeros([MOST_INPUTS, MOST_AXES], tf.int64)
                self._noted[model] = tf.Variable(zeros, trainable=False)
        return self._noted[model]


def _can_note(model: Any) -> bool:
    # XLA compiles a step for one device, and replicas have batches of their own.
    return not model.jit_compile and not internals.is_replicated(model)


def _rows(noted: Any) -> Iterator[tuple[int, ...]]:
    for row in noted.tolist():
        axes = tuple(size for size in row if size)
        if axes:
            yield axes


def _num_elements(shapes: Shapes) -> int:
    return sum(map(prod, shapes))
