"""`tf.data` sets that a run can go on with, and what is said of the others.

A pass is begun where it was left by skipping batches. That is exact where the set gives the same batches in
every process, so a set that draws from an unknown seed, or in any order, is refused with what to type.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.errors import MemfitWarning, UsageError
from memfit.streaming.stream_tf import REPEATABLE
from memfit.training import resuming_internals_tf as internals
from memfit.training.sources_tf import example_of

_ASSIGNING: Final = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_PYTHON: Final = ("PyFunc", "EagerPyFunc", "PyFuncStateless")


class DatasetSource:
    """A `tf.data.Dataset`, by skipping the batches that were used.

    A set that shuffles anew in each pass takes the next seed of its own sequence whenever an iterator is
    made. So one is made for each pass that is over, and thrown away.

    Args:
        x: The dataset.
        y: Not used with a dataset; Keras says so.
        arguments: The other arguments of `fit`.
    """

    def __init__(self, x: tf.data.Dataset, y: Any, arguments: dict[str, Any]) -> None:
        _check_batch_size(arguments)
        check_dataset(x, arguments.get("validation_data"))
        adapter = internals.adapter_of(x, y, arguments.get("sample_weight"), arguments.get("class_weight"))
        options = tf.data.Options()
        options.deterministic = True
        self._dataset = adapter.get_tf_dataset().with_options(options)
        cardinality = int(x.cardinality())
        if cardinality == 0:
            raise UsageError("the data is empty: the tf.data set has 0 batches. Pass at least one.")
        if cardinality == tf.data.INFINITE_CARDINALITY and not arguments.get("steps_per_epoch"):
            raise UsageError("the tf.data set has no end, so an epoch has none. Pass steps_per_epoch=.")
        if cardinality == tf.data.UNKNOWN_CARDINALITY and arguments.get("steps_per_epoch"):
            raise UsageError(
                "steps_per_epoch= was given together with a tf.data set that does not say how long it is. "
                "Leave steps_per_epoch= out, or make the set endless: dataset.repeat()."
            )
        self.num_batches: int | None = cardinality if cardinality > 0 else None
        self.batch_size: int | None = None
        self.num_samples: int | None = None
        self._iterator: Iterator[Any] | None = None
        self._pass_index = -1

    def identity(self) -> dict[str, Any]:
        """Number of batches, and what they are made of."""
        leaves = keras.tree.flatten(self._dataset.element_spec)
        return {
            "kind": "tf.data",
            "num_batches": self.num_batches,
            "elements": [repr(leaf) for leaf in leaves],
        }

    def begin(self, seed: int, pass_index: int) -> None:
        """Moves the set's own shuffling on by the passes that are over."""
        del seed
        for _ in range(pass_index):
            iter(self._dataset)

    def example(self) -> Any:
        """What a batch is made of, or the first batch, from an iterator of its own."""
        return example_of(self._dataset)

    def on_epoch_begin(self, pass_index: int, offset: int) -> None:
        """Begins a pass; one that is under way simply goes on."""
        if self._iterator is None or self._pass_index != pass_index:
            rest = self._dataset.skip(offset) if offset else self._dataset
            self._iterator, self._pass_index = iter(rest), pass_index

    def iterate(self) -> Iterator[Any]:
        """The batches of the pass under way that were not used."""
        assert self._iterator is not None
        return self._iterator

    def on_epoch_end(self) -> None:
        """A pass may go on in the next epoch."""


def check_dataset(dataset: tf.data.Dataset, validation: Any) -> None:
    """Raises a `UsageError` where a set may give other batches in another process; warns where none knows."""
    found = list(internals.nodes(dataset))
    for node in found:
        if internals.is_unseeded(node):
            raise UsageError(
                f"the tf.data set draws at random without a seed ({_name(node)}), so its order differs in "
                "every process and a run on it cannot be resumed exactly. Write .shuffle(n, seed=1), or "
                "keras.utils.set_random_seed(1) before the set is made."
            )
        if internals.is_any_order(node):
            raise UsageError(
                f"the tf.data set was told deterministic=False ({_name(node)}), so a run on it cannot be "
                "resumed exactly. Leave deterministic= out."
            )
        if internals.name_of(node) != REPEATABLE:
            _check_functions(node)
    _check_validation(found, validation)


def _check_functions(node: Any) -> None:
    for operation in internals.function_nodes(node):
        if operation.op in _ASSIGNING:
            raise UsageError(
                f"a function of the tf.data set ({_name(node)}) changes a variable, as Keras's random layers "
                "do, so its batches depend on all those before. Put such layers into the model, or draw with "
                "tf.random.stateless_*."
            )
        if operation.op in _PYTHON:
            warnings.warn(
                f"a function of the tf.data set ({_name(node)}) runs Python, which memfit cannot look into. "
                "The run is resumed exactly only if it gives the same batches whenever it is started anew.",
                MemfitWarning,
                stacklevel=4,
            )
            return
        is_random = "Random" in operation.op and "seed2" in operation.attr
        if is_random and (
            internals.is_parallel(node) or not (operation.attr["seed"].i or operation.attr["seed2"].i)
        ):
            raise UsageError(
                f"a function of the tf.data set ({_name(node)}) draws at random ({operation.op}) without a "
                "seed or on several elements at once, so a run on it cannot be resumed exactly. Draw with "
                "tf.random.stateless_* and a seed from .enumerate()."
            )
        if operation.op.startswith("ShuffleDataset"):
            raise UsageError(
                f"a function of the tf.data set ({_name(node)}) shuffles, and memfit cannot see its seed. "
                "Shuffle outside of the function: .shuffle(n, seed=1)."
            )


def _check_validation(training: list[Any], validation: Any) -> None:
    if not isinstance(validation, tf.data.Dataset):
        return
    reshuffled = {id(node) for node in training if internals.is_reshuffled(node)}
    if any(id(node) in reshuffled for node in internals.nodes(validation)):
        raise UsageError(
            "x and validation_data are made from one tf.data set that is shuffled anew in each pass, so "
            "training and validation samples mix, and a run cannot be resumed exactly. Write "
            ".shuffle(n, seed=1, reshuffle_each_iteration=False) before the split, or shuffle after it."
        )


def _check_batch_size(arguments: dict[str, Any]) -> None:
    batch_size = arguments.get("batch_size")
    if batch_size is not None:
        raise UsageError(
            f"batch_size={batch_size} was given together with a tf.data set, which makes its batches itself. "
            f"Write dataset.batch({batch_size}), and leave batch_size= out."
        )


def _name(node: Any) -> str:
    return type(node).__name__.strip("_")
