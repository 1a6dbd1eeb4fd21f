"""Arrays whose batches are changed on their way to the model: padded, or cut.

Order, batches and weights are Keras's own: its adapter cuts the arrays into batches, and only then is each
changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from memfit.data.cutting_tf import Cutter
from memfit.data.ragged_tf import Padder, sample_of
from memfit.training import resuming_internals_tf as internals


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedArrays:
    """Arrays, and how their batches are changed.

    Attributes:
        x: Inputs, as given to `fit`.
        y: Targets.
        sample_weight: Weights.
        padder: Pads a batch of ragged tensors; `None` if there are none.
        cutter: Cuts a batch after that; `None` if it stays as long as it is.
    """

    x: Any
    y: Any
    sample_weight: Any
    padder: Padder | None = None
    cutter: Cutter | None = None

    def sample(self) -> tuple[Any, ...]:
        """What to make a plan by: of ragged arrays a few sequences, padded to the longest of all."""
        if self.padder is None:
            return self.x, self.y, self.sample_weight
        return sample_of(self.padder, self.x, self.y, self.sample_weight)

    def map_set(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """The batches, changed."""
        padded = batches if self.padder is None else self.padder.pad_set(batches)
        return padded if self.cutter is None else self.cutter.cut_set(padded)

    def adapter(self, arguments: dict[str, Any], *, is_shuffled: bool = True) -> Any:
        """What Keras takes in their place, by the arguments of `fit`, which Keras then passes over."""
        adapter = internals.array_adapter(
            self.x,
            self.y,
            sample_weight=self.sample_weight,
            class_weight=arguments.get("class_weight"),
            batch_size=arguments.get("batch_size"),
            steps=arguments.get("steps_per_epoch"),
            shuffle=is_shuffled and arguments.get("shuffle", True),
        )
        return MappedAdapter(adapter, self)


class MappedAdapter(internals.DataAdapter):
    """Keras's adapter of arrays, with batches that are changed.

    Args:
        adapter: Keras's.
        arrays: How they are.
    """

    def __init__(self, adapter: Any, arrays: MappedArrays) -> None:
        self._adapter, self._arrays = adapter, arrays

    def get_tf_dataset(self) -> tf.data.Dataset:
        """The batches of a pass."""
        return self._arrays.map_set(self._adapter.get_tf_dataset()).prefetch(tf.data.AUTOTUNE)

    @property
    def num_batches(self) -> int | None:
        """Batches in a pass."""
        found: int | None = self._adapter.num_batches
        return found

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch."""
        found: int | None = self._adapter.batch_size
        return found

    @property
    def has_partial_batch(self) -> bool | None:
        """Whether the last batch is smaller."""
        found: bool | None = self._adapter.has_partial_batch
        return found

    @property
    def partial_batch_size(self) -> int | None:
        """Samples in the last batch if it is smaller."""
        found: int | None = self._adapter.partial_batch_size
        return found
