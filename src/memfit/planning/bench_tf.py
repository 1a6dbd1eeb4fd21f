"""Runs real training steps under any settings, with nothing applied to the model, and reads the meter.

One function is traced for each way to run the model, for batches of any size.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from memfit.errors import MemfitError, UsageError, reason_of
from memfit.estimating.batches_tf import Batches
from memfit.estimating.estimate_tf import choose_batch_size
from memfit.estimating.growth import record
from memfit.estimating.pipeline_tf import under_way_bytes
from memfit.estimating.probing_tf import Subject, make_step
from memfit.estimating.recording_tf import record_step
from memfit.estimating.rooms import all_walks, random_walks, room_for
from memfit.estimating.shadow_tf import shadowed
from memfit.measuring import device_tf
from memfit.measuring.oom import is_device_oom
from memfit.planning.search import Try, fits_twice
from memfit.records import Plan
from memfit.splitting import internals_tf as internals
from memfit.splitting.marking_tf import marked
from memfit.strategies.applying_tf import checkpoint

# Steps that are measured; a long one only once.
NUM_STEPS: Final = 3
LONG_SECONDS: Final = 5.0
# The same for a rehearsal, whose highest peak counts: as many as fit into some seconds.
MOST_STEPS: Final = 10
REHEARSAL_SECONDS: Final = 2.0
# Steps of a rehearsal that are recorded buffer by buffer, to see whether they would run into holes. With more
# buffers that takes seconds, so fewer must do, which are walked through at random; of the walks, so many must
# fit.
NUM_RECORDED: Final = 4
NUM_RECORDED_OF_MANY: Final = 3
WALKED_SHARE: Final = 0.75
FEW_BUFFERS: Final = 2_000
# Where old weights are not kept, running out of memory in the update ends the training: so many temporaries
# of the largest variable must find a place beside what was seen. With two, Adam's update of wide layers
# failed under a limit in three of five runs, and in none of five with somewhat less than three.
NUM_SPARE: Final = 3


class Bench:
    """A model whose steps can be tried. Make it by `bench`.

    Args:
        subject: The model and how it is trained.
        batches: On what.
        shadow: The optimizer that stands in for its own.
        other_bytes: What is on the device besides the model and its batch, or will be while it trains.
        budget_bytes: What the device may use.
    """

    def __init__(
        self, subject: Subject, batches: Batches, shadow: Any, *, other_bytes: int, budget_bytes: int
    ) -> None:
        self._subject, self._batches, self._shadow = subject, batches, shadow
        self._functions: dict[Any, Callable[..., Any]] = {}
        self._micro_batch = tf.Variable(1, trainable=False)
        self._has_begun = tf.Variable(False, trainable=False)
        model = subject.model
        self.slot_bytes = num_bytes(shadow.variables)
        updated_bytes = self.slot_bytes + num_bytes(model.trainable_variables)
        self.other_bytes = other_bytes
        self._resting = [
            bytes_of(each.shape, each.dtype)
            for each in [*model.variables, *shadow.variables, *model.metrics_variables]
        ]
        self.resting_bytes = other_bytes + sum(self._resting)
        self._is_kept = fits_twice(self.resting_bytes, updated_bytes, budget_bytes)
        # Updates of several variables run at once, in any order.
        largest = max((bytes_of(each.shape, each.dtype) for each in model.trainable_variables), default=0)
        self._spare_bytes = 0 if self._is_kept else NUM_SPARE * largest

    def run(self, plan: Plan, sizes: tuple[int, ...], *, is_split: bool = False) -> list[Try]:
        """Whole batches of some sizes by a plan, its micro-batches aside.

        Args:
            plan: The plan.
            sizes: Examples in each.
            is_split: Whether each runs as a micro-batch: for a way that is of use with those only, one
                function less is traced.
        """
        plans = [replace(plan, micro_batch=size if is_split else None) for size in sizes]
        return [self._try(self._function(each), size, size) for each, size in zip(plans, sizes, strict=True)]

    def rehearse(self, plan: Plan, batch_size: int, *, most_seconds: float = REHEARSAL_SECONDS) -> Try | None:
        """A batch by a plan, as often as fits into some seconds; `None` if it ran out of memory."""
        function, num_examples = self._function(plan), plan.micro_batch or batch_size
        try:
            return self._try(function, batch_size, num_examples, most_seconds=most_seconds)
        except Exception as error:
            if not is_device_oom(error):
                raise
            return None

    def room_bytes(self, plan: Plan, batch_size: int, least_bytes: int, most_bytes: int) -> int:
        """The limit under which steps by a plan would find a place for every buffer; no less than the least.

        A peak without a limit does not tell: under one, what is free may lie in holes that are too small.
        """
        function, batch = self._function(plan), self._batches.make(batch_size)
        leaves = [bytes_of(leaf.shape, leaf.dtype) for leaf in tf.nest.flatten(batch)]
        is_gpu = bool(tf.config.list_logical_devices("GPU"))
        timelines = [record_step(lambda: self._step(function, batch), is_gpu=is_gpu)]
        is_cheap = len(timelines[0].buffers) <= FEW_BUFFERS
        timelines += [
            record_step(lambda: self._step(function, batch), is_gpu=is_gpu)
            for _ in range(NUM_RECORDED - 1 if is_cheap else NUM_RECORDED_OF_MANY - 1)
        ]
        recordings = [record(each, batch_size, {batch_size: each}) for each in timelines]
        resting = [self.other_bytes, *self._resting, *leaves]
        if is_cheap:
            return room_for(all_walks(recordings, batch_size, resting), least_bytes, most_bytes=most_bytes)
        walks = random_walks(recordings, batch_size, resting)
        return room_for(walks, least_bytes, most_bytes=most_bytes, share=WALKED_SHARE)

    def evaluate(self, plan: Plan, sizes: tuple[int, ...]) -> list[Try]:
        """Validation steps of some sizes by a plan."""
        function = self._function(replace(plan, micro_batch=None), is_training=False)
        return [self._try(function, size, size) for size in sizes]

    def _function(self, plan: Plan, *, is_training: bool = True) -> Callable[..., Any]:
        """A step by a plan, made once. It is traced while the plan is applied, and then stays what it is."""
        key = (plan.time_segment, plan.depth_limit, plan.micro_batch is not None, is_training)
        if plan.micro_batch is not None:
            self._micro_batch.assign(plan.micro_batch)
        if key not in self._functions:
            self._functions[key] = self._made(plan, is_training=is_training)
        return self._functions[key]

    def _made(self, plan: Plan, *, is_training: bool) -> Callable[..., Any]:
        model = self._subject.model
        size = None if plan.micro_batch is None else self._micro_batch
        step = make_step(self._subject, self._shadow if is_training else None, size)
        if is_training and not self._is_kept:  # As `memfit.fit` does: all gradients are there at once.
            step = marked(step, self._shadow, self._has_begun)

        def run(*batch: Any) -> Any:
            with ExitStack() as stack:
                for handle in checkpoint(model, plan):
                    stack.enter_context(handle)
                return step(batch)

        if model.compiled and model.run_eagerly:
            return run
        traced: Callable[..., Any] = tf.function(
            run,
            input_signature=self._batches.signature(),
            jit_compile=bool(model.compiled and model.jit_compile and plan.depth_limit is None) or None,
            autograph=False,
        )
        return traced

    def _try(
        self, function: Callable[..., Any], batch_size: int, num_examples: int, *, most_seconds: float = 0.0
    ) -> Try:
        batch = self._batches.make(batch_size)
        _call(function, batch, self._subject.model.name)
        peaks, times = [], []
        for _ in range(MOST_STEPS):
            device_tf.reset_peaks()
            before_bytes = _fullest("current_bytes")
            start = time.perf_counter()
            self._step(function, batch)
            times.append(time.perf_counter() - start)
            peaks.append(_fullest("peak_bytes") - before_bytes)
            is_enough = len(times) >= NUM_STEPS and sum(times) > most_seconds
            if times[-1] > LONG_SECONDS or is_enough:
                break
        return Try(
            num_examples=num_examples,
            peak_bytes=max(peaks) + self.resting_bytes + num_bytes(tf.nest.flatten(batch)),
            seconds=min(times),
            spare_bytes=self._spare_bytes,
        )

    def _step(self, function: Callable[..., Any], batch: tuple[Any, ...]) -> Any:
        held = self._read() if self._is_kept else []  # As `memfit.fit` does, to be able to undo.
        result = function(*batch)
        tf.nest.map_structure(lambda leaf: leaf.numpy(), result)  # Waits for it.
        del held
        return result

    def _read(self) -> list[tf.Tensor]:
        """What the optimizer updates. Nothing is copied as long as nothing is written."""
        variables = [*self._subject.model.trainable_variables, *self._shadow.variables]
        return [tf.convert_to_tensor(internals.raw(variable)) for variable in variables]


@contextmanager
def bench(subject: Subject, batches: Batches, data: Any = None, *, budget_bytes: int) -> Iterator[Bench]:
    """A bench for a model, which is as before when the context is left.

    Args:
        subject: The model and how it is trained.
        batches: On what.
        data: The data itself.
        budget_bytes: What the device may use.
    """
    gc.collect()
    model, optimizer = subject.model, subject.optimizer
    own = [*model.variables, *model.metrics_variables]
    own += optimizer.variables if optimizer is not None and optimizer.built else ()
    other_bytes = max(0, _fullest("current_bytes") - num_bytes(own))
    if not tf.config.list_logical_devices("GPU"):
        size = choose_batch_size(batches.batch_size, batches.num_examples)
        other_bytes += under_way_bytes(data, batches, size)
    with shadowed(model, optimizer) as shadow:
        assert shadow is not None
        yield Bench(subject, batches, shadow, other_bytes=other_bytes, budget_bytes=budget_bytes)


def num_bytes(tensors: Any) -> int:
    """The bytes of variables or tensors."""
    return sum(bytes_of(each.shape, each.dtype) for each in tensors)


def bytes_of(shape: Any, dtype: Any) -> int:
    """The bytes of a tensor."""
    return int(np.prod(shape, dtype=np.int64)) * int(tf.as_dtype(dtype).size)


def _call(function: Callable[..., Any], batch: tuple[Any, ...], name: str) -> None:
    try:
        function(*batch)
    except MemfitError:
        raise
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        shapes = ", ".join(str(list(leaf.shape)) for leaf in tf.nest.flatten(batch))
        raise UsageError(
            f"{name!r} cannot be trained on a batch of {shapes}: {reason_of(error)} Check the "
            "data's shapes against model.summary() and the loss."
        ) from error


def _fullest(field: str) -> int:
    return max([int(getattr(figures, field)) for figures in device_tf.read_figures()])
