"""Tells the story of a training while Keras drives it: a callback that only reads meters."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import keras

from memfit.budgeting import allocator
from memfit.guarding.first_epoch import TRAINING, VALIDATION
from memfit.guarding.inventory_tf import count_tensors_and_graphs
from memfit.guarding.story import StoryFile
from memfit.measuring import device_tf, process
from memfit.records import DeviceReading, Moment

LEAST_GAP_SECONDS: Final = 0.2
# The gap between two moments of one phase grows with the time that the story lasts, so that it stays short.
MOMENTS_A_LIFE: Final = 500
# Counting objects may take this share of the time.
COUNTING_SHARE: Final = 0.01
FREE_COUNTS: Final = 5  # The first few count whatever they take: a run may be short.


class Storyteller:
    """Writes moments, not too many, and counts objects, not too often."""

    def __init__(self, story: StoryFile) -> None:
        self._story = story
        self._start_seconds = time.monotonic()
        self._last_seconds = 0.0
        self._count_due_seconds = 0.0
        self._num_counts = 0
        self.phase = ""

    def may_tell(self) -> bool:
        """Whether enough time has passed since the last moment."""
        now = time.monotonic()
        gap = max(LEAST_GAP_SECONDS, (now - self._start_seconds) / MOMENTS_A_LIFE)
        return now - self._last_seconds >= gap

    def tell(self, phase: str, *, model: int, epoch: int, step: int, counted: bool = False) -> None:
        """Writes down where the script is, and what its meters say."""
        self._last_seconds = time.monotonic()
        self.phase = phase
        device = _fullest_device()
        tensors, num_bytes, graphs = self._count() if counted else (None, None, None)
        self._story.tell(
            Moment(
                at_seconds=time.time(),
                phase=phase,
                model=model,
                epoch=epoch,
                step=step,
                device_bytes=device.current_bytes if device else None,
                peak_bytes=device.peak_bytes if device else None,
                host_bytes=process.resident_bytes(),
                num_tensors=tensors,
                tensor_bytes=num_bytes,
                num_graphs=graphs,
            )
        )

    def _count(self) -> tuple[int | None, int | None, int | None]:
        before = time.monotonic()
        if before < self._count_due_seconds and self._num_counts >= FREE_COUNTS:
            return None, None, None
        self._num_counts += 1
        found = count_tensors_and_graphs()
        after = time.monotonic()
        self._count_due_seconds = after + (after - before) / COUNTING_SHARE
        return found


def _fullest_device() -> DeviceReading | None:
    """The fullest device that has a true meter, or `None`."""
    if not allocator.is_on(os.environ):  # The CPU's meter may then even refuse to answer.
        return None
    figures = [
        each
        for each in device_tf.read_figures()
        if each.device.startswith("GPU") or device_tf.has_true_meter()
    ]
    return max(figures, key=lambda each: each.peak_bytes, default=None)


class Telling(keras.callbacks.Callback):
    """Tells what `fit`, `evaluate` or `predict` does.

    Args:
        teller: Writes it down.
        number: Which model of the script it is, from 0.
        phase: What a test is called: `"validation"` in a `fit`, otherwise `"evaluation"`.
    """

    def __init__(self, teller: Storyteller, number: int, phase: str) -> None:
        super().__init__()
        self._teller, self._number, self._test_phase = teller, number, phase
        self._epoch = 0
        self._step = 0

    def get_state(self) -> dict[str, Any]:
        """Nothing is remembered for a run that goes on later."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Nothing is taken up."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """An epoch begins."""
        self._epoch, self._step = epoch, 0
        self._tell(TRAINING)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A batch was trained on."""
        self._step = batch + 1
        if batch == 0 or self._teller.may_tell():
            self._tell(TRAINING)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """An epoch has ended, its validation included."""
        self._tell("between", counted=True)

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """A validation or evaluation begins."""
        if self._test_phase == VALIDATION:
            self._tell(TRAINING, counted=True)
        self._step = 0
        self._tell(self._test_phase)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A batch was evaluated."""
        self._step = batch + 1
        if batch == 0 or self._teller.may_tell():
            self._tell(self._test_phase)

    def on_predict_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """A prediction begins."""
        self._step = 0
        if self._teller.may_tell():
            self._tell("prediction")

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A batch was predicted."""
        self._step = batch + 1
        if self._teller.may_tell():
            self._tell("prediction")

    def _tell(self, phase: str, *, counted: bool = False) -> None:
        self._teller.tell(phase, model=self._number, epoch=self._epoch, step=self._step, counted=counted)
