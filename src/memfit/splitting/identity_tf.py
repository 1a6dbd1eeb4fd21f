"""What tells one model from another, for plans that are kept in files."""

from __future__ import annotations

import hashlib
from typing import Any

import keras

from memfit.splitting import internals_tf as internals


def identify(model: Any) -> str:
    """A short text that is the same for models of the same make, and for no others.

    It stands for what a step's memory depends on: the kinds of layers, the shapes and types of their
    variables and which of them are trained, and the shapes of the inputs. Names and values do not count.

    Args:
        model: A built Keras model.
    """
    layers = [
        (type(layer).__name__, [_shown(variable) for variable in layer.variables])
        for layer in internals.all_layers(model)
        if not isinstance(layer, keras.Model)
    ]
    tensors = keras.tree.flatten(getattr(model, "inputs", None) or [])
    inputs = [(str(tensor.shape[1:]), str(tensor.dtype)) for tensor in tensors]
    # A model's own variables, beside those of its layers.
    own = [_shown(variable) for variable in model.variables]
    return hashlib.sha256(repr((layers, inputs, own)).encode()).hexdigest()[:16]


def _shown(variable: Any) -> tuple[str, str, bool]:
    return str(tuple(variable.shape)), str(variable.dtype), bool(variable.trainable)
