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
    values = _masked_values(model)
    if len(values) > 1:
        raise UsageError(
            f"the model masks the values {', '.join(map(str, sorted(values)))}, so one padding does not do "
            "for all of its inputs. Pass padding_value= with one value a feature."
        )
    if not values:
        _warn_of_no_mask()
    return next(iter(values), 0.0)


def has_mask(model: Any) -> bool:
    """Whether a model passes over steps of any value."""
    return bool(_masked_values(model))


def padding_values_of(model: Any, x: Any, *, is_quiet: bool = False) -> list[float]:
    """The value for each input of `x`; 0 with a warning if the model passes over none.

    Where the masks of a model differ, an input has that of the layer that takes it. `is_quiet` leaves
    the warning out, where it was given before or nothing is trained yet.

    Raises:
        UsageError: If they differ and it cannot be told which is whose.
    """
    values = _masked_values(model)
    num = len(keras.tree.flatten(x))
    if not values and not is_quiet:
        _warn_of_no_mask()
    if len(values) <= 1:
        return [next(iter(values), 0.0)] * num
    inputs = _inputs_in_order(model, x)
    masks = [layer for layer in all_layers(model) if _masked_value(layer) is not None]
    own = {id(each): {_masked_value(layer) for layer in masks if _input_of(layer) is each} for each in inputs}
    found = [own.get(id(each), set()) for each in inputs] if len(inputs) == num else []
    if not found or any(len(each) > 1 for each in found):
        raise UsageError(
            f"the model masks the values {', '.join(map(str, sorted(values)))}, and it cannot be told which "
            "of its inputs is padded with which. Pad them yourself: x.to_tensor(value)."
        )
    # An input that no layer masks has no steps, or none that matter.
    return [float(next(iter(each), None) or 0.0) for each in found]


def _inputs_in_order(model: Any, x: Any) -> list[Any]:
    inputs = list(keras.tree.flatten(getattr(model, "inputs", None) or ()))
    by_name = {each.name: each for each in inputs}
    if isinstance(x, dict) and set(x) <= set(by_name):
        return [by_name[name] for name in sorted(x)]
    return inputs


def _input_of(layer: Any) -> Any:
    try:
        return layer.input
    except (AttributeError, ValueError):  # Never called on a symbolic input, or on several.
        return None


def _masked_values(model: Any) -> set[float]:
    return {value for layer in all_layers(model) if (value := _masked_value(layer)) is not None}


def _masked_value(layer: Any) -> float | None:
    if isinstance(layer, keras.layers.Masking):
        return float(layer.mask_value)
    return 0.0 if isinstance(layer, keras.layers.Embedding) and layer.mask_zero else None


def _warn_of_no_mask() -> None:
    warnings.warn(
        "the model has no mask, so it takes padding for steps like others. Put "
        "keras.layers.Embedding(..., mask_zero=True) or keras.layers.Masking() first.",
        MemfitWarning,
        stacklevel=4,
    )
