"""What is known of a training that ran out of memory, from inside of the process that it ran in."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from memfit.guarding.batch_shapes_tf import BatchShapes
from memfit.guarding.first_epoch import TRAINING, VALIDATION
from memfit.guarding.forecast_tf import Dead, forecast
from memfit.guarding.inventory_tf import take_inventory
from memfit.records import Inventory, Request

KERAS_BATCH_SIZE: Final = 32


class Witness:
    """Follows the last `fit` of a script.

    Attributes:
        shapes: Notes the shapes of its batches, where it is installed.
    """

    def __init__(self) -> None:
        self.shapes = BatchShapes()
        self._batch_size: int | None = None
        self._validation_batch_size: int | None = None
        self._model: weakref.ref[Any] | None = None
        self._data: Any = None

    def fit_begins(self, model: Any, given: dict[str, Any]) -> None:
        """A `fit` begins with these arguments."""
        self._batch_size, self._model = given.get("batch_size"), weakref.ref(model)
        self._validation_batch_size = given.get("validation_batch_size")

    def keras_begins(self, given: dict[str, Any]) -> None:
        """Keras itself does it, so that nobody has measured what its steps take."""
        self._data = _arrays(given)

    def keras_ended(self) -> None:
        """It went well, and nothing of it is kept."""
        self._data = None

    def inventory(self) -> Inventory:
        """What the process holds now."""
        model = self._trained()
        return take_inventory(
            batch_size=self._batch_size,
            batch_shapes=() if model is None else self.shapes.last(model),
            largest_shapes=() if model is None else self.shapes.largest(model),
        )

    def last_inventory(self, *, phase: str, request: Request | None, budget: int | None) -> Inventory:
        """What the process holds after it ran out of memory, and what would have fitted.

        Args:
            phase: What it was doing: only steps of training and of validation can be measured again.
            request: The allocation that failed, or `None`.
            budget: What the device may use, or `None`.
        """
        self.shapes.undo()
        found, model, is_training = self.inventory(), self._trained(), phase == TRAINING
        if model is None or phase not in (TRAINING, VALIDATION):
            return found
        training_size = self._batch_size or KERAS_BATCH_SIZE
        dead = Dead(
            model=model,
            data=self._data,
            shapes=found.batch_shapes if is_training else (),
            batch_size=training_size if is_training else self._validation_size(request),
            is_training=is_training,
        )
        return replace(found, forecast=forecast(dead, budget=budget))

    def _validation_size(self, request: Request | None) -> int | None:
        """Examples of a batch of validation: as given, or as the tensor that was asked for tells."""
        if self._validation_batch_size is not None or request is None or not request.shape:
            return self._validation_batch_size
        return request.shape[0]

    def _trained(self) -> Any:
        return None if self._model is None else self._model()


def _arrays(given: dict[str, Any]) -> Any:
    """What a `fit` is given, where it is arrays; `None` otherwise: others may only be read once."""
    data = (given.get("x"), given.get("y"))
    parts = keras.tree.flatten(data)
    return data if all(isinstance(each, (np.ndarray, tf.Tensor)) for each in parts) else None
