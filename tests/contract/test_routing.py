"""Keras's methods by memfit's engine, in one process: what a script sees must be what Keras would show."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import memfit
from memfit.guarding.story import STORY_NAME, StoryFile, read_story
from memfit.running.routing_tf import ROUTED, Routing
from memfit.running.settings import Settings

X = np.random.default_rng(0).normal(size=(48, 6, 3)).astype("float32")
Y = X.sum(axis=(1, 2))[:, None]


def make_model(
    kind: type[keras.Model] = keras.Model, *, layer: type[keras.layers.Layer] = keras.layers.Flatten
) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6, 3))
    options = {"units": 4} if issubclass(layer, keras.layers.RNN) else {}
    outputs = keras.layers.Dense(1)(layer(**options)(inputs))
    model = kind(inputs, outputs)
    model.compile("adam", "mse", metrics=["mae"])
    return model


def train(model: keras.Model) -> tuple[Any, ...]:
    history = model.fit(X, Y, 16, 2, verbose=0, validation_split=0.25, shuffle=False)
    assert isinstance(history, keras.callbacks.History)
    return history.history, model.evaluate(X, Y, 16, 0), model.predict(X, verbose=0)


@cache
def trained_by_keras() -> tuple[Any, ...]:
    return train(make_model(layer=keras.layers.LSTM))


@pytest.fixture
def routing(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Routing]:
    settings = getattr(request, "param", Settings())
    found = Routing(settings, StoryFile(tmp_path), tmp_path / "inventory.json")
    found.install()
    yield found
    found.undo()


@pytest.mark.parametrize(
    "routing", [Settings(), Settings(is_observed=True)], ids=["on", "observed"], indirect=True
)
def test_a_script_gets_what_keras_gives(routing: Routing, tmp_path: Path) -> None:
    found = train(make_model(layer=keras.layers.LSTM))
    routing.undo()
    expected = trained_by_keras()
    for name, values in expected[0].items():
        np.testing.assert_allclose(found[0][name], values, rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-5)
    story = read_story((tmp_path / STORY_NAME).read_text())
    assert {"training", "validation", "between"} <= {moment.phase for moment in story}
    assert [moment.epoch for moment in story if moment.phase == "between"] == [0, 1]
    assert (tmp_path / "inventory.json").exists()
    inventory = routing.inventory()
    assert {each.name for each in inventory.held} >= {"weights", "optimizer slots"}
    assert any(each.name.startswith("lstm") for each in inventory.layers)


def test_all_is_given_back(routing: Routing) -> None:
    routing.undo()
    assert not set(ROUTED) & set(vars(keras.Model))


class Own(keras.Model):
    """A model with a training step of its own."""

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def test_what_memfit_does_not_take_over_runs_and_is_said_once(
    routing: Routing, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(Own)
    model.fit(X, Y, verbose=0)
    model.fit(X, Y, verbose=0)
    assert capsys.readouterr().err.count("Own has its own train_step") == 1
    assert routing.runs == []
    with pytest.raises(ValueError, match="compile"):
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]).fit(X[:, 0], Y)
    with pytest.raises(TypeError, match="banana"):
        model.fit(X, Y, banana=1)


class Ask(keras.callbacks.Callback):
    """Asks the model, and another one, in the middle of training."""

    def __init__(self, other: keras.Model) -> None:
        super().__init__()
        self.other = other

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.evaluate(X, Y, verbose=0)
        self.other.predict(X, verbose=0)


def test_callbacks_may_evaluate_and_predict(routing: Routing) -> None:
    make_model().fit(X, Y, epochs=2, verbose=0, callbacks=[Ask(make_model())])
    make_model().fit(X, Y, epochs=1, verbose=0)
    assert [run.num_steps for run in routing.runs] == [4, 2]


def test_a_loss_that_is_not_a_number_is_no_error_of_ours(routing: Routing) -> None:
    history = make_model().fit(X, np.full_like(Y, np.nan), verbose=0)
    assert np.isnan(history.history["loss"][0])
    assert len(routing.runs) == 1


def test_a_script_may_use_memfit_itself(routing: Routing) -> None:
    model = make_model(layer=keras.layers.SimpleRNN)
    run = memfit.fit(model, X, Y, plan=memfit.Plan(micro_batch=8, time_segment=2), batch_size=16, verbose=0)
    assert run.num_steps == 3
    with memfit.checkpoint_time(model):
        pass
    assert routing.runs == []  # It has its own record.
