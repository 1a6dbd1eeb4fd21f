"""`memfit.estimate` on small models: near the truth, nothing touched, and clear words when it cannot."""

import gc
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.python.framework import ops as framework_ops

import memfit
from memfit.errors import UsageError
from memfit.estimating import probing_tf
from memfit.estimating.batches_tf import describe
from memfit.estimating.probing_tf import find_subject, measure_growth
from memfit.records import Source
from memfit.splitting import internals_tf as internals


def recurrent(*, compiled: bool = True) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None, 4)),
            layers.Dropout(0.1),
            layers.LSTM(32),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    if compiled:
        model.compile("adam", "mse", metrics=["mae"])
    return model


def data(num: int = 40, length: int = 12) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.random((num, length, 4), np.float32), random.random((num, 1), np.float32)


def state_of(model: keras.Model) -> list[Any]:
    variables = [*model.variables, *model.metrics_variables, *internals.seed_states()]
    if model.compiled:
        variables += model.optimizer.variables
    return [variable.numpy() for variable in variables]


@pytest.fixture(scope="module")
def estimated() -> memfit.Estimate:
    """What several tests look at."""
    return memfit.estimate(recurrent(), data(), batch_size=256)


def test_nothing_is_touched_and_nothing_stays() -> None:
    model = recurrent()
    model.fit(*data(), verbose=0)
    gc.collect()  # What other tests have left is not to go in the meantime.
    before, registered = state_of(model), set(framework_ops.gradient_registry._registry)
    optimizer, alive = model.optimizer, tf.config.experimental.get_memory_info("CPU:0")["current"]
    memfit.estimate(model, data(), batch_size=128)
    for old, new in zip(before, state_of(model), strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.optimizer is optimizer
    assert set(framework_ops.gradient_registry._registry) == registered
    assert tf.config.experimental.get_memory_info("CPU:0")["current"] < alive + 2**20
    model.fit(*data(), verbose=0)


def real_peak(model: keras.Model, x: Any, y: Any) -> int:
    """The peak of a real step beside what was there, with the weights, slots and inputs that it has."""
    batch = tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x))
    model.fit(batch.repeat(3), verbose=0, shuffle=False)
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    model.fit(batch.repeat(3), verbose=0, shuffle=False)
    peak: int = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    resting = sum(v.numpy().nbytes for v in [*model.variables, *model.optimizer.variables])
    return int(peak - before + resting)


def test_it_is_near_the_truth_at_a_batch_that_was_never_run() -> None:
    model, (x, y) = recurrent(), data(512, 60)
    found = memfit.estimate(model, (x[:16], y[:16]), batch_size=512)
    truth = real_peak(model, x, y)
    assert abs(found.peak_bytes / truth - 1) < 0.25
    assert found.low_bytes <= found.peak_bytes <= found.high_bytes
    assert found.validation_peak_bytes is not None
    assert found.validation_peak_bytes < found.peak_bytes


def test_parts_and_layers_add_up_and_say_where_they_come_from(estimated: memfit.Estimate) -> None:
    found = estimated
    assert sum(part.num_bytes for part in found.parts) == found.peak_bytes
    parts = {part.name: part for part in found.parts}
    assert parts["weights"].source is Source.DERIVED
    assert parts["activations"].source is Source.MEASURED
    assert sum(part.num_bytes for part in found.layers) == parts["activations"].num_bytes
    assert found.layers[0].name.startswith("lstm")
    assert memfit.Estimate.from_json(found.to_json()) == found


def test_a_model_that_is_not_compiled(estimated: memfit.Estimate) -> None:
    bare = memfit.estimate(recurrent(compiled=False), data(), batch_size=256, loss="mse", optimizer="adam")
    assert abs(bare.peak_bytes / estimated.peak_bytes - 1) < 0.4
    assert bare.validation_peak_bytes is not None


def test_a_spec_a_length_and_a_longer_step_than_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing_tf, "MOST_BUFFERS", 2_000)  # So that few steps are recorded, and soon.
    model, spec = recurrent(), (tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, 1]))
    short = memfit.estimate(model, spec, batch_size=64, length=60, validation=False)
    long = memfit.estimate(model, spec, batch_size=64, length=600, validation=False)
    assert 6 < long.peak_bytes / short.peak_bytes < 14
    assert long.length == 600
    assert all("length 600" not in probe for probe in long.probes)
    assert any("along a line" in note for note in long.notes)


def test_a_step_of_many_buffers_is_recorded_at_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = memfit.estimate(recurrent(), data(), batch_size=256, validation=False)
    monkeypatch.setattr(probing_tf, "MOST_BUFFERS", 100)
    found = memfit.estimate(recurrent(), data(), batch_size=256, validation=False)
    assert len(usual.probes) == 3
    assert found.probes == (usual.probes[0], usual.probes[-1])
    assert abs(found.peak_bytes / usual.peak_bytes - 1) < 0.1


def test_where_time_is_short_a_small_step_is_recorded_three_times_and_a_large_one_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing_tf, "PROBE_SECONDS", 0.0)
    model = fixed()
    subject, batches = find_subject(model), describe(model, data(length=10), batch_size=256)
    small = measure_growth(subject, batches).spans[-1]
    monkeypatch.setattr(probing_tf, "FEW_BUFFERS", 10)
    large = measure_growth(subject, batches).spans[-1]
    assert (len(small.recordings), small.num_orders) == (3, 1)
    assert (len(large.recordings), large.num_orders) == (1, 1)


def test_a_convolution_whose_workspace_small_batches_do_not_show_is_noted(estimated: memfit.Estimate) -> None:
    model = keras.Sequential(
        [keras.Input((4, 6, 6, 1)), layers.Conv3D(2, 3), layers.Flatten(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    assert any("Conv3D" in note for note in memfit.estimate(model, batch_size=8, validation=False).notes)
    assert not any("Conv3D" in note for note in estimated.notes)


def test_micro_batches_for_the_planner() -> None:
    model = keras.Sequential([keras.Input((None, 4)), layers.LSTM(32), layers.Dense(1)])
    model.compile("adam", "mse")
    subject, batches = find_subject(model), describe(model, data(64, 40), batch_size=512)
    whole = measure_growth(subject, batches, num_recordings=1)
    split = measure_growth(subject, batches, is_split=True, num_recordings=1)
    assert split.predict(512, micro_batch=64).peak_bytes < 0.4 * whole.predict(512).peak_bytes
    by_arithmetic = whole.predict(512, micro_batch=64).peak_bytes
    assert abs(split.predict(512, micro_batch=64).peak_bytes / by_arithmetic - 1) < 0.5


def test_host_memory_of_a_pipeline() -> None:
    x, y = data(100)
    example = 4 * (12 * 4 + 1)
    pipeline = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50).batch(16).prefetch(3)
    found = memfit.estimate(recurrent(), pipeline, validation=False)
    parts = {part.name: part.num_bytes for part in found.host_parts}
    assert found.batch_size == 16
    assert parts["shuffle buffer"] == 50 * example
    assert parts["prefetch buffer"] == 3 * 16 * example
    assert parts["copy by from_tensor_slices"] == 100 * example
    assert found.host_bytes == sum(parts.values())
    assert found.validation_peak_bytes is None


def never_built() -> Any:
    return keras.Sequential([layers.Dense(1)])


def fixed() -> Any:
    model = keras.Sequential([keras.Input((10, 4)), layers.LSTM(8), layers.Dense(1)])
    model.compile("adam", "mse")
    return model


class Untrainable(keras.layers.Layer):
    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            raise ValueError("this layer cannot be trained")
        return x


def untrainable() -> Any:
    model = keras.Sequential([keras.Input((4,)), Untrainable()])
    model.compile("sgd", "mse")
    return model


FREE = (tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, 1]))
REFUSED: dict[str, tuple[Callable[[], Any], Any, dict[str, Any], str]] = {
    "no model": (dict, None, {}, "takes a Keras model"),
    "never built": (never_built, data(), {}, r"was never built.*model\(x\[:1\]\)"),
    "not compiled": (lambda: recurrent(compiled=False), data(), {}, r"is not compiled.*loss='mse'"),
    "another rank": (
        recurrent,
        (np.zeros((8, 4)), np.zeros((8, 1))),
        {},
        r"takes \[None, None, 4\].*\[None, 4\]",
    ),
    "another width": (recurrent, (np.zeros((8, 5, 3)), np.zeros((8, 1))), {}, "takes .* and the data has"),
    "targets": (
        recurrent,
        (np.zeros((8, 5, 4)), np.zeros((8, 3, 5))),
        {},
        "cannot be trained on batches of x",
    ),
    "a layer": (
        untrainable,
        (np.zeros((8, 4)), np.zeros((8, 4))),
        {},
        r"batches of x \[batch, 4\].*: this layer cannot be trained\. Check",
    ),
    "two inputs": (recurrent, ([data()[0]] * 2, data()[1]), {}, "takes 1 inputs, and the data has 2"),
    "no length": (recurrent, FREE, {"batch_size": 8}, "any length.*length=500.*--length 500"),
    "no batch": (recurrent, FREE, {"length": 8}, "how large a batch is.*batch_size=32"),
    "batch of nothing": (recurrent, data(), {"batch_size": 0}, "positive whole number"),
    "fixed length": (fixed, None, {"batch_size": 8, "length": 20}, "built for a length of 10"),
    "a list of numbers": (recurrent, ([1, 2], [3]), {}, "data is a tuple"),
    "too many parts": (recurrent, (1, 2, 3, 4), {}, r"data is \(x, y\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    make, given, arguments, words = REFUSED[name]
    with pytest.raises(UsageError, match=words):
        memfit.estimate(make(), given, **arguments)
