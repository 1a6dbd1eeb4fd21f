"""Which settings are worth measuring."""

import keras
import pytest
from keras import layers

from memfit.planning.proposing_tf import propose
from memfit.records import Plan
from memfit.units import MIB


@pytest.mark.parametrize(
    ("room_bytes", "segments", "halved"),
    [
        (5 * MIB, [500, 32, 32], None),  # Not even half a batch fits in longer segments than the tightest.
        (20 * MIB, [500, 32, 32], 63),
        (30 * MIB, [63, 500, 32, 32], 125),
        (60 * MIB, [125, 500, 32, 32], None),  # These are long enough.
    ],
)
def test_short_segments_have_a_rival_of_longer_ones_on_half_a_batch(
    room_bytes: int, segments: list[int], halved: int | None
) -> None:
    lstm = [layers.LSTM(64, return_sequences=True), layers.LSTM(64)]
    model = keras.Sequential([keras.Input((None, 8)), *lstm, layers.Dense(1)])
    found = propose(model, 64, 500, room_bytes=room_bytes, plain_bytes=200 * MIB)
    assert [plan.time_segment for plan in found.plans] == segments
    assert found.halved == (None if halved is None else Plan(time_segment=halved))
