"""The general path against plain Keras: cells that there is no closed form for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from memfit.errors import UsageError
from memfit.rnn.layer_tf import checkpoint_layer
from tests.contract.rnn.compare_tf import BATCH, Way, assert_same

HOLES = np.random.RandomState(0).rand(BATCH, 11) > 0.5


class NoisyCell(keras.layers.Layer):
    """Draws anew at every step, changes a variable of its own, and its output is not its state."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = units
        self.output_size = 2 * units
        self.dense = layers.Dense(units)
        self.drop = layers.Dropout(0.4, seed=3)

    def build(self, input_shape: Any) -> None:
        self.dense.build((None, input_shape[-1] + self.state_size))
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.built = True

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        h = keras.ops.tanh(self.dense(keras.ops.concatenate([inputs, states[0]], -1)))
        h = self.drop(h, training=training)
        self.calls.assign(self.calls + 1)
        return keras.ops.concatenate([h, 2 * h], -1), [h]


def stacked(**options: Any) -> keras.layers.RNN:
    cells = [layers.LSTMCell(4, dropout=0.3, recurrent_dropout=0.2), layers.GRUCell(3, dropout=0.5)]
    return layers.RNN(layers.StackedRNNCells(cells), **options)


CELLS: dict[str, Callable[..., keras.layers.RNN]] = {
    "relu": lambda **options: layers.LSTM(4, activation="relu", **options),
    "hard sigmoid": lambda **options: layers.GRU(4, recurrent_activation="hard_sigmoid", **options),
    "stacked": stacked,
    "noisy": lambda **options: layers.RNN(NoisyCell(4), **options),
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("options", "segments"),
    [
        ({}, [4, 50, None]),
        ({"masks": [HOLES], "with_states": True, "is_undone": True}, [4]),
        ({"masks": [HOLES], "zero_output": True, "go_backwards": True}, [4]),
        ({"is_traced": False, "training": False}, [4]),
    ],
    ids=["plain", "mask and states", "zeros and backwards", "eager inference"],
)
def test_any_cell(name: str, options: dict[str, Any], segments: list[int | None]) -> None:
    given = dict(options)
    zero_output, go_backwards = given.pop("zero_output", False), given.pop("go_backwards", False)
    make = lambda: CELLS[name](  # noqa: E731
        return_sequences=True, return_state=True, zero_output_for_mask=zero_output, go_backwards=go_backwards
    )
    assert assert_same(make, *map(Way, segments), **given) == "general"


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutional(rank: int) -> None:
    layer = {1: layers.ConvLSTM1D, 2: layers.ConvLSTM2D, 3: layers.ConvLSTM3D}[rank]
    make = lambda: layer(2, 3, return_sequences=True, dropout=0.2, recurrent_dropout=0.3)  # noqa: E731
    kind = assert_same(make, Way(3), length=7, shape=(*[5] * rank, 2), masks=[HOLES[:, :7]])
    assert kind == "general"


def test_float64() -> None:
    make = lambda: layers.LSTM(4, activation="relu", return_sequences=True, dtype="float64")  # noqa: E731
    assert_same(make, Way(4), masks=[HOLES], tolerance=1e-12)


class ForgetfulCell(keras.layers.Layer):
    """Draws numbers that nobody can draw again."""

    state_size = output_size = 3

    def call(self, inputs: Any, states: Any) -> Any:
        h = inputs + states[0] * tf.random.uniform(tf.shape(states[0]))
        return h, [h]


def test_a_cell_whose_numbers_cannot_be_drawn_again_is_refused() -> None:
    layer = layers.RNN(ForgetfulCell())
    with checkpoint_layer(layer), pytest.raises(UsageError, match=r"RandomUniform.*SeedGenerator"):
        layer(tf.zeros((2, 7, 3)))
