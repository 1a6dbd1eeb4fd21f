"""Sequences cut to a greatest length, and gradients cut in time: inexact, and allowed by name."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.data.cutting_tf import Cutter
from memfit.estimating.batches_tf import describe
from memfit.estimating.probing_tf import find_subject
from memfit.planning import plan_tf
from memfit.planning.windowing_tf import plan_windows
from memfit.splitting.windows_tf import windowed_train_step

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


def tagger(batch: int | None = None) -> Any:
    """With a batch its layers are stateful, for a loop by hand."""
    keras.utils.set_random_seed(3)
    is_stateful = batch is not None
    hidden = [
        layers.Embedding(9, 3, mask_zero=True),
        layers.SimpleRNN(4, return_sequences=True, stateful=is_stateful),
        layers.LSTM(4, return_sequences=True, stateful=is_stateful),
    ]
    model = keras.Sequential([keras.Input(batch_shape=(batch, None)), *hidden, layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


STEPS = 11
LENGTHS = np.array([3, 11, 7, 1, 9])
X = RANDOM.integers(1, 9, (5, STEPS)) * (np.arange(STEPS) < LENGTHS[:, None])
TAGS = RANDOM.integers(0, 3, (5, STEPS))


@functools.cache
def trained_by_hand() -> tuple[Any, Any]:
    """Losses and weights of plain Keras on the first 5 steps; eagerly, since a few steps need no trace."""
    model = tagger()
    model.run_eagerly = True
    found = model.fit(X[:, :5], TAGS[:, :5], batch_size=4, epochs=2, shuffle=False, verbose=0)
    return found.history["loss"], model.get_weights()


@pytest.mark.parametrize("kind", ["arrays", "ragged", "tf.data"])
def test_training_is_that_of_data_cut_by_hand(kind: str) -> None:
    """It is the data that is cut, so that only one kind of it, in micro-batches, runs in a traced step."""
    losses, weights = trained_by_hand()
    ragged = [tf.RaggedTensor.from_tensor(values, lengths=LENGTHS) for values in (X, TAGS)]
    data: dict[str, Any] = {
        "arrays": {"x": X, "y": TAGS, "batch_size": 4},
        "ragged": {"x": ragged[0], "y": ragged[1], "batch_size": 4},
        "tf.data": {"x": tf.data.Dataset.from_tensor_slices((X, TAGS)).batch(4)},
    }[kind]
    model = tagger()
    model.run_eagerly = kind != "arrays"
    plan = memfit.Plan(max_length=5, micro_batch=3 if kind == "arrays" else None)
    run = memfit.fit(model, **data, epochs=2, shuffle=False, plan=plan, allow="truncate", verbose=0)
    np.testing.assert_allclose(run.history.history["loss"], losses, rtol=1e-5)
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def simple(classes: int) -> Any:
    hidden = [layers.Embedding(9, 2, mask_zero=True), layers.SimpleRNN(2, return_sequences=True)]
    model = keras.Sequential([keras.Input((None,)), *hidden, layers.Dense(classes, "softmax")])
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    return model


def test_what_cannot_be_cut_is_said() -> None:
    plan = memfit.Plan(max_length=8)
    with pytest.raises(memfit.UsageError, match='allow="truncate"'):
        memfit.fit(tagger(), X, TAGS, plan=plan, verbose=0)
    fixed = keras.Sequential([keras.Input((STEPS, 1)), layers.LSTM(2)])
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


def test_many_to_many_is_a_loop_over_windows_with_stateful_layers() -> None:
    model, by_hand = tagger(), tagger(batch=5)
    before, window = model.get_weights(), tf.Variable(1)
    step = tf.function(windowed_train_step(model, window), autograph=False)  # Traced once, for all windows.
    batch = tf.constant(X), tf.constant(TAGS)
    for size in (4, STEPS):
        loss, expected = step_by_hand(by_hand, size)
        model.set_weights(before)
        model.reset_metrics()
        window.assign(size)
        assert float(step(batch)["loss"]) == pytest.approx(loss, rel=1e-5)
        for one, other in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def step_by_hand(by_hand: Any, window: int) -> tuple[float, list[Any]]:
    """The loss of a batch in windows, and the weights after a step, in a loop over stateful layers."""
    reset(by_hand)
    total, gradients = 0.0, [0.0] * len(by_hand.trainable_weights)
    num_real = (X != 0).sum()
    for start in range(0, STEPS, window):
        x, y = X[:, start : start + window], TAGS[:, start : start + window]
        with tf.GradientTape() as tape:
            predicted = by_hand(x)
            losses = keras.losses.sparse_categorical_crossentropy(y, predicted)
            loss = tf.reduce_sum(losses * tf.cast(x != 0, tf.float32)) / num_real
        found = tape.gradient(loss, [each.value for each in by_hand.trainable_weights])
        gradients = [one + tf.convert_to_tensor(two) for one, two in zip(gradients, found, strict=True)]
        total += float(loss)
    return total, updated(by_hand, gradients, 0.1)


def classifier(batch: int | None = None) -> Any:
    keras.utils.set_random_seed(3)
    is_stateful = batch is not None
    hidden = [
        layers.Masking(),
        layers.GRU(4, return_sequences=True, stateful=is_stateful),
        layers.SimpleRNN(4, stateful=is_stateful),
        layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input(batch_shape=(batch, None, 2)), *hidden])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


def test_many_to_one_learns_from_the_last_steps_of_each_sequence() -> None:
    values = RANDOM.normal(size=(5, STEPS, 2)).astype("float32") * (X != 0)[..., None]
    y = RANDOM.normal(size=(5, 1)).astype("float32")
    model, by_hand = classifier(), classifier(batch=5)
    in_front = np.stack(
        [np.roll(row, STEPS - length, axis=0) for row, length in zip(values, LENGTHS, strict=True)]
    )
    reset(by_hand)
    for start, stop in ((0, 4), (4, 7)):
        by_hand(in_front[:, start:stop])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((by_hand(in_front[:, 7:]) - y) ** 2)
    expected = updated(by_hand, tape.gradient(loss, [each.value for each in by_hand.trainable_weights]), 0.1)
    plan = memfit.Plan(gradient_window=4, allow=("truncate_gradients",))
    run = memfit.fit(model, values, y, batch_size=5, plan=plan, verbose=0)
    assert run.history.history["loss"][0] == pytest.approx(float(loss), rel=1e-5)
    for one, other in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert not [layer for layer in model.layers if "inner_loop" in vars(layer)]
    whole = classifier()
    plain = classifier()
    memfit.fit(
        whole, values, y, plan=memfit.Plan(gradient_window=STEPS), allow="truncate_gradients", verbose=0
    )
    plain.run_eagerly = True
    plain.fit(values, y, verbose=0)
    for one, other in zip(whole.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


# In a fresh process, where nothing is left over from other tests


def test_peaks_and_plans_where_memory_is_short() -> None:
    measured = memfit.measure(short_of_memory, timeout_seconds=600)
    assert measured.outcome is memfit.Outcome.OK, measured.output
    found = measured.value
    assert found["whole"] > 5 * 2**20
    # A sixteenth of the steps, and what is always there.
    assert found["of a window"] < 0.35 * found["whole"], found
    assert "truncate" in found["refused"]


def short_of_memory() -> dict[str, Any]:
    """Checks what needs no other process; returns what is said and measured."""
    model = simple(20_000)  # Most is what comes out of it, which no exact strategy makes smaller.
    lengths = np.minimum(RANDOM.geometric(0.08, 64), 128)
    lengths[0] = 128
    x = RANDOM.integers(1, 9, (64, 128)) * (np.arange(128) < lengths[:, None])
    data = (x, np.zeros((64, 128), "int32"))
    with refusals_remembered():
        refused = check_plans(model, data, lengths)
    check_windows(model, data)
    whole, of_a_window = (peak_of_training(window) for window in (None, 20))
    return {"whole": whole, "of a window": of_a_window, "refused": refused}


@contextmanager
def refusals_remembered() -> Iterator[None]:
    """Where nothing exact fits a budget at a length, that is found out once for all that is allowed."""
    search, refusals = plan_tf._plan_exactly, {}

    def remembered(
        subject: Any, batches: Any, data: Any, size: int, budget_bytes: int, *rest: Any
    ) -> memfit.Plan:
        key = (batches.length, size, budget_bytes)
        if key not in refusals:
            try:
                return search(subject, batches, data, size, budget_bytes, *rest)
            except memfit.BudgetError as error:
                refusals[key] = error
        raise refusals[key]

    with mock.patch.object(plan_tf, "_plan_exactly", remembered):
        yield


def peak_of_training(window: int | None) -> int:
    """The least peak of some equal steps, above what was there before."""
    x, y = np.ones((16, 320), "int32"), np.zeros((16, 320), "int32")
    hidden = [layers.Embedding(9, 3, mask_zero=True), layers.LSTM(32, return_sequences=True)]
    model = keras.Sequential([keras.Input((None,)), *hidden, layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    plan = memfit.Plan(gradient_window=window, allow=("truncate_gradients",))
    peaks = []

    class Read(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            memfit.reset_peak()
            self.before = device_bytes("current_bytes")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            peaks.append(device_bytes("peak_bytes") - self.before)

    memfit.fit(model, x, y, batch_size=16, epochs=3, plan=plan, verbose=0, callbacks=[Read()])
    return min(peaks[1:])


def device_bytes(name: str) -> int:
    device = memfit.read_memory().fullest_device()
    assert device is not None
    return int(getattr(device, name))


def check_plans(model: Any, data: Any, lengths: Any) -> str:
    """A plan cuts only if that is allowed and nothing else fits, and says what is lost."""
    options: dict[str, Any] = {"batch_size": 1}
    whole = memfit.plan(model, data, budget="1GiB", allow=("truncate", "truncate_gradients"), **options)
    assert whole.max_length is whole.gradient_window is None  # What fits is not cut.
    assert whole.rehearsed_bytes is not None
    options["budget"] = int(0.7 * whole.rehearsed_bytes)
    cut = memfit.plan(model, data, allow=("truncate", "truncate_gradients"), **options)
    assert cut.max_length is None  # Rather no long gradients than no long sequences.
    assert cut.gradient_window in (8, 16, 32, 64)
    assert "gradients cut every" in str(cut)
    front = memfit.plan(model, data, allow="truncate_front", **options)
    assert front.max_length is not None
    lost = np.maximum(0, lengths - front.max_length).sum() / lengths.sum()
    assert front.lost_share == pytest.approx(lost, abs=1e-6)
    assert "sequences are cut in front" in str(front)
    assert all(each.max_length == front.max_length for each in front.fallbacks)
    advice = r'allow="truncate" would cut sequences to (\d+) steps and lose'
    with pytest.raises(memfit.BudgetError, match=advice) as refused:
        memfit.plan(model, data, **options)
    for plan in (cut, front):
        assert plan.rehearsed_bytes is not None
        assert plan.rehearsed_bytes <= options["budget"]
        assert memfit.Plan.from_json(plan.to_json()) == plan
        run = memfit.fit(model, *(part[:2] for part in data), batch_size=1, plan=plan, verbose=0)
        assert run.outcome is memfit.Outcome.OK
    return str(refused.value)


def check_windows(model: Any, data: Any) -> None:
    """The longest window that fits is taken: half of the sequence, or less where that is too much."""
    found = windowed(model, data, memfit.budget("1GiB").device_bytes)
    assert found.gradient_window == 64
    assert found.rehearsed_bytes is not None
    tight = windowed(model, data, int(0.85 * found.rehearsed_bytes))
    assert tight.gradient_window is not None
    assert tight.gradient_window < 64
    assert tight.rehearsed_bytes is not None
    assert tight.rehearsed_bytes < 0.85 * found.rehearsed_bytes


def windowed(model: Any, data: Any, budget_bytes: int) -> memfit.Plan:
    batches = describe(model, data)
    found = plan_windows(find_subject(model), batches, 1, budget_bytes=budget_bytes, tell=None)
    assert found is not None
    return found


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
