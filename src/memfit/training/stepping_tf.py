"""`memfit.train_step`: a training step for loops of one's own, exact in micro-batches, undone if it dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import OutOfMemoryError, UsageError
from memfit.records import Plan
from memfit.splitting import internals_tf as internals
from memfit.splitting.checking_tf import why_not_layers
from memfit.splitting.identity_tf import identify
from memfit.splitting.slicing_tf import num_examples
from memfit.splitting.step_tf import Trainee, train
from memfit.training import checking, fallbacks
from memfit.training.course_tf import Course
from memfit.training.fallbacks import TRAINING
from memfit.training.journal import Journal
from memfit.training.state_tf import LOST, State


def train_step(model: Any, loss: Any, optimizer: Any, plan: Plan | None = None) -> Step:
    """A function that trains a model on one batch, by a plan.

    Args:
        model: A Keras model; it need not be compiled.
        loss: As in `model.compile`: a Keras loss, its name, a function of one number per example; or a list
            or dict of those for several outputs.
        optimizer: A Keras optimizer, or its name.
        plan: How to train in less memory; `None` changes nothing until memory runs out.

    Returns:
        `step(x, y, sample_weight=None)`, which returns the loss of the batch. It has the plan that holds in
        `step.plan` and what went wrong in `step.incidents`; `step.close()` takes the plan off the model.

    Example:
    ```python
    step = memfit.train_step(model, "mse", keras.optimizers.Adam(), memfit.Plan(micro_batch=8))
    for x, y in dataset:
        loss = step(x, y)
    ```
    """
    internals.check_versions()
    prepared = checking.prepare_plan(plan)
    checking.check_no_cut(prepared, "memfit.train_step")
    if not isinstance(model, keras.Model):
        raise UsageError(f"memfit.train_step takes a Keras model. Received: {model!r}.")
    if model.built:
        checking.check_model(prepared, num_parameters=model.count_params(), digest=identify(model))
    reason = why_not_layers(model, prepared.allow)
    if prepared.micro_batch is not None and reason:
        raise UsageError(f"the plan has micro_batch={prepared.micro_batch}, but {reason}")
    return Step(model, loss, keras.optimizers.get(optimizer), prepared)


class Step:
    """One training step after the other, as `memfit.train_step` makes it.

    Args:
        model: A Keras model.
        loss: As in `model.compile`.
        optimizer: A Keras optimizer.
        plan: The plan to begin with.
    """

    def __init__(self, model: Any, loss: Any, optimizer: Any, plan: Plan) -> None:
        losses = internals.make_compiled_loss(model, loss)
        self._trainee = Trainee(model=model, losses=losses, optimizer=optimizer, has_metrics=False)
        self._journal = Journal()
        self._course = Course(
            model,
            plan,
            self._journal,
            why_not_split=lambda _: why_not_layers(model, self.plan.allow),
            on_change=self._change,
        )
        self._checkpointing = fallbacks.checkpointing(plan)
        self._functions: dict[int | None, Callable[..., tf.Tensor]] = {}
        self._state: State | None = None
        self._course.begin()

    @property
    def plan(self) -> Plan:
        """The plan that holds now."""
        return self._course.plan

    @property
    def incidents(self) -> tuple[Any, ...]:
        """What went wrong so far, as `Incident`s."""
        return tuple(self._journal.incidents)

    def close(self) -> None:
        """Takes the plan off the model. The step must not be called again."""
        self._course.end()
        self._functions.clear()

    def __call__(self, x: Any, y: Any, sample_weight: Any = None) -> tf.Tensor:
        """Trains on one batch and returns its loss."""
        batch = keras.tree.map_structure(_tensor, (x, y, sample_weight))
        num = int(num_examples(batch))
        if self._state is None:
            checking.check_first_batch(self.plan, num_examples=num)
            self._state = self._look(batch[0])
        values = self._state.read()
        loss = self._course.survive(
            TRAINING, num, lambda: self._function(num)(*batch), lambda: self._roll_back(values)
        )
        self._journal.num_steps += 1
        self._journal.num_samples += num
        return loss

    def _roll_back(self, values: list[tf.Tensor]) -> None:
        assert self._state is not None
        if self._state.is_lost():
            raise OutOfMemoryError(LOST)
        self._state.write(values)

    def _look(self, x: Any) -> State:
        model, optimizer = self._trainee.model, self._trainee.optimizer
        if not model.built:
            model(_symbolic(x))
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        return State(model, optimizer, find_budget().device_bytes)

    def _change(self) -> None:
        if fallbacks.checkpointing(self.plan) != self._checkpointing:
            self._checkpointing = fallbacks.checkpointing(self.plan)
            self._functions.clear()

    def _function(self, num: int) -> Callable[..., tf.Tensor]:
        micro_batch = self.plan.micro_batch
        key = None if micro_batch is None or num <= micro_batch else micro_batch
        if key not in self._functions:
            assert self._state is not None
            step = self._state.marked(lambda batch: train(self._trainee, batch, key))
            self._functions[key] = tf.function(
                lambda x, y, sample_weight: step((x, y, sample_weight)),
                reduce_retracing=True,
                autograph=False,
            )
        return self._functions[key]


def _tensor(leaf: Any) -> Any:
    is_tensor = leaf is None or isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor))
    return leaf if is_tensor else tf.convert_to_tensor(leaf)


def _symbolic(x: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: keras.KerasTensor(leaf.shape, leaf.dtype.name), x)
