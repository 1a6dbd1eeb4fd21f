"""Whole models: stacks are found, training is the same, undoing leaves nothing behind."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from memfit.errors import MemfitWarning, SetupError, UsageError
from memfit.rnn.everywhere_tf import checkpoint_time_everywhere
from memfit.rnn.internals_tf import functional_of
from memfit.rnn.layer_tf import checkpoint_layer
from memfit.rnn.model_tf import checkpoint_time
from memfit.rnn.stack_tf import find_stacks
from tests.contract.rnn.compare_tf import assert_close

LENGTH, SEGMENT = 5, 2
"""Two segments, and one that is left over."""


def words() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((LENGTH,), dtype="int32"),
            layers.Embedding(20, 4, mask_zero=True),
            layers.LSTM(4, return_sequences=True),
            layers.LayerNormalization(),
            layers.Dense(6, "relu"),
            layers.SimpleRNN(5, return_sequences=True),
            layers.Dense(3, "softmax"),
        ]
    )


def any_length() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((None,), dtype="int32"),
            layers.Embedding(20, 4),
            layers.LSTM(4, return_sequences=True),
            layers.GRU(3, dropout=0.3, recurrent_dropout=0.2),
            layers.Dense(2),
        ]
    )


def simple() -> keras.Model:
    """A stack that takes little to trace."""
    return keras.Sequential(
        [
            layers.Input((None,), dtype="int32"),
            layers.Embedding(20, 4),
            layers.SimpleRNN(4, return_sequences=True),
            layers.SimpleRNN(3),
        ]
    )


def branching() -> keras.Model:
    inputs = layers.Input((LENGTH, 3))
    trunk = layers.LSTM(4, return_sequences=True)(layers.Masking()(inputs))
    trunk = layers.GRU(4, return_sequences=True)(trunk)
    left = layers.SimpleRNN(4)(trunk)
    right = layers.Bidirectional(layers.SimpleRNN(3, return_sequences=True))(trunk)
    right = layers.Bidirectional(layers.GRU(3))(right)
    return keras.Model(inputs, layers.Concatenate()([left, right]))


def nested() -> keras.Model:
    inner = keras.Sequential(
        [layers.Input((LENGTH, 3)), layers.LSTM(4, return_sequences=True), layers.SimpleRNN(3)]
    )
    inputs = layers.Input((LENGTH, 3))
    return keras.Model(inputs, layers.Dense(2)(inner(inputs)))


def per_step() -> keras.Model:
    inputs = layers.Input((4, LENGTH, 3))
    return keras.Model(inputs, layers.TimeDistributed(layers.SimpleRNN(3))(inputs))


def encoder_decoder() -> keras.Model:
    source, target = layers.Input((LENGTH, 3)), layers.Input((LENGTH, 3))
    _, h, c = layers.LSTM(4, return_state=True)(source)
    decoded = layers.LSTM(4, return_sequences=True)(target, initial_state=[h, c])
    return keras.Model([source, target], layers.Dense(2)(layers.Dense(5)(decoded)))


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.LSTM(4, return_sequences=True), layers.SimpleRNN(3)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.second(self.first(inputs, training=training), training=training)


MODELS: dict[str, Callable[[], keras.Model]] = {
    "words": words,
    "any length": any_length,
    "branching": branching,
    "nested": nested,
    "per step": per_step,
    "encoder and decoder": encoder_decoder,
    "subclassed": Subclassed,
}


def data_for(name: str) -> Any:
    random = np.random.RandomState(0)
    values = random.randn(7, LENGTH, 3).astype("float32")
    if name in ("words", "any length"):
        return random.randint(0, 6, (7, LENGTH))
    if name == "branching":
        return values * (random.rand(7, LENGTH, 1) > 0.4)
    if name == "per step":
        return random.randn(7, 4, LENGTH, 3).astype("float32")
    return [values, values[::-1]] if name == "encoder and decoder" else values


@cache
def output_shape(name: str) -> tuple[int, ...]:
    return tuple(MODELS[name]()(data_for(name)).shape)


def trained(
    name: str,
    segment: int | None = None,
    *,
    is_plain: bool = False,
    run_eagerly: bool = False,
    predicts: bool = True,
) -> list[np.ndarray]:
    """Weights and losses after three steps, and predictions."""
    targets = np.random.RandomState(1).rand(*output_shape(name))
    keras.utils.set_random_seed(3)
    model, data = MODELS[name](), data_for(name)
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
    if not is_plain:
        checkpoint_time(model, segment)
    losses = model.fit(data, targets, batch_size=7, epochs=3, verbose=0, shuffle=False).history["loss"]
    found = [*model.get_weights(), np.asarray(losses)]
    return [*found, model.predict(data, verbose=0)] if predicts else found


@cache
def by_plain_keras(name: str) -> list[np.ndarray]:
    """By plain Keras, step by step: tracing and compiling its loops would take longer."""
    return trained(name, is_plain=True, run_eagerly=True)


@pytest.mark.parametrize("name", MODELS)
def test_three_steps_of_fit_give_the_same_weights(name: str) -> None:
    assert_close(by_plain_keras(name), trained(name, SEGMENT), 1e-5)


@pytest.mark.parametrize("name", ["words", "any length", "subclassed"])
def test_a_segment_that_is_chosen_gives_the_same_weights(name: str) -> None:
    """A single one, of stacks with and without a known length, and of single layers."""
    assert_close(by_plain_keras(name)[:-1], trained(name, None, predicts=False), 1e-5)


def test_eager_training_gives_the_same_weights() -> None:
    assert_close(by_plain_keras("words"), trained("words", SEGMENT, run_eagerly=True), 1e-5)


def names_of_stacks(model: keras.Model) -> list[list[str]]:
    return [[type(layer).__name__ for layer in stack.layers] for stack in find_stacks(functional_of(model))]


def test_stacks_that_are_found() -> None:
    assert names_of_stacks(words()) == [
        ["Embedding", "LSTM", "LayerNormalization", "Dense", "SimpleRNN", "Dense"]
    ]
    assert names_of_stacks(any_length()) == [["Embedding", "LSTM", "GRU"]]
    assert names_of_stacks(branching()) == [["Masking", "LSTM", "GRU"]]
    assert names_of_stacks(per_step()) == []


@pytest.mark.parametrize(
    "options", [{"stateful": True, "batch": 2}, {"go_backwards": True}, {"activity_regularizer": "l2"}]
)
def test_layers_that_end_a_stack(options: dict[str, Any]) -> None:
    batch = options.pop("batch", None)
    model = keras.Sequential(
        [
            layers.Input((LENGTH, 3), batch_size=batch),
            layers.LSTM(4, return_sequences=True, **options),
            layers.LSTM(4),
        ]
    )
    assert names_of_stacks(model) == []


def test_a_tensor_that_is_also_an_output_ends_a_stack() -> None:
    inputs = layers.Input((LENGTH, 3))
    middle = layers.LSTM(4, return_sequences=True)(inputs)
    assert names_of_stacks(keras.Model(inputs, [middle, layers.LSTM(3)(middle)])) == []


def test_dropout_in_a_stack_is_the_same_in_the_recomputation() -> None:
    """Were it drawn anew, the gradient would not be that of the loss: compare with finite differences."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            layers.Input((LENGTH, 2), dtype="float64"),
            layers.Dropout(0.5, dtype="float64"),
            layers.LSTM(3, return_sequences=True, dtype="float64"),
            layers.Dropout(0.4, dtype="float64"),
            layers.LSTM(2, dtype="float64"),
        ]
    )
    seeds = [variable for variable in model.non_trainable_variables if "seed" in variable.path]
    start = [seed.numpy() for seed in seeds]
    inputs = tf.random.normal((4, LENGTH, 2), dtype="float64", seed=1)

    @tf.function
    def loss_of(inputs: Any) -> Any:
        return tf.reduce_sum(model(inputs, training=True) ** 2)

    def loss(values: Any) -> Any:
        for seed, value in zip(seeds, start, strict=True):
            seed.assign(value)
        return loss_of(values)

    with checkpoint_time(model, SEGMENT) as handle:
        assert [path.kind for path in handle.paths].count("in a stack") == 2
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = loss(inputs)
        gradient = tape.gradient(found, inputs)
        direction = tf.random.normal(inputs.shape, dtype="float64", seed=2)
        slope = (loss(inputs + 1e-5 * direction) - loss(inputs - 1e-5 * direction)) / 2e-5
    assert float(tf.reduce_sum(gradient * direction)) == pytest.approx(float(slope), rel=1e-6)


def test_stateful_layers_carry_their_state() -> None:
    def outputs(segment: int | None) -> list[np.ndarray]:
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [layers.Input((LENGTH, 3), batch_size=2), layers.LSTM(4, stateful=True, return_sequences=True)]
        )
        if segment:
            checkpoint_time(model, segment)
        data = np.random.RandomState(0).randn(2, LENGTH, 3)
        found = [np.asarray(model(data)), np.asarray(model(data))]
        assert np.abs(found[0] - found[1]).max() > 0.01
        return found

    assert_close(outputs(None), outputs(SEGMENT), 1e-5)


def test_undoing_leaves_the_plain_model(tmp_path: Path) -> None:
    model = branching()
    config, weights = json.dumps(model.get_config(), default=str), model.get_weights()
    attributes = {id(layer): set(vars(layer)) for layer in model._flatten_layers()}
    handle = checkpoint_time(model, SEGMENT)
    assert json.dumps(model.get_config(), default=str) == config
    model.save(tmp_path / "model.keras")
    handle.undo()
    handle.undo()
    assert {id(layer): set(vars(layer)) for layer in model._flatten_layers()} == attributes
    assert all(layer.supports_jit for layer in model._flatten_layers())
    loaded = keras.models.load_model(tmp_path / "model.keras")
    data = data_for("branching")
    assert_close([model.predict(data, verbose=0)], [loaded.predict(data, verbose=0)], 1e-6)
    assert_close(weights, model.get_weights(), 0.0)


def test_the_registry_of_gradients_does_not_grow() -> None:
    from tensorflow.python.framework import ops

    def build_train_and_drop() -> None:
        model = simple()
        checkpoint_time(model, SEGMENT)

        @tf.function
        def step(data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(data, training=True))
            return tape.gradient(loss, model.trainable_variables)

        step(tf.constant(data_for("any length")))
        model(data_for("any length"))

    build_train_and_drop()
    gc.collect()
    before = set(ops.gradient_registry.list())
    build_train_and_drop()
    gc.collect()
    assert set(ops.gradient_registry.list()) - before == set()


def test_gradients_through_a_function_traced_before_its_gradient_was_asked_for() -> None:
    model = simple()
    checkpoint_time(model, SEGMENT)
    call = tf.function(lambda data: model(data))
    data = tf.constant(data_for("any length"))
    call(data)
    gc.collect()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(call(data))
    assert all(gradient is not None for gradient in tape.gradient(loss, model.trainable_variables))


def test_xla_runs_plain_keras_and_says_so() -> None:
    layer = layers.LSTM(4)
    data = tf.random.normal((2, LENGTH, 3))
    expected = layer(data)
    checkpoint_layer(layer, SEGMENT)
    with pytest.warns(MemfitWarning, match="jit_compile=False"):
        found = tf.function(layer, jit_compile=True)(data)
    assert_close([np.asarray(expected)], [np.asarray(found)], 1e-5)


def test_a_model_without_time() -> None:
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2)])
    with pytest.raises(UsageError, match=r"no keras.layers.RNN.*Nothing was changed"):
        checkpoint_time(model)


def test_what_is_no_model() -> None:
    with pytest.raises(UsageError, match="takes a Keras model or layer"):
        checkpoint_time("model.keras")


@pytest.mark.parametrize("segment", [0, -1, "x"])
def test_a_segment_that_is_none_changes_nothing(segment: Any) -> None:
    model = any_length()
    with pytest.raises(UsageError, match="segment="):
        checkpoint_time(model, segment)
    assert "call" not in vars(functional_of(model))


def test_twice_on_one_layer() -> None:
    layer = layers.LSTM(4)
    checkpoint_layer(layer)
    with pytest.raises(SetupError, match="already"):
        checkpoint_layer(layer)


def test_a_layer_with_a_loop_of_its_own() -> None:
    class Own(layers.LSTM):
        def inner_loop(self, *args: Any, **options: Any) -> Any:
            return super().inner_loop(*args, **options)

    with pytest.raises(SetupError, match=r"Own.*inner_loop.*Keras 3"):
        checkpoint_layer(Own(4))


def test_a_cell_that_is_not_a_layer_stays_plain() -> None:
    class Sum:
        state_size = 3

        def call(self, inputs: Any, states: Any) -> Any:
            return inputs + states[0], [inputs + states[0]]

        __call__ = call

    layer = layers.RNN(Sum())
    handle = checkpoint_layer(layer)
    assert handle.paths[0].kind == "plain"
    assert "not a keras.layers.Layer" in handle.paths[0].reason
    assert "inner_loop" not in vars(layer)


def test_everywhere_reaches_layers_made_before_and_after() -> None:
    data = tf.random.normal((3, LENGTH, 3), seed=1)

    def gradients(data: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(layer(data) ** 2) for layer in made])
        return tape.gradient(loss, [each for layer in made for each in layer.trainable_variables])

    def numbers(function: Callable[[tf.Tensor], Any]) -> list[np.ndarray]:
        return [np.asarray(each) for each in function(data)]

    made = [layers.LSTM(4), layers.GRU(4), layers.SimpleRNN(4), layers.Bidirectional(layers.SimpleRNN(3))]
    for layer in made:
        layer.build(data.shape)
    plain = numbers(gradients)
    with checkpoint_time_everywhere(SEGMENT), pytest.raises(SetupError, match="already"):
        assert_close(plain, numbers(tf.function(gradients)), 1e-5)
        later = layers.LSTM(4)
        later(data)
        assert any(
            b"IdentityN" in str(n).encode()
            for n in tf.function(later).get_concrete_function(data).graph.get_operations()
        )
        checkpoint_time_everywhere(SEGMENT)
    assert_close(plain, numbers(gradients), 0.0)


def test_everywhere_lets_layers_go() -> None:
    import weakref

    with checkpoint_time_everywhere(SEGMENT):
        layer = layers.LSTM(4)
        layer(tf.zeros((2, LENGTH, 3)))
        reference = weakref.ref(layer)
        del layer
        gc.collect()
        assert reference() is None


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance", "compiled", "segment"),
    [
        (layers.SimpleRNN, "float64", 1e-10, False, SEGMENT),
        (layers.LSTM, "float64", 1e-10, False, LENGTH),
        (layers.GRU, "float64", 1e-10, False, LENGTH),
        (layers.LSTM, "float32", 1e-5, True, LENGTH),
    ],
)
def test_second_order_gradients_are_those_of_keras(
    kind: type[keras.layers.RNN], dtype: str, tolerance: float, compiled: bool, segment: int
) -> None:
    """TensorFlow's fused `BlockLSTMV2` failed this in float32: its gradient leaves out some outputs.

    The loop over segments is the same for all layers and dear to trace, so the cheapest layer runs it, and
    the others run a single segment.
    """
    keras.utils.set_random_seed(0)
    layer = kind(3, dtype=dtype)
    data = tf.random.normal((2, LENGTH, 2), dtype=dtype, seed=1)
    layer.build(data.shape)

    def second(data: tf.Tensor) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(data)
            with tf.GradientTape() as inner:
                inner.watch(data)
                loss = tf.reduce_sum(layer(data) ** 2)
            slope = tf.reduce_sum(inner.gradient(loss, data) ** 2)
        return outer.gradient(slope, [data, *layer.trainable_variables])

    def numbers(function: Callable[[tf.Tensor], Any]) -> list[np.ndarray]:
        return [np.asarray(each) for each in function(data)]

    plain = numbers(second)
    with checkpoint_layer(layer, segment, num_lanes=1, compiled=compiled):
        assert_close(plain, numbers(tf.function(second)), tolerance)
