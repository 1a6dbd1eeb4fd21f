"""The general path against plain Keras: cells that there is no closed form for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
from keras import layers

from memfit.errors import UsageError
from memfit.rnn.layer_tf import checkpoint_layer
from tests.contract.rnn.compare_tf import Way, assert_same, holes


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


@pytest.mark.parametrize(
    ("name", "segment", "options"),
    [
        *((name, 2, {"masking": "mask", "with_states": True, "is_undone": True}) for name in CELLS),
        ("relu", 50, {}),
        ("stacked", None, {}),
        ("hard sigmoid", 2, {"masking": "zeros", "go_backwards": True}),
        ("noisy", 2, {"masking": "zeros", "go_backwards": True}),
        ("stacked", 2, {"is_eager_inference": True}),
        ("noisy", 2, {"is_eager_inference": True}),
    ],
)
def test_any_cell(name: str, segment: int | None, options: dict[str, Any]) -> None:
    """Every cell recomputed, with the most that it can be asked for.

    What the general path does for all cells alike is tried with two of them: a single segment; outputs of
    zero and time that goes backwards; eager inference, with the two that draw random numbers in training.
    """
    given = {"masking": "", "go_backwards": False, "is_eager_inference": False, **options}
    masking, go_backwards = given.pop("masking"), given.pop("go_backwards")
    is_training = not given.pop("is_eager_inference")
    make = lambda: CELLS[name](  # noqa: E731
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=masking == "zeros",
        go_backwards=go_backwards,
    )
    given |= {"training": is_training, "is_traced": is_training, "mask": holes(4, 5) if masking else None}
    assert assert_same(make, Way(segment), **given) == "general"


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutional(rank: int) -> None:
    layer = {1: layers.ConvLSTM1D, 2: layers.ConvLSTM2D, 3: layers.ConvLSTM3D}[rank]
    make = lambda: layer(2, 3, return_sequences=True, dropout=0.2, recurrent_dropout=0.3)  # noqa: E731
    assert assert_same(make, Way(2), shape=(*[5] * rank, 2), mask=holes(4, 5)) == "general"


def test_float64() -> None:
    make = lambda: layers.LSTM(4, activation="relu", return_sequences=True, dtype="float64")  # noqa: E731
    assert_same(make, Way(2), mask=holes(4, 5), tolerance=1e-12)


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
