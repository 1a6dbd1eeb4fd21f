"""The batches as Keras's `fit` asks for them, from the right one on.

Keras takes a `DataAdapter` in place of the data. This one counts what was used, begins a pass in its middle,
and knows when an epoch that was begun in its middle is over. Which kinds of data can be fed is decided by
`source_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from memfit.errors import UsageError
from memfit.training.dataset_source_tf import DatasetSource
from memfit.training.mapped_tf import MappedArrays
from memfit.training.py_dataset_source_tf import PyDatasetSource
from memfit.training.resuming import Lengths, Position
from memfit.training.resuming_internals_tf import DataAdapter, is_array_like
from memfit.training.sources_tf import ArraySource, Source

ENDLESS = 2**62
"""Steps of an epoch whose length only the data knows: Keras then goes on until the data ends."""


def source_of(x: Any, y: Any, arguments: dict[str, Any]) -> Source:
    """The data as a source that can begin anywhere.

    Raises:
        UsageError: If it cannot, with what to pass instead.
    """
    if isinstance(x, MappedArrays):
        return ArraySource(x.x, x.y, {**arguments, "sample_weight": x.sample_weight}, x.map_set)
    if isinstance(x, tf.data.Dataset):
        return DatasetSource(x, y, arguments)
    if isinstance(x, keras.utils.PyDataset):
        if y is not None or arguments.get("sample_weight") is not None:
            raise UsageError("y and sample_weight are part of a PyDataset's batches: leave them out.")
        return PyDatasetSource(x, arguments)
    if x is not None and is_array_like((x, y, arguments.get("sample_weight"))):
        return ArraySource(x, y, arguments)
    raise UsageError(
        f"x is a {type(x).__name__}, which only gives its next batch and cannot be put back to where it was, "
        "so a run on it cannot be resumed. Pass arrays, a keras.utils.PyDataset, a tf.data.Dataset "
        "(tf.data.Dataset.from_generator with the function that makes the generator), or leave resume= out."
    )


class Feed(DataAdapter):
    """Batches for Keras's `fit`, with the position of the next one.

    Args:
        source: The data.
        lengths: Of passes and epochs.
        position: Of the first batch to train on.
    """

    def __init__(self, source: Source, lengths: Lengths, position: Position) -> None:
        self._source = source
        self._lengths = lengths
        self.position = position
        self._is_within_epoch = False
        self._is_iterated = False

    def get_tf_dataset(self) -> Any:
        """Itself: Keras iterates over it at the beginning of each epoch."""
        return self

    def __iter__(self) -> Iterator[Any]:
        if self._is_iterated:  # Keras makes one more iterator at the end of an epoch, and does not use it.
            return iter(())
        self._is_iterated = True
        return self._source.iterate()

    def on_epoch_begin(self) -> None:
        """Called by Keras before the first batch of an epoch."""
        self.on_epoch_end()
        self._source.on_epoch_begin(self.position.pass_index, self.position.offset)
        self._is_within_epoch, self._is_iterated = True, False

    def on_epoch_end(self) -> None:
        """Called by Keras after the last batch, unless it left the epoch early."""
        if self._is_within_epoch:
            self._source.on_epoch_end()
            self._is_within_epoch = False

    def advance(self) -> None:
        """Says that one call of the train function is done."""
        self.position = self._lengths.after_call(self.position)

    def end_epoch(self) -> None:
        """Says that an epoch is done."""
        self.on_epoch_end()
        self.position = self._lengths.after_epoch(self.position)

    def is_epoch_over(self) -> bool:
        """Whether all steps of the epoch are done; where only the data knows, it is for Keras to notice."""
        total = self._lengths.epoch_steps(self.position)
        return total is not None and self.position.step >= total

    @property
    def num_batches(self) -> int:
        """Steps of the longest epoch."""
        return self._lengths.steps_per_epoch or self._lengths.num_batches or ENDLESS

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, or `None` where only the data knows."""
        return self._lengths.batch_size

    @property
    def has_partial_batch(self) -> bool | None:
        """Whether the last batch of a pass is smaller, or `None` where only the data knows."""
        return None if self.batch_size is None else self.partial_batch_size is not None

    @property
    def partial_batch_size(self) -> int | None:
        """Samples in the last batch of a pass, or `None` where it is full or only the data knows."""
        if self.batch_size is None or self._lengths.num_samples is None:
            return None
        return self._lengths.num_samples % self.batch_size or None
