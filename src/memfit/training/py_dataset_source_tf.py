"""`keras.utils.PyDataset`, by the index of its batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from memfit.errors import UsageError
from memfit.training.order_tf import order_of_pass
from memfit.training.resuming_internals_tf import py_dataset_batches
from memfit.training.sources_tf import checksum, example_of


class _OrderedDataset(keras.utils.PyDataset):
    """The batches of a `PyDataset` in the order of a pass, from one batch on."""

    def __init__(
        self,
        wrapped: keras.utils.PyDataset,
        order: np.ndarray[Any, Any] | None,
        offset: int,
        num_workers: int,
    ) -> None:
        has_processes = num_workers > 1 and wrapped.use_multiprocessing
        super().__init__(num_workers, has_processes, wrapped.max_queue_size)
        self._wrapped, self._order, self._offset = wrapped, order, offset

    def __getitem__(self, index: int) -> Any:
        number = index + self._offset
        return self._wrapped[number if self._order is None else int(self._order[number])]

    @property
    def num_batches(self) -> int | None:
        total: int | None = self._wrapped.num_batches
        return None if total is None else total - self._offset

    def on_epoch_begin(self) -> None:
        self._wrapped.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._wrapped.on_epoch_end()


class PyDatasetSource:
    """A `keras.utils.PyDataset`.

    Each epoch has an adapter of its own, since Keras's keeps batches that its workers fetched too early.

    Args:
        x: The dataset.
        arguments: The other arguments of `fit`.
    """

    def __init__(self, x: keras.utils.PyDataset, arguments: dict[str, Any]) -> None:
        batch_size = arguments.get("batch_size")
        if batch_size is not None:
            raise UsageError(
                f"batch_size={batch_size} was given together with a PyDataset, which makes its batches "
                "itself. Leave batch_size= out."
            )
        self._wrapped = x
        self.num_batches: int | None = x.num_batches
        self.batch_size: int | None = None
        self.num_samples: int | None = None
        if self.num_batches == 0:
            raise UsageError("the data is empty: the PyDataset has 0 batches. Pass at least one.")
        if self.num_batches is None and not arguments.get("steps_per_epoch"):
            raise UsageError("the PyDataset has no end, so an epoch has none. Pass steps_per_epoch=.")
        self._shuffle = bool(arguments.get("shuffle", True))
        self._class_weight = arguments.get("class_weight")
        plain = _OrderedDataset(x, None, 0, num_workers=1)
        self._example, self._signature = py_dataset_batches(plain, self._class_weight, None)
        self._adapter = self._example
        self._seed = 0

    def identity(self) -> dict[str, Any]:
        """Number of batches, and a checksum of the first, which must come out twice."""
        first, second = (checksum(self._wrapped[0]) for _ in range(2))
        if first != second:
            raise UsageError(
                "the PyDataset gave another batch when number 0 was asked for twice, so a run on it cannot "
                "be resumed exactly. Make what __getitem__ draws at random depend on the index: "
                "numpy.random.default_rng((seed, index))."
            )
        return {"kind": "PyDataset", "num_batches": self.num_batches, "checksum": first}

    def begin(self, seed: int, pass_index: int) -> None:
        """Tells the dataset of the passes that are over, so that an order of its own is what it was."""
        self._seed = seed
        for _ in range(pass_index):
            self._wrapped.on_epoch_begin()
            self._wrapped.on_epoch_end()

    def example(self) -> Any:
        """What a batch is made of."""
        return example_of(self._example.get_tf_dataset())

    def on_epoch_begin(self, pass_index: int, offset: int) -> None:
        """Starts the dataset's workers, if it has any."""
        order = None
        if self.num_batches is not None:
            order = order_of_pass(self.num_batches, self._shuffle, self._seed, pass_index, 1)
        ordered = _OrderedDataset(self._wrapped, order, offset, self._wrapped.workers)
        self._adapter, _ = py_dataset_batches(ordered, self._class_weight, self._signature)
        self._adapter.on_epoch_begin()

    def iterate(self) -> Iterator[Any]:
        """The batches of the pass from where the epoch begins."""
        return iter(self._adapter.get_tf_dataset())

    def on_epoch_end(self) -> None:
        """Stops the workers."""
        self._adapter.on_epoch_end()
