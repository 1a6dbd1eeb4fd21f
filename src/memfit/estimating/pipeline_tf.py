"""What a data pipeline holds in host memory, by arithmetic on its stages and the shape of its elements."""

from __future__ import annotations

from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from memfit.estimating.batches_tf import Batches
from memfit.estimating.internals_tf import buffer_size, stages
from memfit.records import EstimatedPart, Source

# What tf.data has under way where it chooses by itself.
USUAL_PREFETCH: Final = 2
# Batches that Keras has under way beside that of the step when it cuts arrays: seen on two cores.
ARRAY_PREFETCH: Final = 3
FILLED_LATER: Final = ("shuffle buffer", "prefetch buffer", "cache")


def under_way_bytes(data: Any, batches: Batches, batch_size: int) -> int:
    """What a data pipeline will hold beside the batch of the step, once it runs, that is not there before.

    Keras keeps arrays as tensors for as long as it trains. TensorFlow puts some of those where its meter does
    not see them, and others not, so they are counted rather than measured.
    """
    if isinstance(data, tf.data.Dataset):
        parts = _set_parts(data, batches, 0)
        return sum(part.num_bytes for part in parts if part.name in FILLED_LATER)
    if data is None:
        return 0
    batch_bytes = sum(size.at(batch_size, batches.length) for size in batches.input_sizes())
    num_examples = batches.num_examples
    num_others = ARRAY_PREFETCH if num_examples is None else -(-num_examples // batch_size) - 1
    arrays = [leaf for leaf in keras.tree.flatten(data) if isinstance(leaf, np.ndarray)]
    return sum(map(_tensor_bytes, arrays)) + min(ARRAY_PREFETCH, num_others) * batch_bytes


def host_parts(data: Any, batches: Batches, batch_size: int) -> tuple[EstimatedPart, ...]:
    """The parts of what a data pipeline will hold."""
    batch_bytes = sum(size.at(batch_size, batches.length) for size in batches.input_sizes())
    if isinstance(data, tf.data.Dataset):
        return _set_parts(data, batches, batch_bytes)
    found = []
    arrays = [leaf for leaf in keras.tree.flatten(data) if isinstance(leaf, (np.ndarray, tf.Tensor))]
    if arrays:
        found.append(_part("arrays", sum(_array_bytes(array) for array in arrays), Source.DERIVED))
        copied = [array for array in arrays if _is_copied(array)]
        if copied:
            found.append(_part("copies in other types", sum(_copy_bytes(a) for a in copied), Source.DERIVED))
    if data is not None:
        found.append(_part("batches under way", ARRAY_PREFETCH * batch_bytes, Source.ASSUMED))
    return tuple(found)


def _set_parts(data: tf.data.Dataset, batches: Batches, batch_bytes: int) -> tuple[EstimatedPart, ...]:
    found = []
    for kind, stage in stages(data):
        element = _element_bytes(stage, batches)
        name = kind.lower()
        if "shuffle" in name:
            found.append(_part("shuffle buffer", _buffered(stage, element), Source.DERIVED))
        elif "prefetch" in name:
            size = buffer_size(stage)
            is_chosen = size is None or size < 0
            num = USUAL_PREFETCH if is_chosen else size
            source = Source.ASSUMED if is_chosen else Source.DERIVED
            found.append(_part("prefetch buffer", (num or 0) * element, source))
        elif "cache" in name:
            num = int(stage.cardinality())
            if num >= 0:
                found.append(_part("cache", num * element, Source.DERIVED))
        elif "tensorslice" in name or name == "tensordataset":
            num = max(1, int(stage.cardinality()))
            # The tensors themselves, and the arrays that they were copied from, if those are still there.
            found.append(_part("copy by from_tensor_slices", num * element, Source.DERIVED))
    found.append(_part("batches under way", batch_bytes, Source.ASSUMED))
    return tuple(found)


def _buffered(stage: Any, element: int) -> int:
    size, num = buffer_size(stage), int(stage.cardinality())
    if size is None or size < 0:
        return max(0, num) * element
    return (min(size, num) if num >= 0 else size) * element


def _element_bytes(stage: Any, batches: Batches) -> int:
    """The bytes of an element of a stage; where an axis is free, the batch's size or length stands in."""
    total = 0
    for leaf in tf.nest.flatten(stage.element_spec):
        if not isinstance(leaf, tf.TensorSpec) or leaf.shape.rank is None:
            continue
        free = iter((batches.batch_size or 1, batches.length or 1))
        dims = [next(free, 1) if size is None else size for size in leaf.shape]
        total += int(np.prod(dims, dtype=np.int64)) * leaf.dtype.size
    return total


def _is_copied(array: Any) -> bool:
    return bool(tf.as_dtype(array.dtype) == tf.float64 and keras.config.floatx() != "float64")


def _array_bytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64) * tf.as_dtype(array.dtype).size)


def _tensor_bytes(array: Any) -> int:
    return _copy_bytes(array) if _is_copied(array) else _array_bytes(array)


def _copy_bytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64) * tf.as_dtype(keras.config.floatx()).size)


def _part(name: str, num_bytes: int, source: Source) -> EstimatedPart:
    return EstimatedPart(name=name, num_bytes=int(num_bytes), source=source)
