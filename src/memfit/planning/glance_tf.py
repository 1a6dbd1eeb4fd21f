"""Whether a model is so small against the budget that nobody needs to measure it."""

from __future__ import annotations

from typing import Any, Final

import keras

from memfit.estimating.batches_tf import Batches
from memfit.planning.bench_tf import bytes_of
from memfit.splitting import internals_tf as internals

# Generous: an LSTM's step keeps a dozen tensors of the size of its output, and gradients and temporaries come
# on top; weights have gradients, slots, copies and temporaries of their size.
COPIES_OF_OUTPUTS: Final = 40
COPIES_OF_WEIGHTS: Final = 10
SMALL_SHARE: Final = 0.25


def is_small(model: Any, batches: Batches, batch_size: int, budget_bytes: int) -> bool:
    """Whether far more than a step can take is still far less than the budget.

    Only for models whose layers tell the shape of their output; others are never small.
    """
    layers = [layer for layer in internals.all_layers(model) if not isinstance(layer, keras.Model)]
    outputs = [_output_bytes(layer, batch_size, batches.length) for layer in layers]
    if not getattr(model, "inputs", None) or None in outputs:
        return False
    inputs = sum(size.at(batch_size, batches.length) for size in batches.input_sizes())
    weights = sum(bytes_of(each.shape, each.dtype) for each in model.variables)
    total = COPIES_OF_OUTPUTS * (sum(filter(None, outputs)) + inputs) + COPIES_OF_WEIGHTS * weights
    return total <= SMALL_SHARE * budget_bytes


def _output_bytes(layer: Any, batch_size: int, length: int | None) -> int | None:
    """The bytes of a layer's outputs; 0 for one inside another layer, whose output stands for both."""
    try:
        outputs = keras.tree.flatten(layer.output)
    except (AttributeError, ValueError):
        return 0
    found = 0
    for tensor in outputs:
        shape = [batch_size, *(length if size is None else size for size in tensor.shape[1:])]
        if None in shape:
            return None
        found += bytes_of(shape, tensor.dtype)
    return found
