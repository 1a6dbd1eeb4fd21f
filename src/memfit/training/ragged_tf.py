"""Ragged data for `memfit.fit`: each batch is padded with what the model masks, behind Keras's slicing.

Order, batches and weights are those of Keras for the same data padded: its own adapter cuts ragged arrays
into batches, and only then is each padded, to its longest sequence.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from memfit.data.ragged_tf import check_lengths, has_ragged, padder_for
from memfit.errors import UsageError
from memfit.training import resuming_internals_tf as internals
from memfit.training.mapped_tf import MappedArrays


def take_ragged(model: Any, x: Any, y: Any, arguments: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """`x`, `y` and the other arguments of `fit` in a form that needs no ragged tensors; others as they are.

    Args:
        model: Its masks say what to pad with.
        x: As in `keras.Model.fit`. Ragged arrays come back as `MappedArrays`, and their `y` as `None`.
        y: As in `keras.Model.fit`.
        arguments: The other arguments of `fit`.

    Raises:
        UsageError: If labels, weights and inputs do not fit together.
    """
    validation = arguments.get("validation_data")
    weights = arguments.get("sample_weight")
    is_ragged = has_ragged(x) or has_ragged((y, weights))
    if not is_ragged and (validation is None or not has_ragged(validation)):
        return x, y, arguments
    rest = dict(arguments)
    share = rest.pop("validation_split", None)
    if is_ragged and share and validation is None:
        (x, y, weights), validation = internals.split_arrays((x, y, weights), share)
    elif share:
        rest["validation_split"] = share
    if validation is not None:
        rest["validation_data"] = _validation(model, validation, arguments)
    if not is_ragged:
        return x, y, rest
    if rest.get("class_weight") is not None and (y is None or has_ragged(y)) and has_ragged(_labels(x, y)):
        raise UsageError(
            "class_weight= is for one label a sequence, and these have one a step. Pass sample_weight= with "
            "a weight a step, as a tf.RaggedTensor."
        )
    if isinstance(x, tf.data.Dataset):
        return _padded_set(model, x), y, rest
    rest.pop("sample_weight", None)
    return _arrays(model, x, y, weights), None, rest


def _labels(x: Any, y: Any) -> Any:
    return keras.utils.unpack_x_y_sample_weight(x.element_spec)[1] if isinstance(x, tf.data.Dataset) else y


def _padded_set(model: Any, dataset: tf.data.Dataset) -> tf.data.Dataset:
    parts = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    return padder_for(model, *parts).pad_set(dataset)


def _arrays(model: Any, x: Any, y: Any, weights: Any) -> MappedArrays:
    padder = padder_for(model, x, y, weights)
    check_lengths(x, y, weights)
    return MappedArrays(x=x, y=y, sample_weight=weights, padder=padder)


def _validation(model: Any, data: Any, arguments: dict[str, Any]) -> Any:
    if not has_ragged(data):
        return data
    if isinstance(data, tf.data.Dataset):
        return _padded_set(model, data)
    arrays = _arrays(model, *keras.utils.unpack_x_y_sample_weight(data))
    batch_size = arguments.get("validation_batch_size") or arguments.get("batch_size")
    given = {"batch_size": batch_size, "steps_per_epoch": arguments.get("validation_steps")}
    return arrays.adapter(given, is_shuffled=False)
