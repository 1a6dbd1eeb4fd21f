"""Runs training steps on batches of any size and length, with nothing applied, and reads their peaks."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import tensorflow as tf

from memfit.estimating.batches_tf import Batches
from memfit.estimating.probing_tf import Subject, make_step
from memfit.estimating.shadow_tf import shadowed
from memfit.measuring import device_tf
from memfit.measuring.oom import is_device_oom
from memfit.planning.bench_tf import num_bytes
from memfit.splitting import internals_tf as internals

NUM_STEPS: Final = 2


class Meter:
    """A step that is traced once and run on batches of any shape. Make it by `metering`.

    Args:
        function: The step, of the parts of a batch.
        batches: What batches are like.
        variables: What the optimizer updates.
        resting_bytes: What is on the device besides the step and its batch.
    """

    def __init__(
        self, function: Callable[..., Any], batches: Batches, variables: list[Any], *, resting_bytes: int
    ) -> None:
        self._function, self._batches, self._variables = function, batches, variables
        self.resting_bytes = resting_bytes
        self.seconds = 0.0
        self._made: tuple[tuple[int, int], Any] | None = None
        self._warm: set[tuple[int, int]] = set()

    def peak_bytes(self, size: int, length: int) -> float:
        """The most that some steps take above what rests on the device, their batch included."""
        return max(self.step_bytes(size, length) for _ in range(NUM_STEPS))

    def step_bytes(self, size: int, length: int) -> float:
        """What a step takes; infinite if it fails. If asked again, another step is run."""
        try:
            batch = self._batch(size, length)
            return self._one(batch) + num_bytes(tf.nest.flatten(batch))
        except Exception as error:
            if not is_device_oom(error):
                raise
            return math.inf

    def _batch(self, size: int, length: int) -> tuple[Any, ...]:
        """A batch of a shape that was run once: the first time, TensorFlow builds what it needs for it."""
        shape = (size, length)
        if self._made is None or self._made[0] != shape:
            self._made = None
            batch = self._batches.make(size, length)
            if shape not in self._warm:
                self._function(*batch)
                self._warm.add(shape)
            self._made = shape, batch
        found: tuple[Any, ...] = self._made[1]
        return found

    def _one(self, batch: tuple[Any, ...]) -> int:
        device_tf.reset_peaks()
        before_bytes = _fullest("current_bytes")
        held = [
            tf.convert_to_tensor(internals.raw(each)) for each in self._variables
        ]  # As `memfit.fit` does.
        start = time.perf_counter()
        tf.nest.map_structure(lambda leaf: leaf.numpy(), self._function(*batch))
        self.seconds = time.perf_counter() - start
        del held
        return _fullest("peak_bytes") - before_bytes


@contextmanager
def metering(
    subject: Subject, batches: Batches, make: Callable[[Any], Callable[[Any], Any]] | None = None
) -> Iterator[Meter]:
    """A meter for a model, which is as before when the context is left.

    Args:
        subject: The model and how it is trained.
        batches: On what.
        make: Makes the step from what stands in for the optimizer; `None` for the model's own.
    """
    gc.collect()
    model, optimizer = subject.model, subject.optimizer
    own = [*model.variables, *model.metrics_variables]
    slots = optimizer.variables if optimizer.built else ()
    other_bytes = max(0, _fullest("current_bytes") - num_bytes([*own, *slots]))
    with shadowed(model, optimizer) as shadow:
        assert shadow is not None
        step = make_step(subject, shadow, None) if make is None else make(shadow)
        function: Callable[..., Any] = lambda *batch: step(batch)  # noqa: E731
        if not (model.compiled and model.run_eagerly):
            signature = batches.signature(is_any_length=True)
            function = tf.function(function, input_signature=signature, autograph=False)
        resting_bytes = other_bytes + num_bytes([*own, *shadow.variables])
        updated = [*model.trainable_variables, *shadow.variables]
        yield Meter(function, batches, updated, resting_bytes=resting_bytes)


def _fullest(field: str) -> int:
    return max(int(getattr(figures, field)) for figures in device_tf.read_figures())
