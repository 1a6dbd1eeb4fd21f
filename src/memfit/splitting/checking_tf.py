"""Whether a model may be trained in micro-batches, or why not, in a sentence."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import keras

from memfit.splitting import internals_tf as internals

SPLIT_BATCH_NORM: Final = "split_batch_norm"
OWN_LOOP: Final = (
    "Put the loop into your own hands: memfit.train_step(model, loss, optimizer, plan) splits a step of "
    "yours, and memfit.applied(plan, model) applies all that needs no micro-batches."
)
# What they compute for an example depends on the other examples of the batch, or on how often they ran.
MIXING: Final = (keras.layers.BatchNormalization, keras.layers.SpectralNormalization)


def why_not_train(model: Any, allow: Collection[str]) -> str:
    """Why the batches of a compiled model must not be split in training; empty if they may."""
    for name in ("train_step", "compute_loss"):
        if internals.overrides(model, name):
            own = f"{type(model).__name__} has its own {name}"
            return f"{own}, and memfit cannot tell how it weighs examples. {OWN_LOOP}"
    return why_not_layers(model, allow) or _why_not_losses(internals.compiled_loss(model))


def why_not_evaluate(model: Any) -> str:
    """Why the batches of a compiled model must not be split in evaluation; empty if they may."""
    for name in ("test_step", "compute_loss"):
        if internals.overrides(model, name):
            return (
                f"{type(model).__name__} has its own {name}, and memfit cannot tell how it weighs examples."
            )
    return _why_not_stateful(model) or _why_not_losses(internals.compiled_loss(model))


def why_not_predict(model: Any) -> str:
    """Why the batches of a model must not be split in prediction; empty if they may."""
    return _why_not_stateful(model)


def why_not_layers(model: Any, allow: Collection[str]) -> str:
    """Why the layers of a model do not bear micro-batches; empty if they do."""
    if internals.is_replicated(model):
        return (
            "the model is trained by several replicas, and micro-batches on replicas are not supported yet."
        )
    layers = internals.all_layers(model)
    mixing = [layer.name for layer in layers if isinstance(layer, MIXING) and layer.trainable]
    if mixing and SPLIT_BATCH_NORM not in allow:
        return (
            f"{', '.join(mixing)} normalizes over the examples of a batch, so a split batch trains "
            f'differently. If that is good enough, allow it: allow="{SPLIT_BATCH_NORM}".'
        )
    if any(getattr(variable, "overwrite_with_gradient", False) for variable in model.trainable_variables):
        return "some variables (float8) are overwritten by their gradient, which cannot be summed."
    return _why_not_stateful(model)


def _why_not_stateful(model: Any) -> str:
    stateful = [
        layer.name for layer in internals.all_layers(model) if getattr(layer, "stateful", False) is True
    ]
    if stateful:
        return f"{', '.join(stateful)} keeps a state for each example of the batch (stateful=True)."
    return ""


def _why_not_losses(losses: Any) -> str:
    if losses is None:
        return ""
    for kind in internals.loss_classes(losses):
        if kind.__call__ is not keras.losses.Loss.__call__:
            return (
                f"{kind.__name__} has its own __call__, and memfit cannot tell how it weighs examples. "
                "Write its call(y_true, y_pred) instead, which returns one number per example."
            )
    return ""
