"""Everything that a training step may change, to go back to.

Reading a variable gives TensorFlow's own buffer, not a copy: it costs nothing until the optimizer writes new
values, and then the old ones stay for as long as the step lasts. By then the activations are gone. So a step
can be undone whole, wherever it died, and going back needs no memory.

Where weights and slots do not fit twice, they are not kept. Then a step can be undone until the optimizer
begins its update, which a mark tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from memfit.measuring import device_tf
from memfit.planning.search import fits_twice
from memfit.splitting import internals_tf as internals
from memfit.splitting.marking_tf import marked

LOST: Final = (
    "memory ran out while the optimizer updated the weights, and their old values were not kept, since both "
    "do not fit the budget: some weights are updated, some are not. Go on from a checkpoint (resume=), take "
    "an optimizer with fewer slots, or give more memory."
)


class State:
    """The variables of a model in training: weights, slots, counters, loss scale, seeds, metrics, statistics.

    Args:
        model: A built model.
        optimizer: Its optimizer, built, or `None`.
        line_bytes: What the device may use. If weights and slots do not fit into it twice, they are not kept.
        before: The state as it was found earlier, when the model had fewer variables.
    """

    def __init__(self, model: Any, optimizer: Any, line_bytes: int, before: State | None = None) -> None:
        found = [*model.variables, *model.metrics_variables, *internals.seed_states()]
        if optimizer is not None:
            found += optimizer.variables
        variables = {id(each): each for each in found}
        updated = {} if optimizer is None else {id(each): each for each in _updated(model, optimizer)}
        if before is None:
            self.is_lean = not _fit_twice(variables, updated, line_bytes)
            self._has_begun = tf.Variable(False, trainable=False) if self.is_lean else None
        else:
            self.is_lean, self._has_begun = before.is_lean, before._has_begun
        self._variables = [each for key, each in variables.items() if not (self.is_lean and key in updated)]
        self._optimizer = optimizer

    def read(self) -> list[tf.Tensor]:
        """The values now; also while tracing."""
        if self._has_begun is not None:
            self._has_begun.assign(False)
        return [tf.convert_to_tensor(internals.raw(variable)) for variable in self._variables]

    def write(self, values: Sequence[tf.Tensor]) -> None:
        """Goes back to values that were read before."""
        for variable, value in zip(self._variables, values, strict=True):
            internals.raw(variable).assign(value)

    def is_lost(self) -> bool:
        """Whether the optimizer has begun an update that cannot be undone."""
        return self._has_begun is not None and bool(self._has_begun)

    def marked(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step that says when the optimizer begins, if that must be known."""
        if self._has_begun is None:
            return step
        return marked(step, self._optimizer, self._has_begun)


def _updated(model: Any, optimizer: Any) -> list[Any]:
    """What the optimizer updates: weights, and its slots but for counters."""
    return [*model.trainable_variables, *(each for each in optimizer.variables if len(each.shape))]


def _fit_twice(variables: dict[int, Any], updated: dict[int, Any], line_bytes: int) -> bool:
    resting_bytes = _num_bytes(variables.values())
    if device_tf.has_true_meter() or tf.config.list_logical_devices("GPU"):
        current = [figures.current_bytes for figures in device_tf.read_figures()]
        resting_bytes = max([resting_bytes, *current])
    return fits_twice(resting_bytes, _num_bytes(updated.values()), line_bytes)


def _num_bytes(variables: Any) -> int:
    return sum(
        int(np.prod(each.shape, dtype=np.int64)) * int(tf.as_dtype(each.dtype).size) for each in variables
    )
