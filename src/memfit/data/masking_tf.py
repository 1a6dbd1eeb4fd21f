"""What a model takes for padding."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from memfit.data.internals_tf import all_layers
from memfit.errors import MemfitWarning, UsageError


def padding_value_of(model: Any) -> float:
    """The value whose steps a model passes over; 0 with a warning if it passes over none.

    Raises:
        UsageError: If its layers differ in it.
    """
    layers = all_layers(model)
    masking = {float(layer.mask_value) for layer in layers if isinstance(layer, keras.layers.Masking)}
    embedding = {0.0 for layer in layers if isinstance(layer, keras.layers.Embedding) and layer.mask_zero}
    values = masking | embedding
    if len(values) > 1:
        raise UsageError(
            f"the model masks the values {', '.join(map(str, sorted(values)))}, so one padding does not do "
            "for all of its inputs. Pass padding_value= with one value a feature."
        )
    if not values:
        warnings.warn(
            "the model has no mask, so it takes padding for steps like others. Put "
            "keras.layers.Embedding(..., mask_zero=True) or keras.layers.Masking() first.",
            MemfitWarning,
            stacklevel=3,
        )
    return next(iter(values), 0.0)
