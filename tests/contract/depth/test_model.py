"""Depth checkpointing against plain Keras: the same training whatever the model; and what is said else."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.depth.model_tf import checkpoint_depth
from memfit.depth.profiling_tf import profile_depth
from memfit.errors import MemfitError, MemfitWarning, SetupError, UsageError
from memfit.strategies.depth_checkpoint import DepthCheckpoint
from tests.contract.depth import models

DATA = tf.constant(np.random.default_rng(0).normal(size=(24, 8)).astype("float32"))


def assert_close(found: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, "fit") for name in models.MODELS] + [("subclassed", "loop"), ("sequential", "eager")],
)
def test_three_steps_are_those_of_plain_keras(name: str, how: str) -> None:
    """Plain Keras runs eagerly for `fit`, too: that is cheaper than to trace it.

    Not the deep application, where the rounding of one and the other grows through its many layers.
    """
    is_traced = how == "fit" and name != "application"
    plain = models.train(name, None, how="eager" if is_traced else how)
    assert_close(models.train(name, "least", how=how), plain, 1e-4)


def test_mixed_precision() -> None:
    plain = models.train("sequential", None, how="eager", policy="mixed_bfloat16")
    assert_close(models.train("sequential", "least", how="fit", policy="mixed_bfloat16"), plain, 3e-2)


def deep(*extra: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    body = [layers.Dense(16, activation="gelu") for _ in range(4)]
    return keras.Sequential([layers.Input((8,)), *body, *extra, layers.Dense(2)])


def gradients_of(
    model: Any, inputs: Any = DATA, *, is_traced: bool = True, is_second: bool = False
) -> list[np.ndarray]:
    """Gradients of the inputs and weights, or of the size of those."""

    def run(inputs: Any) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                loss = tf.reduce_sum(tf.sin(model(inputs, training=True)))
            found = tape.gradient(loss, [inputs, *model.trainable_variables])
            if not is_second:
                return found
            size = tf.add_n([tf.reduce_sum(tf.convert_to_tensor(each) ** 2) for each in found])
        return outer.gradient(size, model.trainable_variables)

    found = (tf.function(run, autograph=False) if is_traced else run)(inputs)
    return [np.asarray(each) for each in found]


@pytest.mark.parametrize("is_traced", [True, False])
def test_gradients_of_inputs_and_of_gradients(is_traced: bool) -> None:
    model = deep()
    options = [{"is_traced": is_traced, "is_second": is_second} for is_second in (False, True)]
    plain = [gradients_of(model, **each) for each in options]
    with checkpoint_depth(model) as handle:
        for expected, each in zip(plain, options, strict=True):
            assert_close(gradients_of(model, **each), expected, 1e-4)
    assert handle.decisions[0].num_segments > 1


def test_frozen_layers_and_a_model_that_is_called_twice() -> None:
    model = deep()
    model.layers[1].trainable = False

    class Both:
        trainable_variables = model.trainable_variables

        def __call__(self, inputs: Any, training: bool) -> Any:
            return model(inputs, training=training) * model(-inputs, training=training)

    plain = gradients_of(Both())
    with checkpoint_depth(model):
        assert_close(gradients_of(Both()), plain, 1e-4)


class Odd(layers.Layer):
    """Runs Python, draws random numbers that cannot be drawn again, and takes a gradient in its call."""

    def call(self, inputs: Any) -> Any:
        """All three."""
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(tf.sin(inputs))
        doubled = tf.ensure_shape(
            tf.numpy_function(lambda each: 2 * each, [inputs], tf.float32), inputs.shape
        )
        noise = tf.random.uniform(tf.shape(inputs))
        self.drawn = noise
        return tape.gradient(value, inputs) * doubled * noise


def test_what_cannot_be_run_twice_is_kept_with_a_sentence() -> None:
    odd = Odd()
    model = deep(odd, layers.Dense(16, activation="gelu"))

    @tf.function
    def gradient(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs, training=True))
        return loss, odd.drawn, tape.gradient(loss, model.trainable_variables[-1].value)

    with checkpoint_depth(model) as handle:
        loss, drawn, _ = gradient(DATA)
    assert np.isfinite(loss)
    assert drawn.shape == (24, 16)
    sentences = handle.decisions[0].left_out
    assert all(each.startswith("odd") and "cannot be run twice" in each for each in sentences)
    assert [each.split()[1] for each in sentences] == ["PyFunc", "RandomUniform"]


def recurrent() -> keras.Model:
    keras.utils.set_random_seed(2)
    inputs = keras.Input((5, 8))
    values = layers.Dense(16, activation="gelu")(layers.Dense(16, activation="gelu")(inputs))
    values = layers.SimpleRNN(4)(layers.SimpleRNN(4, return_sequences=True)(values))
    values = layers.Dense(16, activation="gelu")(layers.Dense(16, activation="gelu")(values))
    return keras.Model(inputs, layers.Dense(2)(values))


def test_together_with_time_segments() -> None:
    model = recurrent()
    inputs = tf.ones((6, 5, 8))
    plain = gradients_call(model)(inputs)
    with checkpoint_depth(model) as handle, memfit.checkpoint_time(model, 2):
        found = tf.function(gradients_call(model), autograph=False)(inputs)
    assert handle.decisions[0].num_segments > 0
    assert_close([np.asarray(each) for each in found], [np.asarray(each) for each in plain], 1e-4)


@pytest.mark.parametrize("is_time_first", [True, False])
@pytest.mark.parametrize("is_first_undone_first", [True, False])
def test_both_are_undone_in_any_order(is_time_first: bool, is_first_undone_first: bool) -> None:
    model = recurrent()
    attributes = {id(layer): set(vars(layer)) for layer in model._flatten_layers()}
    handles: list[Any] = [
        memfit.checkpoint_time(model, 2) if is_time else checkpoint_depth(model)
        for is_time in (is_time_first, not is_time_first)
    ]
    for handle in handles if is_first_undone_first else handles[::-1]:
        handle.undo()
    assert {id(layer): set(vars(layer)) for layer in model._flatten_layers()} == attributes


def test_it_goes_without_a_trace(tmp_path: Path) -> None:
    model = models.branching()
    x, _ = models.data_for("branching")
    config = json.dumps(model.get_config(), default=str)
    attributes = {id(layer): set(vars(layer)) for layer in model._flatten_layers()}
    handle = checkpoint_depth(model)
    assert json.dumps(model.get_config(), default=str) == config
    model.save(tmp_path / "model.keras")
    handle.undo()
    handle.undo()
    assert {id(layer): set(vars(layer)) for layer in model._flatten_layers()} == attributes
    assert model.supports_jit
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(model.predict(x, verbose=0), loaded.predict(x, verbose=0), 1e-6)


def test_the_registry_of_gradients_does_not_grow() -> None:
    from tensorflow.python.framework import ops

    def build_train_and_drop() -> None:
        model = deep(layers.Activation("silu"))
        checkpoint_depth(model)
        gradients_of(model)
        gradients_of(model, is_traced=False)

    build_train_and_drop()
    gc.collect()
    before = set(ops.gradient_registry.list())
    build_train_and_drop()
    gc.collect()
    assert set(ops.gradient_registry.list()) - before == set()


def test_a_limit_is_held_and_one_that_cannot_be_is_refused() -> None:
    model = deep()
    for is_measured in (False, True):
        with checkpoint_depth(model, "70%", is_measured=is_measured) as handle:
            gradients_of(model)
        (decision,) = handle.decisions
        assert decision.held_bytes <= 0.7 * decision.plain_bytes
        assert 0 < decision.recomputed_share < 0.6
    with (
        checkpoint_depth(model, "1%"),
        pytest.raises(UsageError, match=r"cannot be held in .* the least is .* Pass a limit of \"\d+%\""),
    ):
        gradients_of(model)


def test_a_batch_of_unknown_size_needs_to_be_told() -> None:
    model = deep()
    call = tf.function(gradients_call(model), autograph=False, input_signature=[tf.TensorSpec((None, 8))])
    with (
        checkpoint_depth(model, "15KiB"),
        pytest.raises(UsageError, match=r"batch size of 'sequential.*' is not known"),
    ):
        call(DATA)
    with checkpoint_depth(model, "15KiB", batch_size=24) as handle:
        call(DATA)
    assert handle.decisions[0].batch_size == 24


def test_a_smaller_batch_after_a_whole_one() -> None:
    model = deep()
    model.compile("sgd", "mse")
    with checkpoint_depth(model, "15KiB") as handle:
        for num in (16, 4):
            model.train_on_batch(np.asarray(DATA[:num]), np.zeros((num, 2), "float32"))
    assert [decision.batch_size for decision in handle.decisions] == [16, 16]


def test_layers_that_are_frozen_between_eager_calls() -> None:
    model = deep()
    plain = gradients_of(model, is_traced=False)
    with checkpoint_depth(model):
        model.layers[1].trainable = False
        few = len(gradients_of(model, is_traced=False))
        model.layers[1].trainable = True
        found = gradients_of(model, is_traced=False)
    assert len(found) == few + 2
    assert_close(found, plain, 1e-4)


def gradients_call(model: Any) -> Any:
    def call(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs, training=True))
        return tape.gradient(loss, model.trainable_variables)

    return call


def test_nothing_to_gain_is_said_and_changes_nothing() -> None:
    model = keras.Sequential([layers.Input((8,)), layers.Dense(2)])
    plain = gradients_of(model)
    with checkpoint_depth(model) as handle, pytest.warns(MemfitWarning, match="gains nothing"):
        assert_close(gradients_of(model), plain)
    assert handle.decisions[0].num_segments == 0


def test_xla_runs_plain_keras_and_says_so() -> None:
    model = deep()
    plain = gradients_call(model)(DATA)
    with checkpoint_depth(model), pytest.warns(MemfitWarning, match="jit_compile=False"):
        found = tf.function(gradients_call(model), jit_compile=True)(DATA)
    assert_close([np.asarray(each) for each in found], [np.asarray(each) for each in plain], 1e-4)


@pytest.mark.parametrize("limit", [0, -1, "x"])
def test_bad_limits_change_nothing(limit: Any) -> None:
    model = deep()
    with pytest.raises(MemfitError):
        checkpoint_depth(model, limit)
    assert "call" not in vars(model)


def test_what_is_no_model_and_what_is_checkpointed_already() -> None:
    with pytest.raises(UsageError, match="takes a Keras model or layer"):
        checkpoint_depth("model.keras")
    model = deep()
    with checkpoint_depth(model), pytest.raises(SetupError, match="Undo the first handle"):
        checkpoint_depth(model)


def test_a_plan_with_micro_batches_and_fallbacks() -> None:
    x, y = np.asarray(DATA), np.zeros((24, 2), "float32")
    plan = memfit.Plan(micro_batch=4, depth_limit="least")
    found = []
    for each in (memfit.Plan(), plan):
        model = deep()
        model.compile(keras.optimizers.SGD(0.1), "mse")
        memfit.fit(model, x, y, plan=each, batch_size=12, shuffle=False, verbose=0)
        found.append(model.get_weights())
        assert "call" not in vars(model)
    assert_close(found[1], found[0])
    model = deep()
    plain = gradients_of(model)
    with memfit.applied(memfit.Plan(depth_limit="70%"), model):
        assert "call" in vars(model)
        assert_close(gradients_of(model), plain, 1e-4)
    with pytest.raises(UsageError, match="depth_limit of a plan must be text"):
        memfit.fit(model, x, y, plan=memfit.Plan(depth_limit=64))  # type: ignore[arg-type]


def test_a_profile_changes_nothing_and_offers_settings() -> None:
    model = models.sequential()
    before = models.state_of(model)
    profile = profile_depth(model, DATA)
    assert_close(models.state_of(model), before, 0.0)
    assert profile.batch_size == 24
    assert all(part.seconds > 0 for part in profile.depth)
    strategy = DepthCheckpoint()
    effects = [strategy.effect(setting, profile) for setting in strategy.settings(profile).settings]
    seconds = [effect.recomputed_seconds or 0.0 for effect in effects]
    assert effects[0].held_bytes < effects[0].kept_bytes
    assert seconds == sorted(seconds, reverse=True)
