"""Micro-batches train as whole batches do: weights, logged loss and metrics are those of `model.fit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest

import memfit
from memfit.splitting.internals_tf import build_from
from memfit.training.driver_tf import Driver
from tests.contract.training.cases import BATCH_SIZE, CASES, Case


@dataclass(frozen=True)
class Trained:
    """What three steps of a case end with."""

    weights: list[Any]
    counters: list[Any]
    logs: dict[str, list[float]]

    @classmethod
    def of(cls, model: Any, history: Any) -> Trained:
        counters = [each.numpy() for each in model.optimizer.variables if each.shape == ()]
        return cls(model.get_weights(), counters, history.history)


def train_plainly(case: Case) -> tuple[list[Any], Trained]:
    """The weights before, and what `model.fit` makes of them.

    Eagerly, since three steps need no trace; but then, of the loss of each of several outputs, Keras logs
    another mean over batches of different sizes.
    """
    keras.utils.set_random_seed(3)
    model = case.make()
    model.run_eagerly = len(model.outputs) == 1
    if not model.run_eagerly:
        build(model, case)
    before = model.get_weights()
    return before, Trained.of(model, model.fit(case.x, case.y, **options_of(case)))


def build(model: Any, case: Case) -> None:
    build_from(model, keras.tree.map_structure(lambda each: each[:BATCH_SIZE], (case.x, case.y)))


def options_of(case: Case) -> dict[str, Any]:
    return {"batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0, **case.arguments}


def train_in_micro_batches(name: str) -> Iterator[tuple[int, Trained]]:
    """What `memfit.fit` makes of them, by micro size. It is the function behind it that is called here: other
    sizes need no new trace, and tracing is most of the time.
    """
    case = CASES[name]
    keras.utils.set_random_seed(3)
    model = case.make()
    if name != "mean":  # A step that makes variables, as that one does, is traced twice.
        build(model, case)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    values = [each.numpy() for each in variables]
    sizes = (3,) if model.run_eagerly else (1, 3, 7)
    with Driver(model, memfit.Plan(micro_batch=1), budget_bytes=None, is_nan_watched=True) as driver:
        for micro_batch in sizes:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            driver.course.take(memfit.Plan(micro_batch=micro_batch))
            history = model.fit(case.x, case.y, **options_of(case))
            yield micro_batch, Trained.of(model, history)
        assert (driver.journal.num_steps, driver.journal.num_samples) == (3 * len(sizes), 24 * len(sizes))
        assert driver.journal.incidents == []


def train_whole(case: Case) -> Trained:
    keras.utils.set_random_seed(3)
    model = case.make()
    run = memfit.fit(model, case.x, case.y, plan=memfit.Plan(micro_batch=BATCH_SIZE), **options_of(case))
    assert (run.num_steps, run.num_samples) == (3, 24)
    assert (run.incidents, run.plan_changes) == ((), ())
    return Trained.of(model, run.history)


# Batches that need not be split are for Keras's own step, whatever the loss.
ALSO_WHOLE = {"mean", "sample weight, also as divisor", "accumulation", "float16"}


@pytest.mark.parametrize("name", CASES)
def test_weights_losses_and_metrics_are_those_of_whole_batches(name: str) -> None:
    case = CASES[name]
    before, plain = train_plainly(case)
    whole = [(BATCH_SIZE, train_whole(case))] if name in ALSO_WHOLE else []
    for micro_batch, found in (*train_in_micro_batches(name), *whole):
        for start, one, other in zip(before, found.weights, plain.weights, strict=True):
            largest = np.abs(other - start).max()
            assert largest > 0
            difference = np.abs(one - other).max()
            assert difference <= max(1e-5, case.tolerance / 2) * np.abs(other).max(), micro_batch
            assert difference <= case.tolerance * largest, micro_batch
        np.testing.assert_array_equal(found.counters, plain.counters)
        assert found.logs.keys() == plain.logs.keys()
        for key, values in plain.logs.items():
            np.testing.assert_allclose(found.logs[key], values, rtol=max(1e-5, case.tolerance), err_msg=key)


def test_batch_normalization_is_split_only_where_that_is_allowed() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 4)), np.ones((8, 1))
    plan = memfit.Plan(micro_batch=2)
    with pytest.raises(memfit.UsageError, match='allow="split_batch_norm"'):
        memfit.fit(model, x, y, plan=plan, verbose=0)
    run = memfit.fit(model, x, y, plan=plan, allow="split_batch_norm", verbose=0)
    assert run.plan.allow == ("split_batch_norm",)
    model.layers[0].trainable = False
    model.compile("sgd", "mse")
    memfit.fit(model, x, y, plan=plan, verbose=0)


class OwnStep(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def test_a_train_step_of_ones_own_is_not_split() -> None:
    model = OwnStep()
    model.compile("sgd", "mse")
    x, y = np.ones((8, 4)), np.ones((8, 1))
    with pytest.raises(memfit.UsageError, match=r"memfit\.train_step\(.*memfit\.applied\("):
        memfit.fit(model, x, y, plan=memfit.Plan(micro_batch=2), verbose=0)
    assert memfit.fit(model, x, y, verbose=0).num_steps == 1


def test_a_loss_of_one_number_is_not_split() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", lambda y, y_pred: keras.ops.mean((y - y_pred) ** 2))
    with pytest.raises(memfit.UsageError, match="one number per example"):
        memfit.fit(model, np.ones((8, 4)), np.ones((8, 1)), plan=memfit.Plan(micro_batch=2), verbose=0)
