"""Arrays that were given to `fit`, as a set that streams them: nothing is copied as a whole.

Keras makes one tensor of each array before it trains, and holds one more copy besides. An array that is
mapped from a file is then in memory as a whole, too, and one of another float than Keras's is cast first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import UsageError
from memfit.streaming.npy_tf import mapped_rows
from memfit.streaming.rows_tf import ArrayRows, Rows
from memfit.streaming.stream_tf import window_set
from memfit.streaming.windows_tf import make_windows

NUM_READERS: Final = 2
USUAL_BATCH: Final = 32
_TAKEN: Final = ("batch_size", "sample_weight", "shuffle", "validation_split")


def why_not_stream(x: Any, y: Any, arguments: Mapping[str, Any]) -> str:
    """Why data of `fit` cannot be streamed in the place of Keras's copies; empty if it can."""
    leaves = keras.tree.flatten((x, y, arguments.get("sample_weight")))
    arrays = [leaf for leaf in leaves if leaf is not None]
    if not arrays or not all(isinstance(leaf, np.ndarray) and leaf.dtype != object for leaf in arrays):
        return "x, y and sample_weight must be NumPy arrays of numbers."
    if arguments.get("steps_per_epoch") is not None:
        return "steps_per_epoch= cuts an epoch of arrays short."
    if arguments.get("shuffle") == "batch":
        return 'shuffle="batch" needs all rows at once.'
    if y is None and arguments.get("sample_weight") is not None:
        return "sample_weight was given without y."
    return ""


def held_bytes(data: Any) -> int:
    """What plain Keras holds of arrays while it trains, besides what is in memory already."""
    arrays = [leaf for leaf in keras.tree.flatten(data) if isinstance(leaf, np.ndarray)]
    return sum(_held(array) for array in arrays)


def stream_fit(
    x: Any, y: Any, arguments: Mapping[str, Any], window_bytes: int, *, seed: int = 0
) -> tuple[tf.data.Dataset, dict[str, Any]]:
    """Arrays of `fit` as a set of the same batches, and what is left of the arguments.

    With `shuffle=False` these are the batches of plain Keras. Otherwise the order is another one in each
    epoch, as in Keras, by `seed` and TensorFlow's global seed.

    Args:
        x: Inputs.
        y: Targets.
        arguments: All others of `fit`.
        window_bytes: What is mixed at once.
        seed: Of the order.

    Raises:
        UsageError: If it cannot be done.
    """
    reason = why_not_stream(x, y, arguments)
    if reason:
        raise UsageError(
            f"the inputs cannot be streamed: {reason} Leave stream_window_bytes out of the plan."
        )
    rest = {name: value for name, value in arguments.items() if name not in _TAKEN}
    rest["shuffle"] = False  # The set shuffles; otherwise Keras warns that it does not.
    data = tuple(part for part in (x, y, arguments.get("sample_weight")) if part is not None)
    batch_size = arguments.get("batch_size") or USUAL_BATCH
    share = arguments.get("validation_split") or 0.0
    validation = rest.get("validation_data")
    if share and validation is None:
        data, validation = _split(data, share)
    if isinstance(validation, (tuple, list)) and not why_not_stream(validation, None, {}):
        size = rest.pop("validation_batch_size", None) or batch_size
        rest["validation_data"] = _set(tuple(validation), size, None, window_bytes)
    elif validation is not None:
        rest["validation_data"] = validation
    is_shuffled = bool(arguments.get("shuffle", True))
    return _set(data, batch_size, seed if is_shuffled else None, window_bytes), rest


def _set(data: tuple[Any, ...], batch_size: int, seed: int | None, window_bytes: int) -> tf.data.Dataset:
    parts: list[Rows] = []
    structure = _placed(data if len(data) > 1 else data[0], parts)
    windows = make_windows(
        parts, window_bytes=window_bytes, is_shuffled=seed is not None, num_readers=NUM_READERS
    )
    return window_set(
        windows,
        structure,
        batch_size=batch_size,
        seed=seed,
        host_bytes=find_budget().host_bytes,
        cast=_as_keras,
    )


def _placed(data: Any, parts: list[Rows]) -> Any:
    """The structure with places for arrays, whose rows are appended."""
    if isinstance(data, (tuple, list)):
        return tuple(_placed(each, parts) for each in data)
    if isinstance(data, Mapping):
        return {name: _placed(each, parts) for name, each in data.items()}
    name = f"array {len(parts)}"
    parts.append(mapped_rows(data, name) or ArrayRows(data, name))
    return len(parts) - 1


def _as_keras(tensor: tf.Tensor) -> tf.Tensor:
    """Floats in the type that Keras computes in, as it casts arrays."""
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor


def _split(data: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """As Keras does: the last rows are for validation."""
    num = len(keras.tree.flatten(data)[0])
    border = math.floor(num * (1.0 - share))
    if border in (0, num):
        raise UsageError(f"validation_split={share} of {num} rows leaves nothing on one side. Pass another.")
    first = keras.tree.map_structure(lambda array: array[:border], data)
    return first, keras.tree.map_structure(lambda array: array[border:], data)


def _held(array: np.ndarray[Any, Any]) -> int:
    """As measured with Keras 3.15: a tensor and a second copy; the array cast; the pages of a map."""
    is_cast = array.dtype.kind == "f" and array.dtype.name != keras.config.floatx()
    item_bytes = int(tf.as_dtype(keras.config.floatx()).size) if is_cast else array.dtype.itemsize
    mapped_bytes = array.nbytes if isinstance(array, np.memmap) else 0
    return int(array.size) * item_bytes * (3 if is_cast else 2) + mapped_bytes
