"""Measures the real training step at a few small batches, for estimates and for plans: `measure_growth`.

One trace serves all batches. Nothing is applied to the model, and what a step changes is put back. To measure
a model under a plan, apply the plan around the call.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from memfit.errors import MemfitError, SetupError, UsageError, reason_of
from memfit.estimating.batches_tf import Batches
from memfit.estimating.growth import Law, record_all
from memfit.estimating.prediction import Growth, Span
from memfit.estimating.recording_tf import record_step
from memfit.estimating.shadow_tf import shadowed
from memfit.estimating.timeline import Timeline
from memfit.measuring import device_tf
from memfit.measuring.oom import is_device_oom
from memfit.splitting import internals_tf as internals
from memfit.splitting.step_tf import Trainee, evaluate, split_train_step, train

# The largest batch that is measured, and how many times smaller than the one asked for it is at least. In a
# step of a few examples, ops overlap as they would not in a large one.
LARGEST_PROBE: Final = 16
LEAST_RATIO: Final = 4
SMALLEST_PROBES: Final = (1, 2)
# Up to twice so many time steps, a step is always recorded at its full length. TensorFlow runs up to 32 steps
# of a loop at once, so shorter ones say little.
FULL_LENGTH: Final = 64
# More buffers than this take seconds to record. A step that has more is recorded at two batches in place of
# three; and where it loops over time, at two shorter lengths.
MOST_BUFFERS: Final = 9_000
# A validation step is simpler, and less is asked of it.
VALIDATION_FULL_LENGTH: Final = 32
VALIDATION_MOST_BUFFERS: Final = 3_000
# Ops that could run in any order do, so a step is recorded several times: the cheaper, the oftener.
NUM_RECORDINGS: Final = 8
MANY_RECORDINGS: Final = 16
FEW_RECORDINGS: Final = 3
FEW_BUFFERS: Final = 2_500
# No more are made that would end later than this after the beginning, but for the first few of few buffers.
PROBE_SECONDS: Final = 6.0
# Whenever TensorFlow makes a function ready, ops that could run in any order come in another one, and tend to
# keep to it: of attention over 256 steps, one process held 267 MiB and another 290. So the function is made
# ready again before each recording, unless the first call, which also traces it, took long.
READY_SECONDS: Final = 4.0
# The smallest and the largest batch are timed so often; a step that takes long, once.
NUM_TIMED: Final = 2
LONG_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model and how it is trained.

    Attributes:
        model: A built Keras model, compiled or not.
        losses: What `model.compile` makes of a loss; `None` if all losses come from the layers.
        optimizer: A Keras optimizer.
    """

    model: Any
    losses: Any
    optimizer: Any


def find_subject(model: Any, *, loss: Any = None, optimizer: Any = None) -> Subject:
    """A model with the loss and the optimizer that it will be trained with.

    Raises:
        UsageError: If it is no built Keras model, or loss or optimizer are missing.
    """
    if not isinstance(model, keras.Model):
        raise UsageError(f"memfit.estimate takes a Keras model. Received: {model!r}.")
    if not all(layer.built for layer in internals.all_layers(model)) or not model.built:
        raise UsageError(
            f"{model.name!r} was never built, so it has no weights to count. Start it with "
            "keras.Input(shape), or call it once: model(x[:1])"
        )
    if not model.compiled and (loss is None or optimizer is None):
        raise UsageError(
            f"{model.name!r} is not compiled. Say how it will be trained: memfit.estimate(model, data, "
            "loss='mse', optimizer='adam'), or call model.compile(optimizer, loss) before."
        )
    losses = internals.compiled_loss(model) if loss is None else internals.make_compiled_loss(model, loss)
    return Subject(
        model=model,
        losses=losses,
        optimizer=model.optimizer if optimizer is None else keras.optimizers.get(optimizer),
    )


def measure_growth(
    subject: Subject,
    batches: Batches,
    *,
    is_training: bool = True,
    is_split: bool = False,
    num_recordings: int | None = None,
) -> Growth:
    """How the bytes and the seconds of a step grow with its batch, measured at a few tiny ones.

    Args:
        subject: The model; `find_subject` makes it.
        batches: What it is trained on; `describe` makes it.
        is_training: Whether to measure a training step rather than a validation step.
        is_split: Whether the step runs in micro-batches. The growth is then that of the micro-batch, and
            `Growth.predict` takes the batch beside it.
        num_recordings: How often the largest small step is recorded; `None`: the cheaper, the oftener.

    Returns:
        A `Growth`: `growth.predict(64)` is the peak at 64 examples, with its interval.

    Raises:
        UsageError: If the model does not take the data.
        SetupError: If the device has no meter that tells of every buffer.
    """
    check_meter()
    sizes = probe_batches(batches.batch_size)
    while True:
        try:
            return _measured(
                subject, batches, sizes, num_recordings, is_training=is_training, is_split=is_split
            )
        except tf.errors.ResourceExhaustedError as error:
            if sizes == SMALLEST_PROBES or not is_device_oom(error):
                raise
        # Out of the block, so that what the step held is freed. Not even that fits: one example may.
        gc.collect()
        sizes = SMALLEST_PROBES


def _measured(
    subject: Subject,
    batches: Batches,
    sizes: tuple[int, ...],
    num_recordings: int | None,
    *,
    is_training: bool,
    is_split: bool,
) -> Growth:
    model = subject.model
    with shadowed(model, subject.optimizer if is_training else None, is_terse=True) as shadow:
        probe = _Probe(subject, batches, shadow, is_split=is_split)
        lengths = probe.choose_lengths()
        return Growth(
            # Of a shorter length, only the slope to the longest is wanted.
            spans=(
                *(probe.span(length, (sizes[0], sizes[-1]), 1, num_timed=1) for length in lengths[:-1]),
                probe.span(lengths[-1], sizes, num_recordings, num_timed=NUM_TIMED if is_training else 1),
            ),
            weights=_sizes(model.variables),
            slots=_sizes([] if shadow is None else shadow.variables),
            metrics=_sizes(model.metrics_variables),
            updated=_sizes(model.trainable_variables if is_training else []),
            inputs=batches.input_sizes(),
            is_split=is_split,
            probes=tuple(probe.shapes),
        )


def probe_batches(batch_size: int | None) -> tuple[int, ...]:
    """The batches to measure for an estimate at a batch.

    Example:
    >>> probe_batches(256), probe_batches(16), probe_batches(1)
    ((8, 12, 16), (2, 3, 4), (1, 2))
    """
    largest = LARGEST_PROBE if batch_size is None else min(LARGEST_PROBE, batch_size // LEAST_RATIO)
    return (largest // 2, largest * 3 // 4, largest) if largest >= 4 else SMALLEST_PROBES


def check_meter() -> None:
    """Refuses to go on where no allocator tells of every buffer.

    Raises:
        SetupError: If so.
    """
    if not device_tf.has_true_meter() and not tf.config.list_logical_devices("GPU"):
        raise SetupError(
            "TensorFlow's default CPU allocator does not tell what a step holds. Import memfit before the "
            "first TensorFlow op (building a Keras model is one), and leave MEMFIT_CPU_ALLOCATOR unset."
        )


class _Probe:
    """A step that is traced once and recorded at several shapes.

    Args:
        subject: What is trained.
        batches: On what.
        shadow: What stands in for its optimizer; `None` for a validation step.
        is_split: Whether in micro-batches.

    Attributes:
        shapes: What spans were measured at, in words.
    """

    def __init__(
        self,
        subject: Subject,
        batches: Batches,
        shadow: Any,
        *,
        is_split: bool,
    ) -> None:
        self._batches = batches
        self._full_length = VALIDATION_FULL_LENGTH if shadow is None else FULL_LENGTH
        self._most_buffers = VALIDATION_MOST_BUFFERS if shadow is None else MOST_BUFFERS
        self._micro_batch = tf.Variable(1, trainable=False) if is_split else None
        self._is_gpu = bool(tf.config.list_logical_devices("GPU"))
        step = make_step(subject, shadow, self._micro_batch)
        is_any_length = (batches.length or 0) > self._full_length
        model = subject.model
        self._function: Callable[..., Any] = (
            (lambda *batch: step(batch))
            if model.compiled and model.run_eagerly
            else tf.function(
                lambda *batch: step(batch),
                input_signature=batches.signature(is_any_length=is_any_length),
                jit_compile=bool(model.compiled and model.jit_compile) or None,
                autograph=False,
            )
        )
        self._name = model.name
        self.shapes: list[str] = []
        self._start = time.perf_counter()
        self._first_seconds = 0.0

    def choose_lengths(self) -> tuple[int | None, ...]:
        """The length that was asked for; or, where recording it would take long, two shorter ones."""
        length = self._batches.length
        if length is None or length <= self._full_length:
            return (length,)
        first, second = self._full_length // 4, self._full_length // 2
        counts = [len(self._record(self._call(2, each)).buffers) for each in (first, second)]
        per_step = (counts[1] - counts[0]) / (second - first)
        # Without a loop over time, a long step has no more buffers than a short one.
        if counts[0] + per_step * (length - first) <= self._most_buffers or length <= 2 * self._full_length:
            return (length,)
        longest = max(2 * self._full_length, int(first + (self._most_buffers - counts[0]) / per_step))
        return (longest // 2, longest)

    def span(
        self, length: int | None, sizes: Sequence[int], num_recordings: int | None, *, num_timed: int
    ) -> Span:
        """What the step takes at one length and some batches, ascending, timed so often if it is short."""
        others: dict[int, Timeline] = {}
        seconds: dict[int, float] = {}
        first, *between, base = sizes
        for batch in (first, *between):
            call = self._call(batch, length)
            if batch == first:
                seconds[batch] = _timed(call, num_timed)
            elif len(others[first].buffers) > self._most_buffers:
                break
            others[batch] = self._record(call)
        call = self._call(base, length)
        seconds[base] = _timed(call, num_timed)
        timelines, num_orders = self._record_often(call, num_recordings)
        self.shapes += [_in_words(batch, length) for batch in (*others, base)]
        return Span(
            length=length,
            recordings=record_all(timelines, base, others),
            seconds=_time_law(seconds),
            num_orders=num_orders,
        )

    def _record_often(self, call: Callable[[], Any], most: int | None) -> tuple[list[Timeline], int]:
        """A step recorded so many times at most, or as often as suits it, in how many orders of its ops."""
        start = time.perf_counter()
        found, num_orders = [self._record(call)], 1
        has_few = len(found[0].buffers) <= FEW_BUFFERS
        if most is None:
            most = MANY_RECORDINGS if has_few else NUM_RECORDINGS
        while len(found) < most:
            now = time.perf_counter()
            has_time = now - self._start + (now - start) <= PROBE_SECONDS
            if not has_time and not (has_few and len(found) < FEW_RECORDINGS):
                break
            start = now
            if has_time and self._is_redrawn:
                device_tf.forget_kernels()
                call()
                num_orders += 1
            found.append(self._record(call))
        return found, num_orders

    @property
    def _is_redrawn(self) -> bool:
        return self._first_seconds <= READY_SECONDS

    def _call(self, batch: int, length: int | None) -> Callable[[], Any]:
        if self._micro_batch is not None:
            self._micro_batch.assign(batch)
        data = self._batches.make(batch if self._micro_batch is None else 2 * batch, length)
        call = partial(self._function, *data)
        start = time.perf_counter()
        try:
            call()
        except MemfitError:
            raise
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            shapes = ", ".join(
                f"{leaf.name} [batch, {', '.join(map(str, leaf.shape))}]" for leaf in self._batches.leaves
            )
            raise UsageError(
                f"{self._name!r} cannot be trained on batches of {shapes}: {reason_of(error)} "
                "Check the data's shapes against model.summary() and the loss."
            ) from error
        self._first_seconds = self._first_seconds or time.perf_counter() - start
        return call

    def _record(self, call: Callable[[], Any]) -> Timeline:
        return record_step(call, is_gpu=self._is_gpu)


def make_step(subject: Subject, shadow: Any, micro_batch: Any) -> Callable[[Any], Any]:
    """A step of a batch: in training with what stands in for the optimizer, in validation with `None`."""
    model = subject.model
    if shadow is None:
        if model.compiled:
            return lambda batch: model.test_step(batch)
        trainee = Trainee(model=model, losses=subject.losses, optimizer=None, has_metrics=False)
        return lambda batch: evaluate(trainee, keras.utils.unpack_x_y_sample_weight(batch), 2**30)
    if model.compiled and micro_batch is None:
        return lambda batch: model.train_step(batch)
    if model.compiled:
        return split_train_step(model, micro_batch)
    trainee = Trainee(model=model, losses=subject.losses, optimizer=shadow, has_metrics=False)
    return lambda batch: train(
        trainee,
        keras.utils.unpack_x_y_sample_weight(batch),
        None if micro_batch is None else micro_batch.read_value(),
    )


def _time_law(seconds: Mapping[int, float]) -> Law:
    """Seconds by examples: never less for more, and no less than nothing for none."""
    few, many = min(seconds), max(seconds)
    slope = min(max(0.0, (seconds[many] - seconds[few]) / (many - few)), seconds[many] / many)
    return Law(fixed=seconds[many] - slope * many, linear=slope)


def _timed(call: Callable[[], Any], num_timed: int) -> float:
    """The least seconds of some calls; of one, if it takes long."""
    least = math.inf
    for _ in range(num_timed):
        start = time.perf_counter()
        tf.nest.map_structure(lambda leaf: leaf.numpy(), call())
        least = min(least, time.perf_counter() - start)
        if least > LONG_SECONDS:
            break
    return least


def _sizes(variables: Sequence[Any]) -> tuple[int, ...]:
    return tuple(
        int(np.prod(each.shape, dtype=np.int64)) * tf.as_dtype(each.dtype).size for each in variables
    )


def _in_words(batch: int, length: int | None) -> str:
    return f"batch {batch}" if length is None else f"batch {batch}, length {length}"
