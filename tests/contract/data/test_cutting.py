"""Sequences cut to a greatest length, and gradients cut in time: inexact, and allowed by name."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.data.cutting_tf import Cutter
from memfit.estimating.batches_tf import describe
from memfit.estimating.probing_tf import find_subject
from memfit.planning.windowing_tf import plan_windows

RANDOM = np.random.default_rng(0)
ROWS = np.array([[1, 2, 3, 4, 0, 0], [0, 0, 0, 5, 6, 7], [8, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("cut_from", "padding", "expected"),
    [
        ("end", (0.0,), [[1, 2, 3], [5, 6, 7], [8, 0, 0], [0, 0, 0]]),
        ("front", (0.0,), [[2, 3, 4], [5, 6, 7], [8, 0, 0], [0, 0, 0]]),
        ("end", (), ROWS[:, :3].tolist()),
        ("front", (), ROWS[:, 3:].tolist()),
    ],
)
def test_real_steps_are_kept_and_labels_go_with_them(cut_from: str, padding: Any, expected: Any) -> None:
    cutter = Cutter(most_steps=3, cut_from=cut_from, inputs=(True,), labels=(True,), padding=padding)
    x, y, weights = cutter.cut(tf.constant(ROWS), tf.constant(ROWS * 10), tf.constant([1.0, 2, 3, 4]))
    assert x.numpy().tolist() == expected
    assert y.numpy().tolist() == (np.array(expected) * 10).tolist()
    assert weights.numpy().tolist() == [1, 2, 3, 4]
    assert (
        Cutter(most_steps=9, cut_from=cut_from, inputs=(True,), labels=(True,), padding=padding)
        .cut(tf.constant(ROWS))
        .numpy()
        .tolist()
        == ROWS.tolist()
    )


def tagger(units: int = 4, batch: int | None = None) -> Any:
    """With a batch its layers are stateful, for a loop by hand."""
    keras.utils.set_random_seed(3)
    is_stateful = batch is not None
    hidden = [
        layers.Embedding(9, 3, mask_zero=True),
        layers.GRU(units, return_sequences=True, stateful=is_stateful),
        layers.LSTM(units, return_sequences=True, stateful=is_stateful),
    ]
    model = keras.Sequential([keras.Input(batch_shape=(batch, None)), *hidden, layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


LENGTHS = np.array([3, 20, 7, 12, 1, 16, 9, 20, 5, 14])
X = RANDOM.integers(1, 9, (10, 20)) * (np.arange(20) < LENGTHS[:, None])
TAGS = RANDOM.integers(0, 3, (10, 20))


@pytest.mark.parametrize("kind", ["arrays", "ragged", "tf.data"])
def test_training_is_that_of_data_cut_by_hand(kind: str) -> None:
    plain = tagger()
    expected = plain.fit(X[:, :8], TAGS[:, :8], batch_size=4, epochs=2, shuffle=False, verbose=0)
    ragged = [tf.RaggedTensor.from_tensor(values, lengths=LENGTHS) for values in (X, TAGS)]
    data: dict[str, Any] = {
        "arrays": {"x": X, "y": TAGS, "batch_size": 4},
        "ragged": {"x": ragged[0], "y": ragged[1], "batch_size": 4},
        "tf.data": {"x": tf.data.Dataset.from_tensor_slices((X, TAGS)).batch(4)},
    }[kind]
    model = tagger()
    plan = memfit.Plan(max_length=8, micro_batch=3)
    run = memfit.fit(model, **data, epochs=2, shuffle=False, plan=plan, allow="truncate", verbose=0)
    np.testing.assert_allclose(run.history.history["loss"], expected.history["loss"], rtol=1e-5)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def simple(classes: int) -> Any:
    hidden = [layers.Embedding(9, 8, mask_zero=True), layers.SimpleRNN(8, return_sequences=True)]
    model = keras.Sequential([keras.Input((None,)), *hidden, layers.Dense(classes, "softmax")])
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    return model


def test_a_plan_cuts_only_if_it_is_allowed_and_says_what_is_lost() -> None:
    lengths = np.minimum(RANDOM.geometric(0.03, 64), 200)
    lengths[0] = 200
    x = RANDOM.integers(1, 9, (64, 200)) * (np.arange(200) < lengths[:, None])
    y = np.zeros((64, 200), "int32")
    model = simple(6000)  # Most is what comes out of it, which no exact strategy makes smaller.
    whole = memfit.plan(model, (x, y), batch_size=1, budget="1GiB", allow=("truncate", "truncate_gradients"))
    assert whole.max_length is whole.gradient_window is None  # What fits is not cut.
    assert whole.rehearsed_bytes is not None
    budget = int(0.7 * whole.rehearsed_bytes)
    advice = r'allow="truncate" would cut sequences to (\d+) steps and lose'
    with pytest.raises(memfit.BudgetError, match=advice):
        memfit.plan(model, (x, y), batch_size=1, budget=budget)
    plan = memfit.plan(model, (x, y), batch_size=1, budget=budget, allow="truncate_front")
    assert plan.max_length is not None
    lost = np.maximum(0, lengths - plan.max_length).sum() / lengths.sum()
    assert plan.lost_share == pytest.approx(lost, abs=1e-6)
    assert plan.rehearsed_bytes is not None
    assert plan.rehearsed_bytes <= budget
    assert "sequences are cut in front" in str(plan)
    assert memfit.Plan.from_json(plan.to_json()) == plan
    assert all(each.max_length == plan.max_length for each in plan.fallbacks)
    run = memfit.fit(model, x[:4], y[:4], batch_size=1, plan=plan, verbose=0)
    assert run.outcome is memfit.Outcome.OK


def test_what_cannot_be_cut_is_said() -> None:
    plan = memfit.Plan(max_length=8)
    with pytest.raises(memfit.UsageError, match='allow="truncate"'):
        memfit.fit(tagger(), X, TAGS, plan=plan, verbose=0)
    fixed = keras.Sequential([keras.Input((20, 1)), layers.LSTM(2)])
    fixed.compile("sgd", "mse")
    with pytest.raises(memfit.UsageError, match="one length only"):
        memfit.fit(fixed, X[..., None], X[:, :2], plan=plan, allow="truncate", verbose=0)
    with pytest.raises(memfit.UsageError, match="x is a generator"):
        memfit.fit(tagger(), ((X, TAGS) for _ in range(2)), plan=plan, allow="truncate", verbose=0)
    with pytest.raises(memfit.UsageError, match='"end" or "front"'):
        memfit.fit(tagger(), X, TAGS, plan=memfit.Plan(cut_from="middle"), verbose=0)
    allowed = memfit.Plan(max_length=8, allow=("truncate",))
    with pytest.raises(memfit.UsageError, match=r"memfit\.applied cannot"), memfit.applied(allowed, tagger()):
        pass


# Truncated backpropagation through time


def reset(model: Any) -> None:
    for layer in model.layers:
        if isinstance(layer, keras.layers.RNN):
            layer.reset_states()


def updated(model: Any, gradients: Any, rate: float) -> list[Any]:
    return [
        weight - rate * (0 if gradient is None else tf.convert_to_tensor(gradient).numpy())
        for weight, gradient in zip(model.get_weights(), gradients, strict=True)
    ]


@pytest.mark.parametrize("window", [6, 20])
def test_many_to_many_is_a_loop_over_windows_with_stateful_layers(window: int) -> None:
    model, by_hand = tagger(), tagger(batch=10)
    reset(by_hand)
    total, gradients = 0.0, [0.0] * len(by_hand.trainable_weights)
    num_real = (X != 0).sum()
    for start in range(0, 20, window):
        x, y = X[:, start : start + window], TAGS[:, start : start + window]
        with tf.GradientTape() as tape:
            predicted = by_hand(x)
            losses = keras.losses.sparse_categorical_crossentropy(y, predicted)
            loss = tf.reduce_sum(losses * tf.cast(x != 0, tf.float32)) / num_real
        found = tape.gradient(loss, [each.value for each in by_hand.trainable_weights])
        gradients = [one + tf.convert_to_tensor(two) for one, two in zip(gradients, found, strict=True)]
        total += float(loss)
    expected = updated(by_hand, gradients, 0.1)
    plan = memfit.Plan(gradient_window=window)
    run = memfit.fit(model, X, TAGS, batch_size=10, plan=plan, allow="truncate_gradients", verbose=0)
    assert run.history.history["loss"][0] == pytest.approx(total, rel=1e-5)
    for one, other in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def classifier(units: int = 4, batch: int | None = None) -> Any:
    keras.utils.set_random_seed(3)
    is_stateful = batch is not None
    hidden = [
        layers.Masking(),
        layers.LSTM(units, return_sequences=True, stateful=is_stateful),
        layers.GRU(units, stateful=is_stateful),
        layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input(batch_shape=(batch, None, 2)), *hidden])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


def test_many_to_one_learns_from_the_last_steps_of_each_sequence() -> None:
    values = RANDOM.normal(size=(10, 20, 2)).astype("float32") * (X != 0)[..., None]
    y = RANDOM.normal(size=(10, 1)).astype("float32")
    model, by_hand = classifier(), classifier(batch=10)
    in_front = np.stack(
        [np.roll(row, 20 - length, axis=0) for row, length in zip(values, LENGTHS, strict=True)]
    )
    reset(by_hand)
    for start, stop in ((0, 6), (6, 12), (12, 14)):
        by_hand(in_front[:, start:stop])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((by_hand(in_front[:, 14:]) - y) ** 2)
    expected = updated(by_hand, tape.gradient(loss, [each.value for each in by_hand.trainable_weights]), 0.1)
    plan = memfit.Plan(gradient_window=6, allow=("truncate_gradients",))
    run = memfit.fit(model, values, y, batch_size=10, plan=plan, verbose=0)
    assert run.history.history["loss"][0] == pytest.approx(float(loss), rel=1e-5)
    for one, other in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert not [layer for layer in model.layers if "inner_loop" in vars(layer)]
    whole = classifier()
    plain = classifier()
    memfit.fit(whole, values, y, plan=memfit.Plan(gradient_window=20), allow="truncate_gradients", verbose=0)
    plain.fit(values, y, verbose=0)
    for one, other in zip(whole.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_memory_falls_with_the_window() -> None:
    measured = memfit.measure(_peaks)
    assert measured.outcome is memfit.Outcome.OK, measured.output
    whole, eighth = measured.value
    assert eighth < 0.35 * whole


def _peaks() -> list[int]:
    x, y = np.ones((16, 320), "int32"), np.zeros((16, 320), "int32")
    found = []
    for window in (None, 40):
        model = tagger(32)
        plan = memfit.Plan(gradient_window=window, allow=("truncate_gradients",))
        memfit.fit(model, x, y, batch_size=16, plan=plan, verbose=0)
        memfit.reset_peak()
        device = memfit.read_memory().fullest_device()
        assert device is not None
        before = device.current_bytes
        memfit.fit(model, x, y, batch_size=16, epochs=2, plan=plan, verbose=0)
        device = memfit.read_memory().fullest_device()
        assert device is not None
        found.append(device.peak_bytes - before)
    return found


def test_a_plan_may_cut_gradients() -> None:
    x, y = np.ones((8, 200), "int32"), np.zeros((8, 200), "int32")
    model = simple(1000)
    found = plan_windows(
        find_subject(model),
        describe(model, (x, y)),
        8,
        budget_bytes=memfit.budget("1GiB").device_bytes,
        tell=None,
    )
    assert found is not None
    assert found.gradient_window == 100
    assert found.rehearsed_bytes is not None
    budget = int(1.08 * found.rehearsed_bytes)  # A MiB less than what it takes to be safe.
    tight = plan_windows(find_subject(model), describe(model, (x, y)), 8, budget_bytes=budget, tell=None)
    assert tight is not None
    assert tight.gradient_window is not None
    assert tight.gradient_window < found.gradient_window
    plan = replace(tight, allow=("truncate_gradients",))
    assert "gradients cut every" in str(plan)
    memfit.fit(model, x, y, batch_size=8, plan=plan, verbose=0)


REFUSED: dict[str, tuple[list[Any], str]] = {
    "bidirectional": ([layers.Bidirectional(layers.LSTM(2))], "Bidirectional"),
    "pooling": ([layers.LSTM(2, return_sequences=True), layers.GlobalAveragePooling1D()], "treat every step"),
    "convolution": ([layers.Conv1D(2, 3), layers.LSTM(2)], "Conv1D"),
    "no RNN": ([layers.Dense(2)], "no RNN layer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_whose_steps_mix_otherwise_are_refused(case: str) -> None:
    hidden, message = REFUSED[case]
    model = keras.Sequential([keras.Input((None, 2)), *hidden])
    model.compile("sgd", "mse")
    plan = memfit.Plan(gradient_window=4)
    with pytest.raises(memfit.UsageError, match=message):
        memfit.fit(
            model, np.ones((4, 8, 2)), np.ones((4, 2)), plan=plan, allow="truncate_gradients", verbose=0
        )
    with pytest.raises(memfit.UsageError, match="which changes what"):
        memfit.fit(tagger(), X, TAGS, plan=plan, verbose=0)
