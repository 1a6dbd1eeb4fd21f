"""The functions that run one batch, in the place of Keras's own, while `memfit.fit` lasts.

Keras's `fit` calls `model.train_function` with its iterator, and `test_function` and `predict_function`
likewise. These take the batch out of the iterator first, so that it can be run again, and then call what
Keras would have called.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from memfit.errors import LossError, MemfitWarning, UsageError
from memfit.measuring import device_tf
from memfit.records import Meter, Outcome, Plan
from memfit.splitting import internals_tf as internals
from memfit.splitting.checking_tf import why_not_evaluate, why_not_predict, why_not_train
from memfit.splitting.slicing_tf import num_examples, take
from memfit.splitting.step_tf import split_test_step, split_train_step
from memfit.training import checking, fallbacks
from memfit.training.course_tf import Course
from memfit.training.fallbacks import EVALUATION, PREDICTION, TRAINING, describe
from memfit.training.journal import Journal
from memfit.training.state_tf import State
from memfit.units import format_bytes

EMPTY = (
    "the data has not a single batch, so nothing was trained. Look at what it yields: next(iter(dataset)). A "
    "filter may leave nothing, or drop_remainder=True a batch that is never full."
)
FUNCTIONS = ("train_function", "test_function", "predict_function")


class Driver:
    """Stands in for Keras's functions on one model, as a context.

    Args:
        model: A compiled Keras model.
        plan: The plan to begin with.
        budget_bytes: The soft line: a peak above it takes the next fallback; `None` draws none.
        is_nan_watched: Whether a loss that is not a number is an error.
    """

    def __init__(self, model: Any, plan: Plan, *, budget_bytes: int | None, is_nan_watched: bool) -> None:
        self.journal = Journal()
        self.course = Course(
            model, plan, self.journal, why_not_split=self._why_not_split, on_change=self._change
        )
        self._model = model
        self._budget_bytes = budget_bytes
        self._is_nan_watched = is_nan_watched
        self._functions: dict[tuple[str, bool, str], Callable[[Any], Any]] = {}
        self._sizes = {where: _size_variable() for where in (TRAINING, EVALUATION)}
        self._iterator: Any = None
        self._spec: Any = None
        self._spec_text = ""
        self._checkpointing = fallbacks.checkpointing(plan)
        self._state: State | None = None
        self._fetch: Any = None
        self._num_metric_variables = 0

    def __enter__(self) -> Driver:
        self._previous = {name: getattr(self._model, name) for name in FUNCTIONS}
        try:
            self.course.begin()
            self._install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.course.end()
        self._iterator = None
        is_plain = not any((*self._checkpointing, *fallbacks.checkpointing(self.course.plan)))
        for name, function in self._previous.items():
            setattr(self._model, name, function if is_plain else None)

    def _install(self) -> None:
        self._model.train_function = self._train
        self._model.test_function = self._test
        self._model.predict_function = self._predict

    def _change(self) -> None:
        """Takes up what another plan changed; functions traced under other checkpointing are of no use."""
        if fallbacks.checkpointing(self.course.plan) != self._checkpointing:
            self._checkpointing = fallbacks.checkpointing(self.course.plan)
            self._functions.clear()
        self._install()

    def _why_not_split(self, where: str) -> str:
        if where == TRAINING:
            return why_not_train(self._model, self.course.plan.allow)
        return why_not_evaluate(self._model) if where == EVALUATION else why_not_predict(self._model)

    # Training

    def _train(self, iterator: Iterator[Any]) -> Any:
        logs = None
        for _ in range(self._model.steps_per_execution):
            try:
                batch, values = self._next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if self.journal.num_steps == 0:
                    raise UsageError(EMPTY) from None
                if logs is None:
                    raise
                break
            logs = self._train_on(batch, values)
        return logs

    def _train_on(self, batch: Any, values: list[tf.Tensor]) -> Any:
        num = _num_examples(batch)
        if self.journal.num_steps == 0:
            checking.check_first_batch(self.course.plan, num_examples=num)
        logs = self.course.survive(
            TRAINING, num, lambda: self._function(TRAINING, num)(batch), lambda: self._roll_back(values)
        )
        self._check_loss(logs, values)
        self.journal.num_steps += 1
        self.journal.num_samples += num or 0
        if self._budget_bytes is not None:
            self._check_peak(num)
        return logs

    def _check_loss(self, logs: Any, values: list[tf.Tensor]) -> None:
        loss = logs.get("loss") if self._is_nan_watched and isinstance(logs, dict) else None
        if loss is None or not math.isnan(float(loss)):
            return
        self._roll_back(values)
        error = LossError(
            f"the loss is not a number at step {self.journal.num_steps} (epoch {self.journal.epoch}). The "
            "model is as it was before that step. Lower the learning rate, clip the gradients "
            "(global_clipnorm=1.0), or look for infinities and divisions by zero in the data. To stop "
            "without an error, the step not undone, pass callbacks=[keras.callbacks.TerminateOnNaN()]."
        )
        error.run = self.journal.close(self.course.plan, Outcome.ERROR)
        raise error

    def _check_peak(self, num: int | None) -> None:
        """The soft line: a step over it was good, and the next ones are to stay within."""
        assert self._budget_bytes is not None
        peak_bytes = read_peak()
        if peak_bytes is None or peak_bytes <= self._budget_bytes:
            return
        budget = format_bytes(self._budget_bytes)
        what = f"a step peaked at {format_bytes(peak_bytes)}, over the budget of {budget}."
        plan = self.course.next_plan(TRAINING, num)
        action = "nothing is left to try, so training goes on over the budget."
        if plan is not None:
            action = f"from the next batch on, it is {describe(plan)}."
        self.journal.note(where=TRAINING, what=what, action=action, peak_bytes=peak_bytes)
        if plan is None:
            self._budget_bytes = None
        else:
            self.course.take(plan)
            device_tf.reset_peaks()
        warnings.warn(f"step {self.journal.num_steps}: {what} {action}", MemfitWarning, stacklevel=2)

    # Evaluation and prediction

    def _test(self, iterator: Iterator[Any]) -> Any:
        logs = None
        for _ in range(self._model.steps_per_execution):
            try:
                batch, values = self._next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if logs is None:
                    raise
                break
            num = _num_examples(batch)
            logs = self._test_on(batch, values, num)
        return logs

    def _test_on(self, batch: Any, values: list[tf.Tensor], num: int | None) -> Any:
        return self.course.survive(
            EVALUATION, num, lambda: self._function(EVALUATION, num)(batch), lambda: self._roll_back(values)
        )

    def _predict(self, batches: list[Any]) -> Any:
        num = max(filter(None, map(_num_examples, batches)), default=None)
        return self.course.survive(PREDICTION, num, lambda: self._predict_all(batches, num), lambda: None)

    def _predict_all(self, batches: list[Any], num: int | None) -> Any:
        key = (PREDICTION, False, "")
        if key not in self._functions:
            self._functions[key] = internals.make_predict_function(self._model)
        function = self._functions[key]
        micro_batch = self.course.plan.evaluation_micro_batch
        if micro_batch is None or num is None or num <= micro_batch:
            return function(batches)
        pieces = [
            function([take(batch, start, min(start + micro_batch, size))])
            for batch in batches
            for size in (_num_examples(batch) or 0,)
            for start in range(0, size, micro_batch)
        ]
        return keras.tree.map_structure(lambda *parts: tf.concat(parts, 0), *pieces)

    # Functions and state

    def _function(self, where: str, num: int | None) -> Callable[[Any], Any]:
        plan, model = self.course.plan, self._model
        micro_batch = plan.micro_batch if where == TRAINING else plan.evaluation_micro_batch
        is_split = micro_batch is not None and (num is None or num > micro_batch)
        key = (where, is_split, self._spec_text)
        if key not in self._functions:
            step = model.train_step if where == TRAINING else model.test_step
            if is_split:
                make = split_train_step if where == TRAINING else split_test_step
                step = make(model, self._sizes[where])
            self._functions[key] = internals.make_function(model, step, self._spec)
        if is_split:
            self._sizes[where].assign(micro_batch)
        return self._functions[key]

    def _next(self, iterator: Iterator[Any]) -> tuple[Any, list[tf.Tensor]]:
        """The next batch, and the state before it. Both in one call of TensorFlow, since calls cost time."""
        if iterator is not self._iterator:
            self._iterator = iterator
            self._spec = getattr(iterator, "element_spec", None) if _is_plain(iterator) else None
            self._spec_text = repr(self._spec)
        if self._state is None or not _is_plain(iterator):
            batch = next(iterator)
            return batch, self._look(batch).read()
        if self._fetch is None:
            self._look(None)
            state = self._state
            self._fetch = tf.function(
                lambda source: (source.get_next(), state.read()), reduce_retracing=True, autograph=False
            )
        batch, values = self._fetch(iterator)
        return batch, values

    def _look(self, batch: Any) -> State:
        """Finds the variables. Metrics have theirs only after the first batch."""
        model = self._model
        if not model.built:
            internals.build_from(model, batch)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._state = State(model, model.optimizer)
        self._num_metric_variables = len(model.metrics_variables)
        return self._state

    def _roll_back(self, values: list[tf.Tensor]) -> None:
        assert self._state is not None
        self._state.write(values)
        if self._num_metric_variables != len(self._model.metrics_variables):
            # The step made them, so it was the first since Keras set them to zero.
            self._model.reset_metrics()


class Watch(keras.callbacks.Callback):
    """Keeps the journal's epochs and peaks.

    Args:
        journal: The journal.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def get_state(self) -> dict[str, Any]:
        """What a resumed run has to put back: nothing, the journal is that of one process."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Begins a new peak."""
        self._journal.epoch = epoch
        device_tf.reset_peaks()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Notes the peak."""
        self._journal.peak_bytes.append(read_peak())


def read_peak() -> int | None:
    """The peak of the fullest device whose meter is true, or `None`."""
    if not tf.config.list_logical_devices("GPU") and not device_tf.has_true_meter():
        return None
    figures = [each for each in device_tf.read_figures() if each.meter is Meter.ALLOCATOR]
    return max((each.peak_bytes for each in figures), default=None)


def _is_plain(iterator: Any) -> bool:
    return isinstance(iterator, tf.data.Iterator) and not isinstance(
        iterator, tf.distribute.DistributedIterator
    )


def _size_variable() -> tf.Variable:
    """Holds the size of micro-batches, so that another size needs no new trace."""
    return tf.Variable(1, trainable=False, dtype=tf.int32)


def _num_examples(batch: Any) -> int | None:
    """Examples in a batch that is there, or `None` where replicas share it."""
    leaves = keras.tree.flatten(batch)
    if any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in leaves):
        return None
    return int(num_examples(batch))
