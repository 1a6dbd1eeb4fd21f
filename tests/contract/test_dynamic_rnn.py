"""`memfit.dynamic_rnn` against `tf.compat.v1.nn.dynamic_rnn`."""

from typing import Any

import memfit
from memfit.records import Outcome
from tests.contract import dynamic_cells

LEGACY = {"TF_USE_LEGACY_KERAS": "1", "PYTHONWARNINGS": "ignore"}
REFUSALS = (
    "draws random numbers with RandomUniform",
    "neither a Keras layer nor a tf.Module",
    "has a state_size",
    "segment=0",
    "one whole number for each example",
    "one whole number for each example",
    "enable_control_flow_v2()",
)


def test_legacy_cells_in_a_process_of_their_own() -> None:
    """One process, since TensorFlow takes seconds to load; a comparison that fails there fails this test."""
    measured = memfit.measure(dynamic_cells.everything, environment=LEGACY)
    assert measured.outcome is Outcome.OK, measured.output
    found: dict[str, Any] = measured.value
    check_same_results_and_gradients(found["compare_legacy_cells"])
    check_traced_once_and_stopped_at_the_longest_sequence(found["traces_and_steps"])
    check_refused(found["refusals"])
    assert found["compare_in_a_session"]


def check_same_results_and_gradients(compared: list[str]) -> None:
    assert len(compared) == 9
    assert len(set(compared)) == 6


def check_traced_once_and_stopped_at_the_longest_sequence(found: list[int]) -> None:
    num_traces, num_steps, *results = found
    assert num_traces < 10
    # Not 10 * 500. Keras itself calls a cell once or twice to see its output.
    assert num_steps <= 10 * (5 + 2)
    assert results == [3, 5, 0, 500]


def check_refused(said: list[str]) -> None:
    for sentence, words in zip(said, REFUSALS, strict=True):
        assert words in sentence
