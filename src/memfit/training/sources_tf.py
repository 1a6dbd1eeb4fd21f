"""Data whose passes can begin at any batch: the protocol, and arrays, the simplest of them.

`py_dataset_source_tf` and `dataset_source_tf` have the other two. `feed_tf` decides which pass and which
batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from memfit.errors import UsageError
from memfit.training.order_tf import order_of_pass
from memfit.training.resuming_internals_tf import array_inputs, rows

NUM_SAMPLED_ROWS = 64


class Source(Protocol):
    """Data whose passes can begin at any batch.

    Attributes:
        num_batches: In a pass; `None` where it is endless or not known.
        batch_size: Samples in a full batch, or `None`.
        num_samples: In a pass, or `None`.
    """

    num_batches: int | None
    batch_size: int | None
    num_samples: int | None

    def identity(self) -> dict[str, Any]:
        """What is known of the data without reading all of it, as JSON values."""

    def begin(self, seed: int, pass_index: int) -> None:
        """Says which seed orders the passes, and how many passes are over; called once."""

    def example(self) -> Any:
        """A batch of the data or what describes one, for building a model."""

    def on_epoch_begin(self, pass_index: int, offset: int) -> None:
        """Says which pass an epoch reads, and from which batch on."""

    def iterate(self) -> Iterator[Any]:
        """The batches of that pass from that batch on, as TensorFlow's iterator."""

    def on_epoch_end(self) -> None:
        """Told when the epoch is over."""


class ArraySource:
    """Arrays, tensors, and lists and dicts of them.

    Args:
        x: Inputs, as given to `fit`.
        y: Targets.
        arguments: The other arguments of `fit`.
        finish: What is done to the set of batches at last, such as padding them.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        arguments: dict[str, Any],
        finish: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda batches: batches,
    ) -> None:
        self._inputs, num_samples, batch_size = array_inputs(
            x,
            y,
            arguments.get("sample_weight"),
            arguments.get("class_weight"),
            arguments.get("batch_size"),
            arguments.get("steps_per_epoch"),
        )
        if num_samples == 0:
            raise UsageError("the data is empty: x has 0 samples. Pass at least one.")
        self.num_samples: int | None = num_samples
        self.batch_size: int | None = batch_size
        self.num_batches: int | None = -(-num_samples // batch_size)
        self._sizes = (num_samples, batch_size)
        self._shuffle: bool | str = arguments.get("shuffle", True)
        self._seed = 0
        self._start = (0, 0)
        self._dataset = finish(self._make_dataset()).prefetch(tf.data.AUTOTUNE)

    def identity(self) -> dict[str, Any]:
        """Number of samples, and a checksum of some of them."""
        sample = np.linspace(0, self._sizes[0] - 1, NUM_SAMPLED_ROWS).astype(np.int64)
        batch = keras.tree.map_structure(lambda leaf: rows(leaf, sample), self._inputs)
        return {"kind": "arrays", "num_samples": self.num_samples, "checksum": checksum(batch)}

    def begin(self, seed: int, pass_index: int) -> None:
        """Says which seed orders the passes."""
        del pass_index
        self._seed = seed

    def example(self) -> Any:
        """What a batch is made of."""
        return example_of(self._dataset)

    def on_epoch_begin(self, pass_index: int, offset: int) -> None:
        """Says where the next iterator begins."""
        self._start = (pass_index, offset)

    def iterate(self) -> Iterator[Any]:
        """The batches of the pass from where the epoch begins."""
        return iter(self._dataset)

    def on_epoch_end(self) -> None:
        """Arrays have nothing to put away."""

    def _rest_of_pass(self) -> Iterator[Any]:
        pass_index, offset = self._start
        num_samples, batch_size = self._sizes
        order = order_of_pass(num_samples, self._shuffle, self._seed, pass_index, batch_size)
        yield order[offset * batch_size :]

    def _make_dataset(self) -> tf.data.Dataset:
        _, batch_size = self._sizes

        def batches_of(order: tf.Tensor) -> tf.data.Dataset:
            num_batches = -(-tf.size(order, out_type=tf.int64) // batch_size)
            numbers = tf.data.Dataset.range(num_batches)
            return numbers.map(lambda number: order[number * batch_size : (number + 1) * batch_size])

        orders = tf.data.Dataset.from_generator(
            self._rest_of_pass, output_signature=tf.TensorSpec([None], tf.int64)
        )
        everything = tf.data.Dataset.from_tensors(self._inputs).repeat()
        pairs = tf.data.Dataset.zip((orders.flat_map(batches_of), everything))
        batches = pairs.map(
            lambda indices, inputs: keras.tree.traverse(lambda leaf: rows(leaf, indices), inputs),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        options = tf.data.Options()
        # As Keras does: the optimizer would serialize the whole arrays.
        options.experimental_optimization.apply_default_optimizations = False
        return batches.with_options(options)


def example_of(dataset: tf.data.Dataset) -> Any:
    """What a batch of a set is made of; a real batch where the set does not say enough."""
    specs = keras.tree.flatten(dataset.element_spec)
    if all(isinstance(each, tf.TensorSpec) and each.shape[1:].is_fully_defined() for each in specs):
        return dataset.element_spec
    return next(iter(dataset))


def checksum(batch: Any) -> int:
    """A checksum of all arrays in a batch."""
    value = 0
    for leaf in keras.tree.flatten(batch):
        if leaf is None:
            continue
        array = np.asarray(leaf.values if isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor)) else leaf)
        is_plain = array.dtype.kind in "biufc"
        content = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if is_plain else repr(array.tolist())
        )
        value = zlib.crc32(content.encode() if isinstance(content, str) else content, value)
    return value
