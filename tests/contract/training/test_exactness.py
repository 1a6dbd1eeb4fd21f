"""Micro-batches train as whole batches do: weights, logged loss and metrics are those of `model.fit`."""

from typing import Any

import keras
import numpy as np
import pytest

import memfit
from tests.contract.training.cases import BATCH_SIZE, CASES, Case


def trained(case: Case, micro_batch: int | None) -> tuple[Any, Any, Any, Any]:
    """The weights before, the weights, the optimizer's counters and the logs after three steps."""
    keras.utils.set_random_seed(3)
    model = case.make()
    before = model.get_weights()
    options = {"batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0, **case.arguments}
    if micro_batch is None:
        history = model.fit(case.x, case.y, **options)
    else:
        run = memfit.fit(model, case.x, case.y, plan=memfit.Plan(micro_batch=micro_batch), **options)
        history = run.history
        assert (run.num_steps, run.num_samples) == (3, 24)
        assert (run.incidents, run.plan_changes) == ((), ())
    counters = [each.numpy() for each in model.optimizer.variables if each.shape == ()]
    return before, model.get_weights(), counters, history.history


@pytest.mark.parametrize("name", CASES)
def test_weights_losses_and_metrics_are_those_of_whole_batches(name: str) -> None:
    case = CASES[name]
    before, plain, plain_counters, plain_logs = trained(case, None)
    for micro_batch in (1, 3, 7, BATCH_SIZE):
        _, weights, counters, logs = trained(case, micro_batch)
        for start, one, other in zip(before, weights, plain, strict=True):
            largest = np.abs(other - start).max()
            assert largest > 0
            difference = np.abs(one - other).max()
            assert difference <= max(1e-5, case.tolerance / 2) * np.abs(other).max(), micro_batch
            assert difference <= case.tolerance * largest, micro_batch
        np.testing.assert_array_equal(counters, plain_counters)
        assert logs.keys() == plain_logs.keys()
        for key, values in plain_logs.items():
            np.testing.assert_allclose(logs[key], values, rtol=max(1e-5, case.tolerance), err_msg=key)


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
