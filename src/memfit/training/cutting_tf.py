"""Sequences cut to the greatest length of a plan, for `memfit.fit`. Validation data stays whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from memfit.data.cutting_tf import cutter_for
from memfit.errors import UsageError
from memfit.records import Plan
from memfit.training import resuming_internals_tf as internals
from memfit.training.mapped_tf import MappedArrays


def take_cut(
    model: Any, x: Any, y: Any, arguments: dict[str, Any], plan: Plan
) -> tuple[Any, Any, dict[str, Any]]:
    """`x`, `y` and the other arguments of `fit`, of which training data is cut as a plan says.

    Raises:
        UsageError: If data or model cannot be cut.
    """
    if plan.max_length is None:
        return x, y, arguments
    cut: dict[str, Any] = {"most_steps": plan.max_length, "cut_from": plan.cut_from}
    if isinstance(x, tf.data.Dataset):
        inputs, labels, _ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
        return cutter_for(model, inputs, labels, **cut).cut_set(x), y, arguments
    if isinstance(x, MappedArrays):
        inputs, labels = (*x.sample(), None)[:2]
        return replace(x, cutter=cutter_for(model, inputs, labels, **cut)), y, arguments
    rest = dict(arguments)
    weights = rest.pop("sample_weight", None)
    if not internals.is_array_like((x, y, weights)):
        raise UsageError(
            f"the plan cuts sequences to {plan.max_length} steps, but x is a {type(x).__name__}. Pass "
            "arrays, ragged tensors or a tf.data set, or cut them where they are made."
        )
    share = rest.pop("validation_split", None)
    if share and rest.get("validation_data") is None:
        (x, y, weights), rest["validation_data"] = internals.split_arrays((x, y, weights), share)
    cutter = cutter_for(model, x, y, **cut)
    return MappedArrays(x=x, y=y, sample_weight=weights, cutter=cutter), None, rest
