"""Series never grow, and forget no leak."""

import itertools

from memfit.guarding.judging import judge
from memfit.guarding.series import MAX_READINGS, Series
from memfit.units import GIB, MIB


def filled(values: "itertools.chain[int] | range", name: str = "CPU:0") -> Series:
    series = Series(name, is_bytes=True)
    for step, value in enumerate(values):
        series.add(step, value)
    return series


def test_thinned_series_keep_slope_and_order() -> None:
    series = filled(range(0, 10_000 * MIB, MIB))
    assert len(series.readings) <= MAX_READINGS
    assert series.readings == sorted(series.readings)
    growth = judge(series, 2300 * MIB)
    assert growth.is_growing
    assert growth.slope == MIB
    assert growth.num_left() == 2300


def test_growth_that_begins_late_is_seen() -> None:
    late = itertools.chain([0] * 150, range(0, 60 * MIB, MIB))
    assert judge(filled(late), GIB).is_growing


def test_a_leak_of_a_few_bytes_is_none() -> None:
    assert not judge(filled(range(0, 200_000, 1_000)), 10 * GIB).is_growing
    assert judge(filled(range(0, 200_000, 1_000)), 10 * MIB).is_growing


def test_host_memory_may_move_by_some_mebibytes() -> None:
    rising = range(0, 6 * MIB, 30_000)
    assert not judge(filled(rising, "host"), GIB).is_growing
    assert judge(filled(rising), GIB).is_growing
