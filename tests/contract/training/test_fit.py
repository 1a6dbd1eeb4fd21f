"""`memfit.fit` is `model.fit` with a record; what cannot be right is said before anything is lost."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.losses import loss as loss_module

import memfit
from memfit.errors import SetupError
from memfit.splitting import internals_tf

X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


def make_model() -> Any:
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(3), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", "mse", metrics=["mae"])
    return model


def test_a_plan_that_does_nothing_is_model_fit_to_the_last_bit(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(50, 4)), random.normal(size=(50, 1))
    options: dict[str, Any] = {"batch_size": 8, "epochs": 2, "validation_split": 0.2}
    options |= {"shuffle": False, "verbose": 0}
    plain, model = make_model(), make_model()
    history = plain.fit(x, y, **options)
    run = memfit.fit(model, x, y, **options)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.history.history == history.history
    assert (run.num_steps, run.num_samples, len(run.peak_bytes)) == (10, 80, 2)
    saved = memfit.Run.load(run.save(tmp_path / "run.json"))
    assert saved.history == run.history.history
    assert saved.plan.in_words() == "whole batches"


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return X, Y


def generate() -> Iterator[Any]:
    while True:
        yield X, Y


DATA: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "arrays": lambda: ((X, Y), {"batch_size": 4}),
    "tensors": lambda: ((tf.constant(X), tf.constant(Y)), {"batch_size": 4}),
    "tf.data": lambda: ((tf.data.Dataset.from_tensor_slices((X, Y)).batch(4),), {"shuffle": False}),
    "PyDataset": lambda: ((Batches(),), {}),
    "generator": lambda: ((generate(),), {"steps_per_epoch": 2, "shuffle": False}),
    "steps per execution": lambda: ((X, Y), {"batch_size": 4}),
}


@pytest.mark.parametrize("kind", DATA)
def test_every_kind_of_data(kind: str) -> None:
    model = make_model()
    data, options = DATA[kind]()
    if kind == "steps per execution":
        model.compile("adam", "mse", steps_per_execution=2)
    run = memfit.fit(model, *data, plan=memfit.Plan(micro_batch=3), epochs=2, verbose=0, **options)
    assert run.num_steps == 4
    assert len(run.history.history["loss"]) == 2
    model.fit(X, Y, verbose=0)


def test_a_model_that_is_built_by_its_first_batch() -> None:
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    assert memfit.fit(model, X, Y, plan=memfit.Plan(micro_batch=3), verbose=0).num_steps == 1


def refuse(sentence: str, *data: Any, **options: Any) -> None:
    model = make_model()
    before = model.get_weights()
    with pytest.raises(memfit.UsageError, match=sentence):
        memfit.fit(model, *(data or (X, Y)), verbose=0, **options)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.train_function is None


def test_bad_input_is_said_in_a_sentence() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    refuse("batch_size=4 was given together with a tf.data set", dataset.batch(4), batch_size=4)
    refuse("made for batches of 16", plan=memfit.Plan(batch_size=16), batch_size=4)
    refuse("made for a model with 7 parameters", plan=memfit.Plan(num_parameters=7))
    refuse("another model with as many parameters", plan=memfit.Plan(model_digest="other"))
    refuse("has no keras.layers.RNN", plan=memfit.Plan(time_segment=4))
    refuse("not a single batch", dataset.batch(16, drop_remainder=True), shuffle=False)
    with pytest.raises(memfit.UsageError, match="is not compiled"):
        memfit.fit(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), X, Y)
    with pytest.raises(memfit.UsageError, match="takes a Keras model"):
        memfit.fit("model", X, Y)


def test_a_loss_that_is_not_a_number_undoes_its_step() -> None:
    model = make_model()
    x = X.copy()
    x[5] = np.nan
    with pytest.raises(memfit.LossError, match="not a number at step 1") as caught:
        memfit.fit(model, x, Y, batch_size=4, shuffle=False, verbose=0)
    assert caught.value.run.num_steps == 1
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert int(model.optimizer.iterations) == 1
    memfit.fit(model, x, Y, callbacks=[keras.callbacks.TerminateOnNaN()], verbose=0)


def test_applied_is_for_what_needs_no_micro_batches() -> None:
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(3)])
    attributes = sorted(vars(model))
    with memfit.applied(memfit.Plan(time_segment=2), model) as same:
        assert same is model
        assert "call" in vars(model) or "inner_loop" in vars(model.layers[0])
    assert sorted(vars(model)) == attributes
    with (
        pytest.raises(memfit.UsageError, match=r"memfit\.train_step"),
        memfit.applied(memfit.Plan(micro_batch=2), model),
    ):
        pass


def test_a_step_of_ones_own_trains_as_fit_does() -> None:
    plain, model = make_dense(), make_dense()
    for _ in range(3):
        plain.train_on_batch(X, Y, sample_weight=np.arange(8.0))
    step = memfit.train_step(model, "mse", keras.optimizers.SGD(0.1), memfit.Plan(micro_batch=3))
    for _ in range(3):
        loss = step(X, Y, np.arange(8.0))
    assert float(loss) > 0
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def make_dense() -> Any:
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_every_private_name_is_where_it_was() -> None:
    internals_tf.check_versions()


def test_what_is_said_when_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(loss_module, "reduce_weighted_values")
    with pytest.raises(SetupError, match=rf"Keras {keras.__version__}.*reduce_weighted_values moved"):
        internals_tf.check_versions()
