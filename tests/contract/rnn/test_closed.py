"""The closed forms against plain Keras over everything that Keras allows."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memfit.rnn import segments
from memfit.rnn.layer_tf import checkpoint_layer
from tests.contract.rnn.compare_tf import BATCH, Way, assert_same, numbers_of

LAYERS = {
    "LSTM": keras.layers.LSTM,
    "GRU": keras.layers.GRU,
    "GRU reset before": lambda units, **options: keras.layers.GRU(units, reset_after=False, **options),
    "SimpleRNN": keras.layers.SimpleRNN,
}
every_layer = pytest.mark.parametrize("name", LAYERS)
BOTH = (Way(4, compiled=False), Way(4, compiled=True))
"""With lengths of whole segments: one that is left over is compiled for itself, which takes a second."""


def masks(length: int, batch: int = BATCH) -> dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    steps = np.arange(length)
    lengths = random.randint(0, length + 1, (batch, 1))
    return {
        "trailing": steps < lengths,
        "leading": steps >= lengths,
        "holes": random.rand(batch, length) > 0.5,
        "all masked": np.zeros((batch, length), bool),
        "all real": np.ones((batch, length), bool),
    }


@every_layer
@pytest.mark.parametrize(("zero_output", "compiled"), [(False, True), (True, False)])
def test_masks(name: str, zero_output: bool, compiled: bool) -> None:
    make = lambda: LAYERS[name](  # noqa: E731
        4, return_sequences=True, return_state=True, zero_output_for_mask=zero_output
    )
    kinds = list(masks(11, batch=5).values())  # Lanes of three and of two.
    assert_same(make, Way(4, compiled), batch=5, masks=kinds, with_states=True, is_undone=True)


@pytest.mark.parametrize("name", ["LSTM", "SimpleRNN"])  # Cutting time into segments is the same for all.
@pytest.mark.parametrize(
    ("length", "ways"),
    [
        (1, [Way(1, True), Way(5, False)]),
        (7, [Way(1, False)]),
        (11, [Way(4, False), Way(11, True)]),
        (70, [Way(70, False), Way(70, True)]),
        (40, [Way(None, True)]),
    ],
)
def test_lengths_and_segments(name: str, length: int, ways: list[Way]) -> None:
    make = lambda: LAYERS[name](4, return_sequences=True, return_state=True)  # noqa: E731
    assert assert_same(make, *ways, length=length) == "closed form"


@pytest.mark.parametrize("name", ["LSTM", "SimpleRNN"])
@pytest.mark.parametrize(("return_sequences", "compiled"), [(False, True), (True, False)])
def test_two_levels(
    name: str, return_sequences: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "TWO_LEVELS_FROM", 40)
    monkeypatch.setattr(segments, "two_level", lambda *_: segments.Schedule(lengths=(24, 24, 3), inner=5))
    make = lambda: LAYERS[name](4, return_sequences=return_sequences, return_state=True)  # noqa: E731
    assert_same(make, Way(None, compiled), length=51, with_states=True)


@every_layer
def test_float64(name: str) -> None:
    make = lambda: LAYERS[name](4, return_sequences=True, return_state=True, dtype="float64")  # noqa: E731
    assert_same(make, *BOTH, length=8, masks=[masks(8)["holes"]], with_states=True, tolerance=1e-12)


@every_layer
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(name: str, policy: str) -> None:
    make = lambda: LAYERS[name](4, return_sequences=True, return_state=True, dtype=policy)  # noqa: E731
    assert_same(make, *BOTH, length=12, tolerance=0.05 if policy == "mixed_bfloat16" else 0.01)


@every_layer
def test_a_batch_of_one(name: str) -> None:
    assert_same(lambda: LAYERS[name](4, return_sequences=True), Way(4), batch=1)


@every_layer
@pytest.mark.parametrize("compiled", [False, True], ids=["op by op", "compiled"])
def test_a_batch_of_none(name: str, compiled: bool) -> None:
    """Plain Keras raises for an LSTM here, so there is nothing to compare with."""
    layer = LAYERS[name](4, return_sequences=True)
    layer.build((None, 11, 3))
    with checkpoint_layer(layer, 4, num_lanes=2, compiled=compiled):
        (numbers,) = numbers_of(layer, tf.zeros((0, 11, 3)))
    outputs, *gradients = numbers[: 2 + len(layer.trainable_variables)]
    assert outputs.shape == (0, 11, 4)
    assert gradients[0].shape == (0, 11, 3)
    assert all(not gradient.any() for gradient in gradients)


@every_layer
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    options=st.fixed_dictionaries(
        {
            "return_sequences": st.booleans(),
            "return_state": st.booleans(),
            "go_backwards": st.booleans(),
            "use_bias": st.booleans(),
            "unroll": st.booleans(),
            "dropout": st.sampled_from([0.0, 0.3]),
            "recurrent_dropout": st.sampled_from([0.0, 0.4]),
        }
    ),
    kind=st.sampled_from([None, "trailing", "leading", "holes"]),
    with_states=st.booleans(),
    segment=st.sampled_from([4, 5, 10, None]),
    training=st.booleans(),
    is_traced=st.booleans(),
    num_lanes=st.sampled_from([1, 2, 3]),
    compiled=st.booleans(),
)
def test_all_that_keras_allows(
    name: str,
    options: dict[str, Any],
    kind: str | None,
    with_states: bool,
    segment: int | None,
    training: bool,
    is_traced: bool,
    num_lanes: int,
    compiled: bool,
) -> None:
    assert_same(
        lambda: LAYERS[name](4, **options),
        Way(segment, compiled),
        length=10,
        masks=[None if kind is None else masks(10)[kind]],
        with_states=with_states,
        training=training,
        is_traced=is_traced,
        num_lanes=num_lanes,
    )


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "linear", None])
def test_activations_of_simple(activation: str | None) -> None:
    make = lambda: keras.layers.SimpleRNN(4, activation=activation, return_sequences=True)  # noqa: E731
    assert assert_same(make, Way(4)) == "closed form"


def test_keras_cells_in_a_plain_rnn() -> None:
    make = lambda: keras.layers.RNN(keras.layers.LSTMCell(4), return_sequences=True)  # noqa: E731
    assert assert_same(make, Way(4), masks=[masks(11)["holes"]]) == "closed form"
