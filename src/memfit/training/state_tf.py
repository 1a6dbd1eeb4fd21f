"""Everything that a training step may change, to go back to.

Reading a variable gives TensorFlow's own buffer, not a copy: it costs nothing until the optimizer writes new
values, and then the old ones stay for as long as the step lasts. By then the activations are gone. So a step
can be undone whole, wherever it died, and going back needs no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from memfit.splitting import internals_tf as internals


class State:
    """The variables of a model in training: weights, slots, counters, loss scale, seeds, metrics, statistics.

    Args:
        model: A built model.
        optimizer: Its optimizer, built, or `None`.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        found = [*model.variables, *model.metrics_variables, *internals.seed_states()]
        if optimizer is not None:
            found += optimizer.variables
        self._variables = list({id(each): each for each in found}.values())

    def read(self) -> list[tf.Tensor]:
        """The values now; also while tracing."""
        return [tf.convert_to_tensor(internals.raw(variable)) for variable in self._variables]

    def write(self, values: Sequence[tf.Tensor]) -> None:
        """Goes back to values that were read before."""
        for variable, value in zip(self._variables, values, strict=True):
            internals.raw(variable).assign(value)
