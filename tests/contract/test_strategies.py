"""What every strategy must keep: the training is the same, memory is saved, and nothing is left behind."""

from functools import cache
from itertools import groupby

import numpy as np
import pytest

import memfit
from memfit.records import Outcome
from memfit.rnn import lanes, segments
from memfit.strategies import ALL
from tests.contract import steps

PAIRS = [(strategy.name, model) for strategy in ALL for model in steps.MODELS_FOR[strategy.name]]
PAIRS.sort(key=lambda pair: pair[1])
# A loop over micro-batches knows no layers: two models show that the training is the same, and all of them
# that memory is saved.
SAME = [pair for pair in PAIRS if pair not in {("micro_batch", "bidirectional"), ("micro_batch", "cells")}]
IS_EXACT = {strategy.name: strategy.is_exact for strategy in ALL}
SETTINGS: dict[str, list[int | None]] = {
    "micro_batch": [None, 7],
    "time_checkpoint": [None, 7],
    "depth_checkpoint": [None, 60],
    "stream_inputs": [None, 2**18],
}
# Those that save memory of the device in a step; streaming saves that of the host (tests/contract/streaming).
ON_DEVICE = {
    model: [name for name, _ in pairs if name != "stream_inputs"]
    for model, pairs in groupby(PAIRS, key=lambda pair: pair[1])
}
# The share of plain bytes to stay below. Micro-batches of 4 of these tiny models are near the 256 bytes to
# which the allocator rounds every tensor, so a quarter of the examples is more than a quarter of the bytes.
MOST = {"micro_batch": 0.7, "time_checkpoint": 0.5, "depth_checkpoint": 0.5, "truncate": 0.6}


@pytest.fixture
def short_segments_and_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that is chosen is short, as the sequences are; lanes, one a core, would be traced apart."""
    monkeypatch.setattr(segments, "UNHURRIED", 7)
    monkeypatch.setattr(lanes, "LANES_OF_AN_UNKNOWN_BATCH", 1)


@cache
def plain(model: str) -> steps.Trained:
    return steps.train(model, None)


@pytest.mark.usefixtures("short_segments_and_one_lane")
@pytest.mark.parametrize(("strategy", "model"), SAME)
def test_three_steps_give_the_same_weights_and_losses_and_leave_no_trace(strategy: str, model: str) -> None:
    expected = plain(model)
    assert expected.losses[0] != expected.losses[-1]
    values = SETTINGS.get(strategy, [None])
    for value in values if model in ("lstm", "residual") else values[-1:]:
        found = steps.train(model, strategy, value)
        assert found.is_as_before
        assert found.attributes == expected.attributes
        if not IS_EXACT[strategy]:
            continue
        np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
        for one, other in zip(found.weights, expected.weights, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ON_DEVICE)
def test_it_saves_memory_and_about_as_much_as_it_says(model: str) -> None:
    # In a fresh process, where only its own models have left holes.
    measured = memfit.measure(steps.activation_bytes, model, ON_DEVICE[model])
    assert measured.outcome is Outcome.OK, measured.output
    for strategy in ON_DEVICE[model]:
        found, predicted = measured.value[strategy]
        assert found < MOST[strategy] * measured.value[""][0]
        # It speaks of its parts only, not of the rest of the step or what passes between them.
        assert 0.3 * found < predicted < 1.2 * found
