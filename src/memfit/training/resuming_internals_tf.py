"""Every private name of Keras and TensorFlow that resuming leans on, in this one file.

`check_versions()` fails with the versions in its message when one of them has moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import keras
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from memfit.errors import UsageError
from memfit.measuring.versions_tf import check_expectations

__all__ = ["DataAdapter"]

KEPT_ATTRIBUTES: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (keras.callbacks.History, ("history", "epoch")),
    (keras.callbacks.EarlyStopping, ("wait", "stopped_epoch", "best", "best_epoch", "best_weights")),
    (keras.callbacks.ReduceLROnPlateau, ("wait", "cooldown_counter", "best")),
    (keras.callbacks.ModelCheckpoint, ("best", "_batches_seen_since_last_saving", "_last_batch_seen")),
    (keras.callbacks.SwapEMAWeights, ("_ema_weights_in_model",)),
    (keras.callbacks.TensorBoard, ("_global_train_batch", "_global_test_batch")),
)
"""What Keras's callbacks remember from epoch to epoch. The others remember nothing, or what they wrote."""


def check_versions() -> None:
    """Raises a `SetupError` that names the versions when an internal is not as expected."""
    check_expectations("memfit cannot resume under", _expectations(), otherwise="leave resume= out")


def _expectations() -> dict[str, bool]:
    adapter = ArrayDataAdapter(tf.ones((2, 1)), batch_size=2)
    dataset = tf.data.Dataset.range(2).shuffle(2, seed=1).map(lambda value: value, num_parallel_calls=2)
    shuffle = dataset._inputs()[0]
    batches = PyDatasetAdapter(keras.utils.PyDataset())
    return {
        "keras PyDatasetAdapter": "_output_signature" in vars(batches),
        "keras DataAdapter": {"get_tf_dataset", "on_epoch_begin", "on_epoch_end"} <= set(vars(DataAdapter)),
        "keras get_data_adapter": data_adapters.get_data_adapter(adapter) is adapter,
        "keras ArrayDataAdapter": {"_inputs", "_num_samples", "_batch_size"} <= set(vars(adapter)),
        "keras Trainer._symbolic_build": "_symbolic_build" in dir(keras.Model),
        "keras seed generator": "state" in vars(global_seed_generator()),
        "tensorflow Dataset._inputs": {"_seed", "_seed2", "_reshuffle_each_iteration"} <= set(vars(shuffle)),
        "tensorflow Dataset._name": "_name" in vars(dataset),
        "tensorflow Dataset._deterministic": "_deterministic" in vars(dataset),
        "tensorflow Dataset._functions": len(dataset._functions()[0].function.graph.get_operations()) > 0,
    }


def global_seed_state() -> keras.Variable:
    """The state that Keras's random functions draw from where they are given no seed."""
    return global_seed_generator().state


def build(model: keras.Model, batch: Any) -> None:
    """Makes all variables of a model, its metrics and its optimizer, which Keras leaves to the first step."""
    try:
        model._symbolic_build(data_batch=batch)
    except RuntimeError as fault:
        raise UsageError(
            "the model cannot be built from what its data is made of, and its state can be put back only "
            "into a model that is built. Call it once on a batch before the run: model(x[:1])."
        ) from fault


def split_arrays(
    arrays: tuple[Any, Any, Any], share: float
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """What `fit(validation_split=share)` trains on, and what it validates on."""
    training, validation = array_slicing.train_validation_split(arrays, validation_split=share)
    return training, validation


def is_array_like(arrays: Any) -> bool:
    """Whether Keras would take these as arrays."""
    return bool(data_adapters.array_data_adapter.can_convert_arrays(arrays))


def py_dataset_batches(
    dataset: keras.utils.PyDataset, class_weight: Any, signature: Any
) -> tuple[DataAdapter, Any]:
    """Keras's own adapter of a `PyDataset`, unshuffled, and the signature of its batches.

    Args:
        dataset: What to adapt.
        class_weight: As given to `fit`.
        signature: Of the batches, where it is known; otherwise Keras reads the first two.
    """
    adapter = PyDatasetAdapter(dataset, class_weight=class_weight)
    adapter._output_signature = signature
    if signature is None:
        adapter.get_tf_dataset()
    return adapter, adapter._output_signature


def adapter_of(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> DataAdapter:
    """Keras's own adapter of a `tf.data` set or a `PyDataset`, unshuffled; its errors are Keras's."""
    return data_adapters.get_data_adapter(x, y, sample_weight=sample_weight, class_weight=class_weight)


def array_adapter(x: Any, y: Any, **arguments: Any) -> DataAdapter:
    """Keras's own adapter of arrays; its errors are Keras's."""
    return ArrayDataAdapter(x, y, **arguments)


def array_inputs(
    x: Any, y: Any, sample_weight: Any, class_weight: Any, batch_size: int | None, steps: int | None
) -> tuple[Any, int, int]:
    """Arrays as Keras packs them for TensorFlow, the number of samples, and the batch size."""
    adapter = ArrayDataAdapter(
        x, y, sample_weight=sample_weight, class_weight=class_weight, batch_size=batch_size, steps=steps
    )
    inputs = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    return keras.tree.lists_to_tuples(inputs), int(adapter._num_samples), int(adapter._batch_size)


def weights_of_classes(y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """The weight of each sample that `fit(class_weight=...)` gives it; errors are Keras's."""
    adapter = ArrayDataAdapter(y, y, sample_weight=sample_weight, class_weight=class_weight)
    return adapter._inputs[-1]


def rows(leaf: Any, indices: tf.Tensor) -> Any:
    """The rows of one packed array."""
    if isinstance(leaf, array_slicing.TensorflowSparseWrapper):
        return array_slicing.slice_tensorflow_sparse_wrapper(leaf, indices)
    if isinstance(leaf, (list, tuple, dict)):
        return None
    return tf.gather(leaf, indices, axis=0) if tf.is_tensor(leaf) else leaf


def nodes(dataset: tf.data.Dataset) -> Iterator[Any]:
    """A dataset and all that it is made from."""
    yield dataset
    for source in dataset._inputs():
        yield from nodes(source)


def is_unseeded(node: Any) -> bool:
    """Whether a dataset draws from a seed that differs in every process."""
    seeds = [getattr(node, name, None) for name in ("_seed", "_seed2")]
    return all(seed is not None and int(seed) == 0 for seed in seeds)


def is_reshuffled(node: Any) -> bool:
    """Whether a dataset has another order in each pass."""
    return bool(getattr(node, "_reshuffle_each_iteration", False))


def is_any_order(node: Any) -> bool:
    """Whether a dataset was told `deterministic=False`."""
    return getattr(node, "_deterministic", None) == "false"


def name_of(node: Any) -> str | None:
    """The name that a stage of a dataset was given."""
    return getattr(node, "_name", None)


def is_parallel(node: Any) -> bool:
    """Whether a dataset runs its function on several elements at once."""
    return type(node).__name__.startswith("_Parallel")


def function_nodes(node: Any) -> Iterator[Any]:
    """The operations inside the functions of one dataset, as node definitions."""
    for wrapper in node._functions():
        graph = wrapper.function.graph.as_graph_def()
        yield from graph.node
        for function in graph.library.function:
            yield from function.node_def
