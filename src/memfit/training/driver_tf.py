"""The functions that run one batch, in the place of Keras's own, while `memfit.fit` lasts.

Keras's `fit` calls `model.train_function` with its iterator, and `test_function` and `predict_function`
likewise. These keep the batch and the state before it, so that it can be run again, and then run what Keras
would have run: in one call of TensorFlow where Keras makes one, since calls cost time.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import keras
import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import LossError, MemfitWarning, OutOfMemoryError, UsageError
from memfit.measuring import device_tf
from memfit.measuring.oom import is_device_oom, read_error
from memfit.records import Meter, Outcome, Plan, Request, Run
from memfit.splitting import internals_tf as internals
from memfit.splitting.checking_tf import why_not_evaluate, why_not_predict, why_not_train
from memfit.splitting.slicing_tf import num_examples, take
from memfit.splitting.step_tf import split_test_step, split_train_step
from memfit.splitting.windows_tf import windowed_train_step
from memfit.training import checking, fallbacks
from memfit.training.course_tf import Course
from memfit.training.fallbacks import EVALUATION, PREDICTION, TRAINING
from memfit.training.holding_tf import Hold
from memfit.training.journal import Journal
from memfit.training.state_tf import LOST, State
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
        self._line_bytes = find_budget().device_bytes if budget_bytes is None else budget_bytes
        self._is_nan_watched = is_nan_watched
        self._functions: dict[tuple[str, bool, str], Callable[[Any], Any]] = {}
        self._sizes = {where: _size_variable() for where in (TRAINING, EVALUATION)}
        self._iterator: weakref.ref[Any] | None = None
        self._spec: Any = None
        self._spec_text = ""
        self._checkpointing = fallbacks.checkpointing(plan)
        self._state: State | None = None
        self._hold = Hold()
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
        self._hold.close()
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
        try:
            return self._execute(iterator, self._train_next)
        except (StopIteration, tf.errors.OutOfRangeError):
            if self.journal.num_steps == 0:
                raise UsageError(EMPTY) from None
            raise

    def _execute(self, iterator: Iterator[Any], run_next: Callable[[Iterator[Any]], Any]) -> Any:
        """As many steps as Keras makes in one call, or what is left of the data."""
        logs = None
        for _ in range(self._model.steps_per_execution):
            try:
                logs = run_next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if logs is None:
                    raise
                break
        return logs

    def _train_next(self, iterator: Iterator[Any]) -> Any:
        num, logs = self._run_next(TRAINING, iterator)
        self.journal.num_steps += 1
        self.journal.num_samples += num or 0
        if self._budget_bytes is not None:
            self._check_peak(num)
        return logs

    def _check_loss(self, logs: Any, values: Callable[[], list[tf.Tensor]]) -> None:
        loss = _watched_loss(logs) if self._is_nan_watched else None
        if loss is None or not math.isnan(float(loss)):
            return
        assert self._state is not None
        state = "The step was not undone: its old weights were not kept, since both do not fit the budget."
        if not self._state.is_lean:
            self._roll_back(values())
            state = "The model is as it was before that step."
        error = LossError(
            f"the loss is not a number at step {self.journal.num_steps} (epoch {self.journal.epoch}). "
            f"{state} Lower the learning rate, clip the gradients (global_clipnorm=1.0), or look for "
            "infinities and divisions by zero in the data. To stop without an error, the step not undone, "
            "pass callbacks=[keras.callbacks.TerminateOnNaN()]."
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
            action = f"from the next batch on, it is {plan.in_words()}."
        self.journal.note(where=TRAINING, what=what, action=action, peak_bytes=peak_bytes)
        if plan is None:
            self._budget_bytes = None
        else:
            self.course.take(plan)
            device_tf.reset_peaks()
        warnings.warn(f"step {self.journal.num_steps}: {what} {action}", MemfitWarning, stacklevel=2)

    # Evaluation and prediction

    def _test(self, iterator: Iterator[Any]) -> Any:
        return self._execute(iterator, lambda source: self._run_next(EVALUATION, source)[1])

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

    # One batch

    def _run_next(self, where: str, iterator: Iterator[Any]) -> tuple[int | None, Any]:
        """Runs the next batch: how many examples it had, and what Keras logs."""
        self._meet(iterator)
        if not self._is_held(where):
            batch = next(iterator)
            return self._run(where, batch, self._look(batch).read())
        try:
            num, logs = self._held_function(where)(iterator)
        except Exception as error:
            held = self._hold.take()
            if held is None or not is_device_oom(error):
                raise
            request = read_error(error)
        else:
            if where == TRAINING:
                self._check_loss(logs, lambda: self._hold.take()[1])
            return int(num), logs
        # Outside of the except block, so that the traceback is gone and with it all that the step held.
        batch, values = held
        return self._run(where, batch, values, died_of=request)

    def _run(
        self, where: str, batch: Any, values: list[tf.Tensor], died_of: Request | None = None
    ) -> tuple[int | None, Any]:
        """Runs a batch that is there already; `died_of` says that a first attempt has failed."""
        num = _num_examples(batch)
        if where == TRAINING and self.journal.num_steps == 0:
            checking.check_first_batch(self.course.plan, num_examples=num)
        logs = self.course.survive(
            where,
            num,
            lambda: self._function(where, num)(batch),
            lambda: self._roll_back(values),
            died_of=died_of,
        )
        if where == TRAINING:
            self._check_loss(logs, lambda: values)
        return num, logs

    def _meet(self, iterator: Iterator[Any]) -> None:
        """Looks at an iterator once; what is known of all its batches is the same until the next one."""
        if not _is_plain(iterator):
            self._iterator, self._spec, self._spec_text = None, None, ""
        elif self._iterator is None or iterator is not self._iterator():
            # Not kept alive: it is for Keras to end it, which can take a second.
            self._iterator = weakref.ref(iterator)
            self._spec = iterator.element_spec
            self._spec_text = repr(self._spec)

    def _is_held(self, where: str) -> bool:
        """Whether a batch is taken from the data by the function that runs it, as Keras does it.

        Not the first one, which tells what state there is; nor one that may have to be split, since its
        number of examples decides.
        """
        if self._spec is None or self._state is None or self._model.run_eagerly:
            return False
        return self._micro_batch(where) is None

    def _micro_batch(self, where: str) -> int | None:
        plan = self.course.plan
        return plan.micro_batch if where == TRAINING else plan.evaluation_micro_batch

    # Functions and state

    def _function(self, where: str, num: int | None) -> Callable[[Any], Any]:
        """Keras's own function of one batch, split where the plan says so."""
        micro_batch = self._micro_batch(where)
        is_split = micro_batch is not None and (num is None or num > micro_batch)
        key = (where, is_split, self._spec_text)
        if key not in self._functions:
            step = self._step(where, is_split=is_split)
            self._functions[key] = internals.make_function(self._model, step, self._spec)
        if is_split:
            self._sizes[where].assign(micro_batch)
        return self._functions[key]

    def _held_function(self, where: str) -> Callable[[Any], Any]:
        """A function of an iterator that holds the batch and the state for as long as it runs.

        A loss that is not a number leaves them held: then Python takes them to go back.
        """
        key = (where, False, f"held {self._spec_text}")
        if key not in self._functions:
            state, hold = self._look(None), self._hold
            keras_function = self._function(where, None)  # The one that ran the first batch: no second trace.
            is_nan_watched = self._is_nan_watched and where == TRAINING

            def run(iterator: Any) -> tuple[Any, Any]:
                batch = iterator.get_next()
                with tf.control_dependencies([hold.put((batch, state.read()))]):
                    logs = keras_function(batch)
                with tf.control_dependencies(tf.nest.flatten(logs)):
                    loss = _watched_loss(logs) if is_nan_watched else None
                    if loss is None:
                        hold.drop()
                    else:
                        tf.cond(tf.math.is_nan(loss), tf.no_op, hold.drop)
                return num_examples(batch), logs

            self._functions[key] = tf.function(run, reduce_retracing=True, autograph=False)
        return self._functions[key]

    def _step(self, where: str, *, is_split: bool = False) -> Callable[[Any], Any]:
        assert self._state is not None
        if where == TRAINING:
            window = self.course.plan.gradient_window
            step = split_train_step(self._model, self._sizes[where]) if is_split else self._model.train_step
            if window is not None:
                step = windowed_train_step(self._model, window)
            return self._state.marked(step)
        return split_test_step(self._model, self._sizes[where]) if is_split else self._model.test_step

    def _look(self, batch: Any) -> State:
        """Finds the variables. Metrics have theirs only after the first batch."""
        model = self._model
        if not model.built:
            internals.build_from(model, batch)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._state = State(model, model.optimizer, self._line_bytes, before=self._state)
        self._num_metric_variables = len(model.metrics_variables)
        return self._state

    def _roll_back(self, values: list[tf.Tensor]) -> None:
        assert self._state is not None
        if self._state.is_lost():
            error = OutOfMemoryError(LOST)
            error.run = self.journal.close(self.course.plan, Outcome.DEVICE_OUT_OF_MEMORY)
            raise error
        self._state.write(values)
        if self._num_metric_variables != len(self._model.metrics_variables):
            # The step made them, so it was the first since Keras set them to zero.
            self._model.reset_metrics()


def is_driven(model: Any) -> bool:
    """Whether a driver stands in for the functions of a model now."""
    return isinstance(getattr(model.train_function, "__self__", None), Driver)


class Watch(keras.callbacks.Callback):
    """Keeps the journal's epochs and peaks, and remembers journal and plan for a run that goes on later.

    Args:
        driver: Has the journal and the plan.
        given: The plan that the user gave, if any.
    """

    def __init__(self, driver: Driver, *, given: Plan | None) -> None:
        super().__init__()
        self._course, self._journal = driver.course, driver.journal
        self._given = None if given is None else given.to_dict()

    def get_state(self) -> dict[str, Any]:
        """What a run that goes on has to know: what was done, under which plan, and which one was given."""
        run = self._journal.close(self._course.plan, Outcome.OK)
        return {"given": self._given, "run": run.to_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Counts on, under the plan that held last; unless another one was given since."""
        run = Run.from_dict(state["run"])
        if state["given"] == self._given and run.plan != self._course.plan:
            self._course.take(run.plan)
        self._journal.go_on_from(run)

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


def _watched_loss(logs: Any) -> Any:
    return logs.get("loss") if isinstance(logs, dict) else None


def _is_plain(iterator: Any) -> TypeGuard[tf.data.Iterator]:
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
