"""The closed forms against plain Keras over everything that Keras allows.

What is traced costs, so each test takes the least that shows its point: the layers differ in what they do in
a step of a slice (op by op or compiled), and share all that cuts time into segments and a batch into lanes.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from memfit.rnn import borders_tf, segments
from memfit.rnn.layer_tf import checkpoint_layer
from tests.contract.rnn.compare_tf import Way, assert_same, holes, numbers_of
from tests.contract.rnn.design import Case, every_pair, name_of

LAYERS = {
    "LSTM": keras.layers.LSTM,
    "GRU": keras.layers.GRU,
    "GRU reset before": lambda units, **options: keras.layers.GRU(units, reset_after=False, **options),
    "SimpleRNN": keras.layers.SimpleRNN,
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def every_mask(length: int) -> np.ndarray:
    """An example of each kind; no example knows of the others, so one call tries them all."""
    steps = np.arange(length)
    return np.stack(
        [
            steps < 1,  # Trailing: the later segments are masked whole.
            steps >= length - 1,  # Leading: nothing is seen before the last.
            steps % 3 == 1,  # Holes.
            np.zeros(length, bool),
            np.ones(length, bool),
        ]
    )


@every_layer
@pytest.mark.parametrize(("zero_output", "compiled"), [(False, True), (True, False)])
def test_masks_in_float64(name: str, zero_output: bool, compiled: bool) -> None:
    """Of every kind, with states, in inference, where rates of dropout mean nothing; and all of it undone.

    Compiled in two segments of one length and one lane, as each shape is compiled for itself; op by op with
    a segment left over, in lanes of two and of three.
    """
    length = 4 if compiled else 5
    make = lambda: LAYERS[name](  # noqa: E731
        4,
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=zero_output,
        dropout=0.3,
        recurrent_dropout=0.4,
        dtype="float64",
    )
    assert_same(
        make,
        Way(2, compiled),
        length=length,
        batch=5,
        num_lanes=1 if compiled else 2,
        mask=every_mask(length),
        with_states=True,
        training=False,
        tolerance=1e-12,
        is_undone=True,
    )


@pytest.mark.parametrize(
    ("length", "ways"),
    [
        (1, [Way(1, True), Way(5, False)]),
        (3, [Way(1, False)]),
        (5, [Way(2, True), Way(5, True)]),
        (40, [Way(None, True)]),
    ],
)
def test_lengths_and_segments(length: int, ways: list[Way]) -> None:
    """Cutting time into segments is the same for all layers."""
    make = lambda: LAYERS["SimpleRNN"](4, return_sequences=True, return_state=True)  # noqa: E731
    assert assert_same(make, *ways, length=length) == "closed form"


@pytest.mark.parametrize(("name", "compiled"), [("LSTM", False), ("SimpleRNN", True)])
def test_all_tapes_are_kept_in_pieces(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders_tf, "KEPT_SEGMENT", 2)
    make = lambda: LAYERS[name](4, return_sequences=True, return_state=True)  # noqa: E731
    assert assert_same(make, Way(5, compiled)) == "closed form"


@pytest.mark.parametrize(
    ("name", "return_sequences", "compiled"), [("SimpleRNN", False, True), ("LSTM", True, False)]
)
def test_two_levels(
    name: str, return_sequences: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "TWO_LEVELS_FROM", 11)
    monkeypatch.setattr(segments, "two_level", lambda *_: segments.Schedule(lengths=(5, 5, 1), inner=2))
    make = lambda: LAYERS[name](4, return_sequences=return_sequences, return_state=True)  # noqa: E731
    assert_same(make, Way(None, compiled), length=11, with_states=True, num_lanes=2)


@pytest.mark.parametrize(
    ("name", "compiled_policy", "policy"),
    [
        ("LSTM", "mixed_bfloat16", "mixed_float16"),
        ("GRU", "mixed_float16", "mixed_bfloat16"),
        ("GRU reset before", "mixed_bfloat16", "mixed_float16"),
        ("SimpleRNN", "mixed_float16", "mixed_bfloat16"),
    ],
)
def test_mixed_precision(name: str, compiled_policy: str, policy: str) -> None:
    """Every layer with both policies, compiled with one and op by op with the other."""
    for dtype, compiled in ((compiled_policy, True), (policy, False)):
        make = lambda dtype=dtype: LAYERS[name](  # noqa: E731
            4, return_sequences=True, return_state=True, dtype=dtype
        )
        tolerance = 0.05 if dtype == "mixed_bfloat16" else 0.01
        assert_same(make, Way(4, compiled), length=12, batch=6, tolerance=tolerance)


@every_layer
@pytest.mark.parametrize("compiled", [False, True], ids=["op by op", "compiled"])
def test_a_batch_of_none(name: str, compiled: bool) -> None:
    """Plain Keras raises for an LSTM here, so there is nothing to compare with."""
    layer = LAYERS[name](4, return_sequences=True)
    layer.build((None, 4, 3))
    with checkpoint_layer(layer, 2, num_lanes=1, compiled=compiled):
        numbers = numbers_of(layer, tf.zeros((0, 4, 3)))
    outputs, *gradients = numbers[: 2 + len(layer.trainable_variables)]
    assert outputs.shape == (0, 4, 4)
    assert gradients[0].shape == (0, 4, 3)
    assert all(not gradient.any() for gradient in gradients)


YES_AND_NO = (False, True)
CASES = every_pair(
    {
        "name": tuple(LAYERS),
        "noise": ("", "dropout", "recurrent_dropout", "dropout recurrent_dropout"),
        "masking": ("", "mask", "zeros"),
        "segment": (2, 5, None),
        "batch": (4, 1),  # In two lanes, one of them empty.
        "num_lanes": (1, 2),
        "return_sequences": YES_AND_NO,
        "return_state": YES_AND_NO,
        "go_backwards": YES_AND_NO,
        "use_bias": YES_AND_NO,
        "unroll": YES_AND_NO,
        "with_states": YES_AND_NO,
        "is_traced": YES_AND_NO,
        "compiled": YES_AND_NO,
    }
)


@pytest.mark.parametrize("case", CASES, ids=map(name_of, CASES))
def test_all_that_keras_allows(case: Case) -> None:
    """In training; every value of every option meets every value of every other one."""
    passed = ("return_sequences", "return_state", "go_backwards", "use_bias", "unroll")
    options: dict[str, Any] = {name: case[name] for name in passed}
    options |= dict.fromkeys(case["noise"].split(), 0.35)
    options["zero_output_for_mask"] = case["masking"] == "zeros"
    assert_same(
        lambda: LAYERS[case["name"]](4, **options),
        Way(case["segment"], case["compiled"]),
        mask=holes(case["batch"], 5) if case["masking"] else None,
        **{name: case[name] for name in ("batch", "with_states", "is_traced", "num_lanes")},
    )


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "linear", None])
def test_activations_of_simple(activation: str | None) -> None:
    make = lambda: keras.layers.SimpleRNN(4, activation=activation, return_sequences=True)  # noqa: E731
    assert assert_same(make, Way(5)) == "closed form"


def test_keras_cells_in_a_plain_rnn_in_three_lanes() -> None:
    make = lambda: keras.layers.RNN(keras.layers.LSTMCell(4), return_sequences=True)  # noqa: E731
    assert assert_same(make, Way(4), mask=every_mask(5), batch=5, num_lanes=3) == "closed form"
