"""What every strategy must keep: the training is the same, memory is saved, and nothing is left behind."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import memfit
from memfit.records import Outcome
from memfit.strategies import ALL
from tests.contract import steps

PAIRS = [(strategy.name, model) for strategy in ALL for model in steps.MODELS_FOR[strategy.name]]
EXACT = [(name, model) for name, model in PAIRS if name in {each.name for each in ALL if each.is_exact}]
SETTINGS: dict[str, list[int | None]] = {
    "micro_batch": [None, 7],
    "time_checkpoint": [None, 7],
    "depth_checkpoint": [None, 60],
    "stream_inputs": [None, 2**18],
}
# Those that save memory of the device in a step; streaming saves that of the host (tests/contract/streaming).
ON_DEVICE = [pair for pair in PAIRS if pair[0] != "stream_inputs"]
# The share of plain bytes to stay below. Micro-batches of 4 of these tiny models are near the 256 bytes to
# which the allocator rounds every tensor, so a quarter of the examples is more than a quarter of the bytes.
MOST = {"micro_batch": 0.7, "time_checkpoint": 0.5, "depth_checkpoint": 0.5, "truncate": 0.6}


@cache
def activation_bytes(model: str, strategy: str | None) -> Any:
    """In a fresh process, whose allocator has no holes yet."""
    measured = memfit.measure(steps.activation_bytes, model, strategy)
    assert measured.outcome is Outcome.OK, measured.output
    return measured.value


@pytest.mark.parametrize(("strategy", "model"), EXACT)
def test_three_steps_give_the_same_weights_and_losses(strategy: str, model: str) -> None:
    plain, *others = steps.training(model, strategy, SETTINGS[strategy])
    plain_losses, plain_weights = plain
    for losses, weights in others:
        np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
        for one, other in zip(weights, plain_weights, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert plain_losses[0] != plain_losses[-1]


@pytest.mark.parametrize(("strategy", "model"), ON_DEVICE)
def test_it_saves_memory_and_about_as_much_as_it_says(strategy: str, model: str) -> None:
    plain, _ = activation_bytes(model, None)
    found, predicted = activation_bytes(model, strategy)
    assert found < MOST[strategy] * plain
    # It speaks of its parts only, not of the rest of the step or what passes between them.
    assert 0.3 * found < predicted < 1.2 * found


@pytest.mark.parametrize(("strategy", "model"), PAIRS)
def test_it_goes_without_a_trace(strategy: str, model: str) -> None:
    assert steps.is_as_before(model, strategy)
