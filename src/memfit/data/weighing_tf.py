"""Weights by which each example counts alike over an epoch, whatever the size of its batch.

Keras takes the mean of a batch's losses, and makes one update with it. So an example among few counts for
more than one among many. Here each batch has a weight: how many examples it has, or steps where labels have a
value a step, over how many a batch has on average. The sum of an epoch's gradients is then that of random
batches, one number of examples in each.
"""

from __future__ import annotations

from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from memfit.data.leaves_tf import Leaf, Rows, mapped

# x, y and weights; what counts comes behind them.
NUM_PARTS: Final = 3


def is_summed(model: Any) -> bool:
    """Whether a model is compiled with a loss that is a sum over the batch, in which each counts alike."""
    if model is None or not getattr(model, "compiled", False):
        return False
    losses = keras.tree.flatten(model.loss)
    return any(isinstance(loss, keras.losses.Loss) and loss.reduction == "sum" for loss in losses)


def counts_of(weights: Any, most_steps: int | None) -> Any:
    """What each sequence counts for, for each of the weights: 1, or its steps where it has a weight a step.

    Args:
        weights: Dicts, tuples and leaves.
        most_steps: Where sequences are cut, or `None`.
    """

    def count(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Rows):
            return Rows(values=np.ones(int(leaf.values.shape[0]), np.float32))
        steps = leaf.lengths if most_steps is None else np.minimum(leaf.lengths, most_steps)
        return Rows(values=steps.astype(np.float32))

    return mapped(count, weights)


def means_of(counts: Any, num_batches: int) -> Any:
    """What a batch counts for on average, for each of the weights."""
    return mapped(lambda leaf: max(1.0, float(leaf.values.sum())) / num_batches, counts)


def weighed(batch: tuple[Any, ...], means: Any) -> tuple[Any, ...]:
    """A batch with its weights times what it counts for, over what a batch does on average.

    Args:
        batch: `(x, y, weights, counts)`.
        means: What a batch counts for on average, for each of the weights.
    """
    x, y, weights, counts = batch

    def times(weight: tf.Tensor, count: tf.Tensor, mean: float) -> tf.Tensor:
        return tf.cast(weight, tf.float32) * (tf.reduce_sum(count) / mean)

    return x, y, tf.nest.map_structure(times, weights, counts, means)
