"""Small runs that are cut off in the middle and gone on with. What is compared is compared bit for bit.

Most of the time of a short run is the trace of its model, so the lives of a case share one model: each begins
with all its variables as they were when it was made, and with the functions that Keras has traced for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from memfit import Resume
from memfit.training.resuming_tf import resumable_fit

NUM_SAMPLES = 46
BATCH_SIZE = 8
NUM_BATCHES = 6
FEATURES = 5


class CutOffError(Exception):
    """Ends a run at once, as a kill would."""


class CutOff(keras.callbacks.Callback):
    """Ends a run in the middle of a step, or of the validation, of one epoch."""

    def __init__(self, epoch: int, step: int | None) -> None:
        super().__init__()
        self.at = (epoch, step)
        self.now = (0, 0)

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.now = (epoch, 0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if (self.now[0], batch) == self.at:
            raise CutOffError

    def on_test_begin(self, logs: Any = None) -> None:
        if (self.now[0], None) == self.at:
            raise CutOffError


class Numbers(keras.callbacks.Callback):
    """Notes the step numbers that Keras passes on."""

    def __init__(self, seen: list[tuple[int, int]]) -> None:
        super().__init__()
        self.seen = seen
        self.epoch = 0

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append((self.epoch, batch))


def make_model(**options: Any) -> keras.Model:
    """Dropout, BatchNormalization and Adam, from one seed."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    optimizer = options.pop("optimizer", None) or keras.optimizers.Adam(0.01)
    model.compile(optimizer, loss="mse", metrics=["mae"], **({"jit_compile": False} | options))
    return model


@cache
def _kept(make: Callable[[], keras.Model]) -> tuple[keras.Model, list[Any]]:
    """A model for all lives, and what its variables were when it was made."""
    model = make()
    model.optimizer.build(model.trainable_variables)
    return model, [each.numpy() for each in [*model.variables, *model.optimizer.variables]]


def as_made(make: Callable[[], keras.Model]) -> keras.Model:
    """The model as a script would have it that has just made it."""
    model, values = _kept(make)
    for variable, value in zip([*model.variables, *model.optimizer.variables], values, strict=True):
        variable.assign(value)
    model.reset_metrics()
    model._eval_epoch_iterator = None  # Keras leaves it behind when a fit is cut off.
    return model


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(1)
    x = random.normal(size=(NUM_SAMPLES, FEATURES)).astype("float32")
    return x, x.sum(axis=1, keepdims=True) + random.normal(size=(NUM_SAMPLES, 1)).astype("float32")


class Batches(keras.utils.PyDataset):
    """The data by batches."""

    def __init__(self, workers: int = 1, length: int | None = NUM_BATCHES) -> None:
        super().__init__(workers=workers)
        self.x, self.y = data()
        self.length = length

    @property
    def num_batches(self) -> int | None:
        return self.length

    def __getitem__(self, index: int) -> Any:
        rows = slice(index % NUM_BATCHES * BATCH_SIZE, (index % NUM_BATCHES + 1) * BATCH_SIZE)
        return self.x[rows], self.y[rows]


def dataset(repeat: bool = False, is_known: bool = True) -> tf.data.Dataset:
    made = tf.data.Dataset.from_tensor_slices(data()).shuffle(NUM_SAMPLES, seed=3)
    if repeat:
        made = made.repeat()
    if not is_known:
        made = made.filter(lambda x, y: True)
    return made.batch(BATCH_SIZE).prefetch(2)


def fit(model: keras.Model, x: Any, y: Any, resume: Any, **arguments: Any) -> keras.callbacks.History:
    """What `memfit.fit` does, with plain Keras driving."""

    def drive(x: Any, y: Any, arguments: dict[str, Any], callbacks: Any) -> keras.callbacks.History:
        return model.fit(x, y, callbacks=callbacks, **arguments)

    return resumable_fit(model, drive, x, y, resume, {"verbose": 0, **arguments})


class Case:
    """A run that can be made again from nothing, as by a script.

    Args:
        feed: Makes x and y.
        make: Makes the model.
        callbacks: Makes the callbacks.
        is_model_new: Whether each life makes its model, and traces it; for what hangs on the making.
        arguments: Of `fit`.
    """

    def __init__(
        self,
        feed: Callable[[], tuple[Any, Any]] = data,
        make: Callable[[], keras.Model] = make_model,
        callbacks: Callable[[], list[Any]] = list,
        every_steps: int = 1,
        is_model_new: bool = False,
        **arguments: Any,
    ) -> None:
        self.feed, self.make, self.callbacks, self.every_steps = feed, make, callbacks, every_steps
        self.is_model_new = is_model_new
        self.arguments = {"epochs": 3} | arguments
        self.numbers: list[tuple[int, int]] = []

    def run(self, folder: Path, *more: Any, **changed: Any) -> tuple[keras.Model, dict[str, list[float]]]:
        """The run from the beginning of the script: the model and the history at its end."""
        model = self.make() if self.is_model_new else as_made(self.make)
        if not self.is_model_new:
            keras.utils.set_random_seed(5)
        x, y = self.feed()
        arguments = self.arguments | changed
        callbacks = [*self.callbacks(), *more]
        resume = Resume(folder, every_steps=self.every_steps)
        history = fit(model, x, y, resume, callbacks=callbacks, **arguments)
        return model, history.history

    @cache  # noqa: B019  # one a test session
    def whole(self) -> tuple[list[bytes], dict[str, list[float]]]:
        """What the run that is not cut off ends with."""
        with tempfile.TemporaryDirectory() as folder:
            model, history = self.run(Path(folder))
        return bits(model), history

    def cut(self, folder: Path, epoch: int, step: int | None, *more: Any) -> None:
        """The run until it is cut off."""
        try:
            self.run(folder, *more, CutOff(epoch, step))
        except CutOffError:
            return
        raise AssertionError(f"the run ended before step {step} of epoch {epoch}")


def bits(model: keras.Model) -> list[bytes]:
    """All that a model and its optimizer hold."""
    return [np.asarray(each.value).tobytes() for each in [*model.variables, *model.optimizer.variables]]
