"""How many lanes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.rnn.lanes import ROWS_OF_A_LANE, num_lanes_for, usable_cores


@pytest.mark.parametrize(
    ("batch_size", "num_cores", "expected"), [(32, 2, 2), (32, 1, 1), (15, 2, 1), (0, 8, 1), (None, 2, 2)]
)
def test_lanes(batch_size: int | None, num_cores: int, expected: int) -> None:
    assert num_lanes_for(batch_size, num_cores) == expected


@given(st.integers(0, 500), st.integers(1, 64))
def test_no_lane_is_thin(batch_size: int, num_cores: int) -> None:
    lanes = num_lanes_for(batch_size, num_cores)
    assert 1 <= lanes <= num_cores
    assert lanes == 1 or batch_size // lanes >= ROWS_OF_A_LANE


def test_there_is_a_core() -> None:
    assert usable_cores() >= 1
