"""Blocks and windows by arithmetic, and which columns are what, without TensorFlow."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.errors import UsageError
from memfit.records import InputPart, Profile, Setting
from memfit.strategies.stream_inputs import StreamInputs
from memfit.streaming.blocks import batches_ahead, block_bytes, even_borders, lay_out, window_for
from memfit.streaming.columns import choose

PATH = Path("table.csv")


@given(st.integers(1, 5000), st.integers(1, 10**6), st.integers(1, 10**7))
def test_blocks_have_every_row_and_windows_stay_within_their_bytes(
    num_rows: int, row_bytes: int, window_bytes: int
) -> None:
    borders = even_borders(num_rows, row_bytes, window_bytes)
    assert borders[0] == 0
    assert borders[-1] == num_rows
    assert all(start < stop for start, stop in pairwise(borders))
    blocks = lay_out(borders, lambda start, stop: (stop - start) * row_bytes, window_bytes)
    assert blocks.per_window * blocks.largest_bytes <= window_bytes or blocks.per_window == 1
    assert blocks.largest_bytes <= max(window_bytes, row_bytes)
    assert (blocks.num_windows - 1) * blocks.per_window < blocks.num_blocks


def test_a_window_has_many_blocks() -> None:
    assert block_bytes(2**26) == 2**20
    assert block_bytes(2**10) == 2**14  # Not less than is worth a read.
    assert window_for(2**40) == 2**26
    assert window_for(2**20) == 2**18


def test_batches_that_are_ready_stay_within_an_eighth_of_the_host() -> None:
    assert batches_ahead(800, 10.0) == 10
    assert batches_ahead(800, 1000.0) == 1


def test_columns() -> None:
    names = ["a", "b", "y", "w"]
    chosen = choose(names, PATH, columns=None, labels="y", weights="w")
    assert chosen.x == ("a", "b")
    assert chosen.names == names
    assert choose(names, PATH, columns="a", labels=["y"], weights=None).y == ("y",)
    with pytest.raises(UsageError, match=r"no column 'c' in table\.csv. It has: a, b, y, w"):
        choose(names, PATH, columns=["a", "c"], labels=None, weights=None)
    with pytest.raises(UsageError, match=r"left for the inputs"):
        choose(["y"], PATH, columns=None, labels="y", weights=None)


def test_streaming_is_proposed_only_where_arrays_do_not_fit() -> None:
    strategy = StreamInputs()
    profile = Profile(batch_size=1, recurrent=(), inputs=InputPart(held_bytes=2**30, host_bytes=2**30))
    assert "fits the host" in strategy.settings(profile).reason
    assert "not made of arrays" in strategy.settings(Profile(batch_size=1, recurrent=())).reason
    large = Profile(batch_size=1, recurrent=(), inputs=InputPart(held_bytes=2**30 + 1, host_bytes=2**30))
    values = [setting.value for setting in strategy.settings(large).settings]
    assert values == [2**23, 2**26]
    effect = strategy.effect(Setting(strategy="stream_inputs", value=2**23), large)
    assert (effect.held_bytes, effect.kept_bytes) == (2**24, 2**30 + 1)
