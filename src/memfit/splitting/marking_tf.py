"""A mark that the optimizer has begun its update, for steps whose old weights are not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from memfit.splitting import internals_tf as internals


def marked(step: Callable[[Any], Any], optimizer: Any, has_begun: tf.Variable) -> Callable[[Any], Any]:
    """A step that sets a variable once all gradients are there, and only then updates.

    So all gradients are held at once: the step takes more memory than without the mark.

    Args:
        step: The step of a batch.
        optimizer: The optimizer that it updates with.
        has_begun: Is set.
    """

    def mark(gradients: Any) -> Any:
        with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True)):
            set_ = has_begun.assign(True)
        with tf.control_dependencies([set_]):
            return tf.nest.map_structure(tf.identity, gradients, expand_composites=True)

    def run(batch: Any) -> Any:
        with internals.before_update(optimizer, mark):
            return step(batch)

    return run
