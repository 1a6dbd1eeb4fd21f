"""An out-of-memory anywhere in a step is undone without a trace, and the same batch is run again."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import memfit
from memfit.records import Outcome
from memfit.training import state_tf
from tests.contract.training import targets
from tests.contract.training.faults import FAULT, everything, make_data, make_model

ALLOW = "split_batch_norm"
WHOLE, LARGE, SMALL = memfit.Plan(), memfit.Plan(micro_batch=4), memfit.Plan(micro_batch=3)
STEPS_AN_EPOCH, BATCH_SIZE = 3, 8


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    FAULT.arm("")
    yield
    FAULT.arm("")


class ArmsAt(keras.callbacks.Callback):
    """Arms at the beginning of epochs: the place, and its how manieth op."""

    def __init__(self, faults: dict[int, tuple[str, int]]) -> None:
        super().__init__()
        self.faults = faults

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch in self.faults:
            assert not FAULT.place or FAULT.num_raised == 1, (
                f"the fault before that of epoch {epoch} did not happen"
            )
            FAULT.arm(*self.faults[epoch])


class Takes(keras.callbacks.Callback):
    """Takes another plan at the beginning of an epoch, as an out-of-memory at its first step would."""

    def __init__(self, plans: list[memfit.Plan]) -> None:
        super().__init__()
        self.plans = plans

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        driver = self.model.train_function.__self__
        driver.course.take(replace(self.plans[epoch], allow=driver.course.plan.allow))


class Predicts(keras.callbacks.Callback):
    predicted: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            self.predicted = self.model.predict(make_data()[0], batch_size=BATCH_SIZE, verbose=0)


def fit(model: Any, plan: memfit.Plan, **options: Any) -> memfit.Run:
    x, y = make_data()
    fixed: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0, "epochs": 2}
    return memfit.fit(model, x, y, plan=plan, allow=ALLOW, **fixed | options)


def validated(model: Any, plan: memfit.Plan, **options: Any) -> memfit.Run:
    return fit(model, plan, validation_data=make_data(), **options)


@cache
def unharmed(*plans: memfit.Plan) -> tuple[list[Any], dict[str, Any], Any]:
    """All variables after an epoch by each plan; the logs of the run; what it predicts."""
    model, predicts = make_model(), Predicts()
    run = validated(model, plans[0], epochs=len(plans), callbacks=[Takes(list(plans)), predicts])
    assert run.incidents == ()
    return everything(model), run.history.history, predicts.predicted


def check_same(model: Any, run: memfit.Run, *plans: memfit.Plan) -> None:
    expected, logs, _ = unharmed(*plans)
    for one, other in zip(everything(model), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.history.history == logs


# The second op of the place, where a step has several: in the middle of the loop over micro-batches or slots.
def test_a_step_that_died_leaves_no_trace() -> None:
    """One run dies in every place, in an epoch each, and each time goes on in smaller micro-batches."""
    places = [("metrics", 2), ("forward", 2), ("backward", 2), ("optimizer", 2), ("metrics", 2)]
    first, *plans = (memfit.Plan(micro_batch=size) for size in (6, 5, 4, 3, 2, 1))
    model = make_model()
    with pytest.warns(memfit.MemfitWarning, match="the batch is run again with micro-batches of") as warned:
        arms = ArmsAt(dict(enumerate(places)))
        run = validated(model, replace(first, fallbacks=tuple(plans)), epochs=len(plans), callbacks=[arms])
    check_same(model, run, *plans)
    for plan, each in zip(plans, warned, strict=True):
        assert f"micro-batches of {plan.micro_batch}." in str(each.message)
    for epoch, incident in enumerate(run.incidents):
        assert (incident.step, incident.epoch, incident.where) == (STEPS_AN_EPOCH * epoch, epoch, "training")
        assert incident.request is not None
        assert (incident.request.shape, incident.request.num_bytes) == ((64, 64), 64 * 64 * 4)
    assert len(run.incidents) == len(places)
    assert (run.num_steps, run.num_samples) == (STEPS_AN_EPOCH * len(plans), 24 * len(plans))
    assert [change.plan.micro_batch for change in run.plan_changes] == [5, 4, 3, 2, 1]
    assert run.plan.micro_batch == 1


@pytest.mark.parametrize(("place", "countdown"), [("backward", 1), ("optimizer", 2)])
def test_a_whole_batch_that_died_leaves_no_trace(place: str, countdown: int) -> None:
    model = make_model()
    with pytest.warns(memfit.MemfitWarning, match="the batch is run again with micro-batches of 3"):
        run = validated(model, memfit.Plan(fallbacks=(SMALL,)), callbacks=[ArmsAt({1: (place, countdown)})])
    assert FAULT.num_raised == 1
    check_same(model, run, WHOLE, SMALL)
    (incident,) = run.incidents
    assert (incident.step, incident.epoch, incident.where) == (STEPS_AN_EPOCH, 1, "training")
    assert [change.plan.micro_batch for change in run.plan_changes] == [3]


@pytest.mark.parametrize(("place", "epoch"), [("forward", 0), ("backward", 1), ("optimizer", 1)])
def test_where_weights_do_not_fit_twice_a_step_can_be_undone_until_the_update(
    place: str, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first step of all, which Python keeps, and at a later one, which the step itself keeps."""
    monkeypatch.setattr(state_tf, "fits_twice", lambda *_: False)
    model, plan, arms = make_model(), memfit.Plan(fallbacks=(SMALL,)), ArmsAt({epoch: (place, 1)})
    if place == "optimizer":
        with pytest.raises(memfit.OutOfMemoryError, match="some weights are updated, some are not"):
            fit(model, plan, callbacks=[arms])
        return
    with pytest.warns(memfit.MemfitWarning, match="micro-batches of 3"):
        run = validated(model, plan, callbacks=[arms])
    check_same(model, run, WHOLE if epoch else SMALL, SMALL)


def test_weights_that_do_not_fit_twice_are_trained_all_the_same() -> None:
    measured = memfit.measure(targets.train_many_weights, device_limit="210MiB", clean=True)
    assert measured.outcome is Outcome.OK, measured.output
    assert measured.value == [[], 4]


# Validation passes both ops, three batches before the prediction does.
@pytest.mark.parametrize(
    ("first", "place", "countdown"), [("optimizer", "evaluation", 2), ("metrics", "prediction", 5)]
)
def test_the_first_step_of_all_is_undone_and_validation_and_prediction_go_on_in_halves(
    first: str, place: str, countdown: int
) -> None:
    expected, logs, predicted = unharmed(SMALL, SMALL)
    model, predicts = make_model(), Predicts()
    arms = ArmsAt({0: (first, 1), 1: (place, countdown)})
    with pytest.warns(memfit.MemfitWarning, match="micro-batches of") as warned:
        run = validated(model, replace(LARGE, fallbacks=(SMALL,)), callbacks=[arms, predicts])
    assert ["step 0" in str(each.message) for each in warned] == [True, False]
    assert "micro-batches of 4" in str(warned[1].message)
    assert [incident.where for incident in run.incidents] == ["training", place]
    num_exact = len(expected) - len(model.metrics_variables)
    for number, (one, other) in enumerate(zip(everything(model), expected, strict=True)):
        np.testing.assert_allclose(one, other, rtol=0 if number < num_exact else 1e-5)
    np.testing.assert_allclose(predicts.predicted, predicted, rtol=1e-5)
    for key, values in run.history.history.items():
        np.testing.assert_allclose(values, logs[key], rtol=1e-5 if key.startswith("val_") else 0)


class CutOff(keras.callbacks.Callback):
    """Ends a run as a kill would, but not where it is resumed."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == STEPS_AN_EPOCH + 1:
            raise KeyboardInterrupt


def test_a_run_that_goes_on_remembers_the_plan_that_held_and_what_went_wrong(tmp_path: Path) -> None:
    plan = replace(LARGE, fallbacks=(SMALL,))
    resume = memfit.Resume(tmp_path, every_steps=1)
    FAULT.arm("backward", 3)
    with pytest.warns(memfit.MemfitWarning), pytest.raises(KeyboardInterrupt):
        fit(make_model(), plan, resume=resume, callbacks=[CutOff()])
    for _ in range(2):  # the second time it is complete already
        run = fit(make_model(), plan, resume=resume)
        assert run.plan.micro_batch == 3
        assert [change.plan.micro_batch for change in run.plan_changes] == [3]
        assert [incident.step for incident in run.incidents] == [1]
        assert (run.num_steps, run.num_samples) == (2 * STEPS_AN_EPOCH, 48)
    other = fit(make_model(), LARGE, epochs=3, resume=resume)
    assert other.plan.micro_batch == 4
    assert other.num_steps == 3 * STEPS_AN_EPOCH


class ArmsAfter(keras.callbacks.Callback):
    """Arms after the first step, and notes how that left the model."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.values = everything(self.model)
        FAULT.arm("backward")


def test_nothing_left_is_an_error_with_the_model_as_after_the_last_good_step() -> None:
    model, arms = make_model(), ArmsAfter()
    x, y = make_data()
    with pytest.raises(
        memfit.OutOfMemoryError, match=r"whole batches\..*allow=\"split_batch_norm\""
    ) as caught:
        memfit.fit(model, x, y, batch_size=BATCH_SIZE, verbose=0, callbacks=[arms])
    assert FAULT.num_raised == 1
    assert caught.value.run.outcome is Outcome.DEVICE_OUT_OF_MEMORY
    assert caught.value.run.num_steps == 1
    for one, other in zip(everything(model), arms.values, strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.train_function is None


def test_other_errors_pass_through_untouched() -> None:
    model = make_model()
    x, y = make_data()
    with pytest.raises(Exception, match="incompatible") as caught:
        memfit.fit(model, x[:, :3], y, verbose=0)
    assert not isinstance(caught.value, memfit.MemfitError)


def test_a_step_of_ones_own_is_undone_too() -> None:
    x, y = make_data()
    found = []
    for is_harmed in (False, True):
        model = make_model()
        plan = memfit.Plan(micro_batch=4, allow=(ALLOW,), fallbacks=(memfit.Plan(micro_batch=3),))
        step = memfit.train_step(model, "mse", model.optimizer, plan if is_harmed else SMALL_ALLOWED)
        if is_harmed:
            FAULT.arm("optimizer")
            with pytest.warns(memfit.MemfitWarning):
                losses = [float(step(x, y))]
            assert len(step.incidents) == 1
        else:
            losses = [float(step(x, y))]
        losses.append(float(step(x, y)))
        found.append((losses, [each.numpy() for each in (*model.variables, *model.optimizer.variables)]))
        step.close()
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_array_equal(one, other)


SMALL_ALLOWED = memfit.Plan(micro_batch=3, allow=(ALLOW,))


def test_a_real_out_of_memory_on_the_longest_batch_in_epoch_two() -> None:
    measured = memfit.measure(targets.meet_the_longest_batch, device_limit="40MiB", clean=True)
    assert measured.outcome is Outcome.OK, measured.output
    assert measured.num_failed_requests >= 1
    assert measured.value["incidents"] == [[4, 1, "training"]]
    assert measured.value["num_steps"] == 6
    assert measured.value["difference"] < 1e-5


def test_a_peak_over_the_budget_takes_the_next_fallback_from_the_next_batch_on() -> None:
    measured = memfit.measure(targets.cross_the_budget)
    assert measured.outcome is Outcome.OK, measured.output
    changes, num_steps, peaks = measured.value
    assert changes == [[1, 8]]
    assert num_steps == 4
    assert peaks[1] < targets.BUDGET_BYTES < peaks[0]


def test_tensorflow_calls_it_exhausted() -> None:
    FAULT.arm("here")
    with pytest.raises(tf.errors.ResourceExhaustedError):
        tf.function(lambda: FAULT.pass_through("here", tf.ones([])))()
