"""A run that was cut off and gone on with is, bit for bit, the run that was not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from memfit.training import resuming_internals_tf
from memfit.training.store import Stored
from tests.contract.training.runs import (
    BATCH_SIZE,
    NUM_BATCHES,
    NUM_SAMPLES,
    Batches,
    Case,
    Numbers,
    bits,
    data,
    dataset,
    make_model,
)


def named() -> tuple[Any, Any]:
    x, y = data()
    return {"first": x[:, :2], "second": x[:, 2:]}, {"sum": y, "sign": np.sign(y)}


def two_inputs() -> keras.Model:
    keras.utils.set_random_seed(5)
    first, second = keras.Input((2,), name="first"), keras.Input((3,), name="second")
    joined = keras.layers.Dropout(0.2)(keras.layers.Concatenate()([first, second]))
    outputs = {name: keras.layers.Dense(1, name=name)(joined) for name in ("sum", "sign")}
    model = keras.Model({"first": first, "second": second}, outputs)
    model.compile("adam", loss={"sum": "mse", "sign": "mae"}, jit_compile=False)
    return model


def averaged() -> keras.Model:
    return make_model(optimizer=keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=None))


def accumulating() -> keras.Model:
    return make_model(optimizer=keras.optimizers.SGD(0.01, momentum=0.9, gradient_accumulation_steps=4))


def scaled() -> keras.Model:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), dynamic_growth_steps=3)
    return make_model(optimizer=optimizer)


def scheduled() -> keras.Model:
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=3, decay_rate=0.7)
    return make_model(optimizer=keras.optimizers.RMSprop(rate))


def unbuilt() -> keras.Model:
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", loss="mse", metrics=["mae"], jit_compile=False)
    return model


class Noise(keras.layers.Layer):
    """Draws without a seed of its own, from Keras's global one."""

    def call(self, values: Any) -> Any:
        return values + 0.1 * keras.random.normal(keras.ops.shape(values))


def noisy() -> keras.Model:
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((5,)), Noise(), keras.layers.Dense(1)])
    model.compile("adam", loss="mse", jit_compile=False)
    return model


def compiled_by_xla() -> keras.Model:
    return make_model(jit_compile=True)


def several_steps_a_call() -> keras.Model:
    return make_model(steps_per_execution=2)


def stopping() -> list[Any]:
    stop = keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True, min_delta=0.5)
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.5, min_delta=0.3)
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    return [stop, plateau, schedule]


VALIDATION: dict[str, Any] = {"validation_data": data()}
CASES: dict[str, Case] = {
    "arrays": Case(batch_size=BATCH_SIZE, **VALIDATION),
    "arrays in order": Case(batch_size=BATCH_SIZE, shuffle=False, validation_split=0.2),
    "arrays with sample weights": Case(batch_size=BATCH_SIZE, sample_weight=np.linspace(0, 1, NUM_SAMPLES)),
    "arrays by steps": Case(batch_size=BATCH_SIZE, steps_per_epoch=4, epochs=4),
    "dicts": Case(feed=named, make=two_inputs, batch_size=BATCH_SIZE),
    "tf.data": Case(feed=lambda: (dataset(), None), **VALIDATION),
    "tf.data without end": Case(feed=lambda: (dataset(repeat=True), None), steps_per_epoch=5),
    "PyDataset": Case(feed=lambda: (Batches(), None), **VALIDATION),
    "PyDataset with workers": Case(feed=lambda: (Batches(workers=2), None)),
    "PyDataset without end": Case(
        feed=lambda: (Batches(length=None), None), shuffle=False, steps_per_epoch=5
    ),
    "average of weights": Case(make=averaged, batch_size=BATCH_SIZE),
    "accumulated gradients": Case(make=accumulating, batch_size=BATCH_SIZE),
    "loss scale": Case(make=scaled, batch_size=BATCH_SIZE),
    "schedule": Case(make=scheduled, batch_size=BATCH_SIZE),
    "model not built": Case(make=unbuilt, is_model_new=True, batch_size=BATCH_SIZE),
    "model not built, tf.data": Case(make=unbuilt, is_model_new=True, feed=lambda: (dataset(), None)),
    "global seed": Case(make=noisy, is_model_new=True, batch_size=BATCH_SIZE),
    "several steps a call": Case(make=several_steps_a_call, batch_size=BATCH_SIZE, shuffle="batch"),
    "compiled by XLA": Case(make=compiled_by_xla, batch_size=BATCH_SIZE),
    "callbacks": Case(callbacks=stopping, batch_size=BATCH_SIZE, epochs=6, **VALIDATION),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_run_in_pieces_is_the_run_in_one_piece(case: Case, tmp_path: Path) -> None:
    numbers: list[tuple[int, int]] = []
    case.cut(tmp_path / "pieces", 1, 2 if case.make is several_steps_a_call else 1, Numbers(numbers))
    pieces, history = case.run(tmp_path / "pieces", Numbers(numbers))
    assert (bits(pieces), history) == case.whole()
    assert sorted(set(numbers)) == numbers_of_a_whole_run(case, history)


def numbers_of_a_whole_run(case: Case, history: dict[str, list[float]]) -> list[tuple[int, int]]:
    num_epochs = len(history["loss"])
    if case.make is several_steps_a_call:
        return [(epoch, step) for epoch in range(num_epochs) for step in (1, 3, 5)]
    per_epoch = [case.arguments.get("steps_per_epoch", NUM_BATCHES)] * num_epochs
    if case.arguments.get("validation_split"):
        per_epoch = [5] * num_epochs
    if case is CASES["arrays by steps"]:  # Six batches a pass: an epoch of four, then the two that are left.
        per_epoch = [4, 2, 4, 2]
    return [(epoch, step) for epoch, num_steps in enumerate(per_epoch) for step in range(num_steps)]


def test_the_epochs_of_a_new_run_are_those_of_keras(tmp_path: Path) -> None:
    """Without a cut and without shuffling, it is what plain Keras does."""
    case = Case(batch_size=BATCH_SIZE, shuffle=False, **VALIDATION)
    model, history = case.run(tmp_path / "run")
    plain = make_model()
    expected = plain.fit(*data(), batch_size=BATCH_SIZE, shuffle=False, epochs=3, verbose=0, **VALIDATION)
    assert bits(model) == bits(plain)
    assert history == expected.history


@pytest.mark.parametrize("step", [5, None], ids=["last step", "validation"])
def test_a_cut_near_the_end_of_an_epoch(step: int | None, tmp_path: Path) -> None:
    case = CASES["arrays"]
    case.cut(tmp_path / "pieces", 1, step)
    pieces, history = case.run(tmp_path / "pieces")
    assert (bits(pieces), history) == case.whole()


@pytest.mark.parametrize("step", [3, None], ids=["middle", "validation"])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_set_of_unknown_length(step: int | None, tmp_path: Path) -> None:
    case = Case(feed=lambda: (dataset(is_known=False), None), **VALIDATION)
    case.cut(tmp_path / "pieces", 0, step)
    case.cut(tmp_path / "pieces", 1, step)
    pieces, history = case.run(tmp_path / "pieces")
    assert (bits(pieces), history) == case.whole()


def test_more_epochs_later(tmp_path: Path) -> None:
    case = Case(make=averaged, batch_size=BATCH_SIZE, epochs=4)
    case.run(tmp_path / "pieces", epochs=2)
    pieces, history = case.run(tmp_path / "pieces")
    assert (bits(pieces), history) == case.whole()


@pytest.mark.parametrize("name", ["average of weights", "callbacks", "tf.data"])
def test_a_run_that_is_complete_is_not_run_again(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    whole, whole_history = case.run(tmp_path / "run")
    numbers: list[tuple[int, int]] = []
    again, history = case.run(tmp_path / "run", Numbers(numbers))
    assert (bits(again), history) == (bits(whole), whole_history)
    assert numbers == []


def test_a_run_that_a_callback_ended_stays_ended(tmp_path: Path) -> None:
    case = CASES["callbacks"]
    whole, history = case.run(tmp_path / "run")
    assert len(history["loss"]) < 6
    (tmp_path / "run" / "final.zip").unlink()  # as if killed just before it was written
    again, _ = case.run(tmp_path / "run", epochs=20)
    assert bits(again) == bits(whole)


def test_many_cuts(tmp_path: Path) -> None:
    case = Case(batch_size=BATCH_SIZE, every_steps=2, **VALIDATION)
    for epoch, step in ((0, 3), (0, 5), (1, 1), (2, 4)):
        case.cut(tmp_path / "pieces", epoch, step)
    pieces, history = case.run(tmp_path / "pieces")
    assert (bits(pieces), history) == case.whole()


def test_a_cut_before_the_first_step(tmp_path: Path) -> None:
    case = CASES["arrays"]
    case.cut(tmp_path / "pieces", 0, 0)
    pieces, history = case.run(tmp_path / "pieces")
    assert (bits(pieces), history) == case.whole()


def test_another_initial_state_does_not_matter(tmp_path: Path) -> None:
    """What the script draws at its beginning is put back, too."""
    case = CASES["arrays"]
    case.cut(tmp_path / "pieces", 1, 2)

    def other() -> keras.Model:
        model = make_model()
        keras.utils.set_random_seed(99)
        model.set_weights([np.zeros_like(each) for each in model.get_weights()])
        return model

    pieces, history = Case(make=other, is_model_new=True, **case.arguments).run(tmp_path / "pieces")
    assert (bits(pieces), history) == case.whole()


def test_samples_and_steps_are_counted(tmp_path: Path) -> None:
    CASES["arrays"].cut(tmp_path, 1, 3)
    newest = max(tmp_path.glob("checkpoint-*.zip"))
    position = Stored.read(newest).state["position"]
    assert position == {
        "epoch": 1,
        "step": 3,
        "pass_index": 1,
        "offset": 3,
        "num_steps": 9,
        "num_samples": NUM_SAMPLES + 3 * BATCH_SIZE,
    }


def test_the_progress_bar_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES["schedule"]
    case.cut(tmp_path, 1, 3)
    capsys.readouterr()
    case.run(tmp_path, verbose=1)
    shown = capsys.readouterr().out
    assert "goes on at epoch 2, step 4, after 9 steps in all" in shown
    assert "Epoch 2/3" in shown
    assert "4/6" in shown
    assert "3/6" not in shown.split("Epoch 3/3")[0]


def test_private_names_are_where_they_were() -> None:
    resuming_internals_tf.check_versions()


@pytest.mark.parametrize(("kind", "names"), resuming_internals_tf.KEPT_ATTRIBUTES)
def test_callbacks_have_the_attributes_that_are_kept(
    kind: type, names: tuple[str, ...], tmp_path: Path
) -> None:
    arguments: dict[type, Callable[[], Any]] = {
        keras.callbacks.ModelCheckpoint: lambda: keras.callbacks.ModelCheckpoint("model.keras"),
        keras.callbacks.TensorBoard: lambda: keras.callbacks.TensorBoard(tmp_path),
    }
    callback = arguments.get(kind, kind)()
    callback.set_model(make_model())
    if kind in (keras.callbacks.History, keras.callbacks.EarlyStopping):
        callback.on_train_begin()
    assert set(names) <= set(vars(callback))
