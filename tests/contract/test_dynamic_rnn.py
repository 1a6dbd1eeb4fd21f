"""`memfit.dynamic_rnn` against `tf.compat.v1.nn.dynamic_rnn`."""

from collections.abc import Callable
from typing import Any

import memfit
from memfit.records import Outcome
from tests.contract import dynamic_cells

LEGACY = {"TF_USE_LEGACY_KERAS": "1", "PYTHONWARNINGS": "ignore"}


def run(function: Callable[[], Any]) -> Any:
    measured = memfit.measure(function, environment=LEGACY)
    assert measured.outcome is Outcome.OK, measured.output
    return measured.value


def test_legacy_cells_give_the_same_results_and_gradients() -> None:
    compared = run(dynamic_cells.compare_legacy_cells)
    assert len(compared) == 9
    assert len(set(compared)) == 6


def test_a_graph_of_tensorflow_1() -> None:
    assert run(dynamic_cells.compare_in_a_session)


def test_what_cannot_be_right_is_refused() -> None:
    expected = [
        "draws random numbers with RandomUniform",
        "neither a Keras layer nor a tf.Module",
        "has a state_size",
        "segment=0",
        "one whole number for each example",
        "one whole number for each example",
        "enable_control_flow_v2()",
    ]
    said = run(dynamic_cells.refusals)
    assert len(said) == len(expected)
    for sentence, words in zip(said, expected, strict=True):
        assert words in sentence


def test_eager_calls_trace_once_and_stop_at_the_longest_sequence() -> None:
    num_traces, num_steps, *results = run(dynamic_cells.traces_and_steps)
    assert num_traces < 10
    assert num_steps <= 10 * (
        5 + 2
    )  # Not 10 * 500. Keras itself calls a cell once or twice to see its output.
    assert results == [3, 5, 0, 500]
