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
    def __init__(self, epoch: int, place: str, countdown: int) -> None:
        super().__init__()
        self.at = epoch
        self.fault = (place, countdown)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.at:
            FAULT.arm(*self.fault)


class Predicts(keras.callbacks.Callback):
    predicted: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.predicted = self.model.predict(make_data()[0], batch_size=BATCH_SIZE, verbose=0)


def fit(model: Any, plan: memfit.Plan, **options: Any) -> memfit.Run:
    x, y = make_data()
    fixed: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0}
    return memfit.fit(model, x, y, plan=plan, allow=ALLOW, validation_data=(x, y), **fixed, **options)


@cache
def unharmed(first_plan: memfit.Plan) -> tuple[list[Any], dict[str, Any], Any]:
    """All variables after two epochs, the second in small micro-batches; its logs; what it predicts."""
    model, predicts = make_model(), Predicts()
    fit(model, first_plan)
    run = fit(model, SMALL, epochs=2, initial_epoch=1, callbacks=[predicts])
    return everything(model), run.history.history, predicts.predicted


# The second op of the place, where a step has several: in the middle of the loop over micro-batches or slots.
@pytest.mark.parametrize(
    ("first_plan", "place", "countdown"),
    [
        (LARGE, "forward", 2),
        (LARGE, "backward", 2),
        (LARGE, "optimizer", 2),
        (LARGE, "metrics", 2),
        (WHOLE, "backward", 1),
        (WHOLE, "optimizer", 2),
    ],
)
def test_a_step_that_died_leaves_no_trace(first_plan: memfit.Plan, place: str, countdown: int) -> None:
    expected, logs, _ = unharmed(first_plan)
    model = make_model()
    plan = replace(first_plan, fallbacks=(SMALL,))
    with pytest.warns(memfit.MemfitWarning, match="the batch is run again with micro-batches of 3"):
        run = fit(model, plan, epochs=2, callbacks=[ArmsAt(1, place, countdown)])
    assert FAULT.num_raised == 1
    for one, other in zip(everything(model), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert {key: values[1:] for key, values in run.history.history.items()} == logs
    (incident,) = run.incidents
    assert (incident.step, incident.epoch, incident.where) == (STEPS_AN_EPOCH, 1, "training")
    assert incident.request is not None
    assert (incident.request.shape, incident.request.num_bytes) == ((64, 64), 64 * 64 * 4)
    assert (run.num_steps, run.num_samples) == (2 * STEPS_AN_EPOCH, 48)
    assert [change.plan.micro_batch for change in run.plan_changes] == [3]
    assert run.plan.micro_batch == 3


@pytest.mark.parametrize("place", ["forward", "backward", "optimizer"])
def test_where_weights_do_not_fit_twice_a_step_can_be_undone_until_the_update(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tf, "fits_twice", lambda *_: False)
    model = make_model()
    fit(model, WHOLE)
    before = everything(model)
    FAULT.arm(place)
    if place == "optimizer":
        with pytest.raises(memfit.OutOfMemoryError, match="some weights are updated, some are not"):
            fit(model, memfit.Plan(fallbacks=(SMALL,)), epochs=2, initial_epoch=1)
        return
    FAULT.arm("")
    sound = make_model()
    fit(sound, WHOLE)
    for one, other in zip(everything(sound), before, strict=True):
        np.testing.assert_array_equal(one, other)
    fit(sound, SMALL, epochs=2, initial_epoch=1)
    FAULT.arm(place)
    with pytest.warns(memfit.MemfitWarning, match="micro-batches of 3"):
        fit(model, memfit.Plan(fallbacks=(SMALL,)), epochs=2, initial_epoch=1)
    for one, other in zip(everything(model), everything(sound), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_that_do_not_fit_twice_are_trained_all_the_same() -> None:
    measured = memfit.measure(targets.train_many_weights, device_limit="210MiB", clean=True)
    assert measured.outcome is Outcome.OK, measured.output
    assert measured.value == [[], 4]


@pytest.mark.parametrize("place", ["optimizer", "metrics"])
def test_the_first_step_of_all_is_undone_too(place: str) -> None:
    sound, model = make_model(), make_model()
    fit(sound, SMALL)
    FAULT.arm(place)
    with pytest.warns(memfit.MemfitWarning, match="step 0"):
        fit(model, memfit.Plan(micro_batch=4, fallbacks=(SMALL,)))
    for one, other in zip(everything(model), everything(sound), strict=True):
        np.testing.assert_array_equal(one, other)


def test_validation_and_prediction_go_on_in_halves() -> None:
    expected, logs, predicted = unharmed(SMALL)
    for place, where in (("evaluation", "evaluation"), ("prediction", "prediction")):
        model, predicts = make_model(), Predicts()
        fit(model, SMALL)
        # Validation passes both ops, three batches before the prediction does.
        FAULT.arm(place, 2 if place == "evaluation" else 5)
        with pytest.warns(memfit.MemfitWarning, match="micro-batches of 4"):
            run = fit(model, SMALL, epochs=2, initial_epoch=1, callbacks=[predicts])
        assert [incident.where for incident in run.incidents] == [where]
        for one, other in zip(everything(model), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        np.testing.assert_allclose(predicts.predicted, predicted, rtol=1e-5)
        for key, values in run.history.history.items():
            np.testing.assert_allclose(values, logs[key], rtol=1e-5)


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
        fit(make_model(), plan, epochs=2, resume=resume, callbacks=[CutOff()])
    for _ in range(2):  # the second time it is complete already
        run = fit(make_model(), plan, epochs=2, resume=resume)
        assert run.plan.micro_batch == 3
        assert [change.plan.micro_batch for change in run.plan_changes] == [3]
        assert [incident.step for incident in run.incidents] == [1]
        assert (run.num_steps, run.num_samples) == (2 * STEPS_AN_EPOCH, 48)
    other = fit(make_model(), LARGE, epochs=3, resume=resume)
    assert other.plan.micro_batch == 4
    assert other.num_steps == 3 * STEPS_AN_EPOCH


def test_nothing_left_is_an_error_with_the_model_as_after_the_last_good_step() -> None:
    model = make_model()
    fit(model, memfit.Plan())
    before = everything(model)
    weights = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    FAULT.arm("backward")
    x, y = make_data()
    with pytest.raises(
        memfit.OutOfMemoryError, match=r"whole batches\..*allow=\"split_batch_norm\""
    ) as caught:
        memfit.fit(model, x, y, batch_size=BATCH_SIZE, verbose=0)
    assert caught.value.run.outcome is Outcome.DEVICE_OUT_OF_MEMORY
    assert caught.value.run.num_steps == 0
    after = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    for one, other in zip(after, weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(before) == len(everything(model))
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
