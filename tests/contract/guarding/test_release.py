"""What is released is gone, and what is alive keeps its gradients."""

import gc
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.config import flags

import memfit
from benchmarks import heap
from memfit.errors import UsageError
from memfit.guarding.internals_tf import PUBLISHING_VARIABLE
from memfit.measuring import device_tf
from memfit.rnn import internals_tf

X = np.ones((8, 6, 4), "float32")
Y = np.ones((8, 1), "float32")
NUM_READYINGS = 2000


@tf.custom_gradient
def doubled(x: Any) -> Any:
    return x * x, lambda upstream: upstream * 2 * x


def make_model() -> Any:
    layers = [keras.layers.LSTM(4), keras.layers.Dense(64, "swish"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6, 4)), *layers])
    model.compile("adam", "mse")
    return model


def trained() -> Any:
    model = make_model()
    model.fit(X, Y, verbose=0)
    return model


def held_bytes() -> int:
    return int(tf.config.experimental.get_memory_info("CPU:0")["current"])


def test_plain_collection_does_not_free_a_trained_model_and_release_does() -> None:
    trained()
    memfit.release()
    before, num_gradients = held_bytes(), internals_tf.num_gradients()
    trained()
    keras.utils.clear_session()
    gc.collect()
    kept = held_bytes() - before
    assert kept > 0, "Keras or TensorFlow has mended this: memfit.release is not needed any more"
    assert internals_tf.num_gradients() > num_gradients
    assert memfit.release() >= kept
    assert held_bytes() <= before
    assert internals_tf.num_gradients() == num_gradients


def test_functions_that_are_alive_keep_their_gradients() -> None:
    @tf.function
    def square(x: Any) -> Any:
        return doubled(x)

    @tf.function
    def looped(x: Any) -> Any:
        for _ in tf.range(3):
            x = doubled(x)
        return x

    x = tf.constant(3.0)
    square.get_concrete_function(tf.TensorSpec((), tf.float32))
    looped.get_concrete_function(tf.TensorSpec((), tf.float32))
    memfit.release()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = square(x), looped(x)
    assert tape.gradient(y, x) == 6
    assert tape.gradient(z, x) == 8 * 3.0**7


def test_a_released_model_trains_on_as_if_nothing_had_been() -> None:
    results = []
    for is_released in (False, True):
        keras.utils.set_random_seed(0)
        model = trained()
        if is_released:
            memfit.release(model)
            assert model.train_function is None
        model.fit(X, Y, verbose=0)
        results.append(model.evaluate(X, Y, verbose=0))
    assert results[0] == results[1]


def test_a_second_release_finds_nothing_to_tie() -> None:
    model = trained()
    memfit.release()
    assert internals_tf.tie_gradients() == 0
    del model


@pytest.fixture
def publishing() -> Iterator[Any]:
    """TensorFlow's flag, up as it is in a fresh process."""
    flag = flags.config().publish_function_graphs
    was_up = flag.value()
    flag.reset(True)
    yield flag
    flag.reset(was_up)


def test_graphs_are_published_to_nobody_after_a_release(
    publishing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PUBLISHING_VARIABLE, raising=False)
    memfit.release()
    assert not publishing.value()


def test_who_asks_for_published_graphs_gets_them(publishing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PUBLISHING_VARIABLE, "true")
    memfit.release()
    assert publishing.value()


def bytes_left_by_each_readying() -> float:
    """What `malloc` gives out for good each time that a function is made ready to run again."""
    x = tf.ones([4])
    double = tf.function(lambda values: values * 2)

    def make_ready(num_times: int) -> None:
        for _ in range(num_times):
            double(x)
            device_tf.forget_kernels()

    memfit.release()
    make_ready(NUM_READYINGS // 4)
    before = heap.held_bytes()
    make_ready(NUM_READYINGS)
    return (heap.held_bytes() - before) / NUM_READYINGS


def test_functions_that_are_made_ready_again_after_a_release_leave_nothing() -> None:
    publisher_bytes = 32  # The least that `malloc` gives out: what each left before.
    assert memfit.measure(bytes_left_by_each_readying).value < publisher_bytes / 2


def test_only_models_are_taken() -> None:
    with pytest.raises(UsageError, match="Received: 3"):
        memfit.release(3)
