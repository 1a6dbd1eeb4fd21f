"""The schedule against the known figures, exhaustive search, and its laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.errors import UsageError
from memfit.rnn import segments
from memfit.rnn.segments import Schedule, StepCost

COST = StepCost(state_bytes=1, tape_bytes=4)
lengths = st.integers(1, 3000)
costs = st.builds(
    lambda state, tape: StepCost(state_bytes=state, tape_bytes=tape), st.integers(1, 50), st.integers(1, 400)
)


def share(schedule: Schedule) -> float:
    """Per cent of a tape that keeps everything."""
    return 100 * schedule.peak_bytes(COST) / (schedule.length * COST.tape_bytes)


@pytest.mark.parametrize(
    ("length", "of_equal", "of_tapered", "of_two_levels"),
    [(100, 9.75, 7.5, 5.25), (1000, 3.15, 2.28, 1.15), (10_000, 1.0, 0.71, 0.25)],
)
def test_shares_of_full_storage(
    length: int, of_equal: float, of_tapered: float, of_two_levels: float
) -> None:
    for schedule, known in (
        (segments.equal_best(length, COST), of_equal),
        (segments.tapered(length, COST), of_tapered),
        (segments.two_level(length, COST), of_two_levels),
    ):
        assert share(schedule) <= known + 0.005
        assert share(schedule) == pytest.approx(known, rel=0.06)


@given(lengths, st.integers(1, 4000))
def test_equal_segments_cover_the_length(length: int, segment: int) -> None:
    schedule = segments.equal(length, segment)
    assert schedule.length == length
    assert set(schedule.lengths[:-1]) <= {segment}
    assert 1 <= schedule.lengths[-1] <= segment
    assert schedule.recomputed_steps < length


@given(lengths, costs)
def test_tapered_is_covering_shrinking_and_never_worse_than_equal(length: int, cost: StepCost) -> None:
    schedule = segments.tapered(length, cost)
    assert schedule.length == length
    assert list(schedule.lengths) == sorted(schedule.lengths, reverse=True)
    assert schedule.peak_bytes(cost) <= segments.equal_best(length, cost).peak_bytes(cost)
    assert schedule.recomputed_steps < length


@given(st.integers(1, 9), costs)
def test_tapered_is_the_best_of_all_cuts(length: int, cost: StepCost) -> None:
    def cuts(rest: int) -> list[tuple[int, ...]]:
        if rest == 0:
            return [()]
        return [(first, *others) for first in range(1, rest + 1) for others in cuts(rest - first)]

    best = min(Schedule(lengths=found).peak_bytes(cost) for found in cuts(length))
    assert segments.tapered(length, cost).peak_bytes(cost) == best


@given(lengths, costs)
def test_one_segment_keeps_everything_and_recomputes_nothing(length: int, cost: StepCost) -> None:
    schedule = segments.choose(length, cost, segment=length + 7)
    assert schedule.lengths == (length,)
    assert schedule.recomputed_steps == 0
    assert schedule.peak_bytes(cost) == length * cost.tape_bytes


@given(st.integers(2, 2000), costs)
def test_a_longer_sequence_never_holds_less(length: int, cost: StepCost) -> None:
    shorter, longer = segments.tapered(length - 1, cost), segments.tapered(length, cost)
    assert shorter.peak_bytes(cost) <= longer.peak_bytes(cost)


@given(st.integers(50, 20_000))
def test_the_smooth_formulas(length: int) -> None:
    a = COST.tape_states
    assert segments.equal_best(length, COST).peak_bytes(COST) <= 2 * math.sqrt(a * length) + a
    assert segments.tapered(length, COST).peak_bytes(COST) <= math.sqrt(2 * a * length) + a
    assert segments.two_level(length, COST).peak_bytes(COST) <= 3.4 * (a * length) ** (1 / 3) + a


@given(st.integers(1, 400), costs)
def test_two_levels_hold_no_more_than_one_and_recompute_less_than_twice(length: int, cost: StepCost) -> None:
    schedule = segments.two_level(length, cost)
    assert schedule.length == length
    assert schedule.recomputed_steps < 2 * length
    assert schedule.peak_bytes(cost) <= segments.equal_best(length, cost).peak_bytes(cost)


def test_the_chosen_segment_is_the_callers() -> None:
    assert segments.choose(100, COST, segment=32).lengths == (32, 32, 32, 4)
    assert segments.choose(100, COST) == segments.equal(100, segments.SHORTEST)


@given(lengths, costs, st.integers(1, 40))
def test_no_segment_but_the_last_is_shorter_than_asked(length: int, cost: StepCost, shortest: int) -> None:
    schedule = segments.tapered(length, cost, shortest=shortest)
    assert schedule.length == length
    assert all(steps >= min(shortest, length) for steps in schedule.lengths[:-1])
    assert schedule.peak_bytes(cost) >= segments.tapered(length, cost).peak_bytes(cost)


def test_starts_end_with_the_length() -> None:
    assert segments.equal(10, 4).starts == (0, 4, 8, 10)


@pytest.mark.parametrize("segment", [0, -1, "x", 2.5, True])
def test_a_segment_that_is_none(segment: object) -> None:
    with pytest.raises(UsageError, match=r"segment=.* at least 1.*segment=None"):
        segments.choose(10, COST, segment=segment)  # type: ignore[arg-type]


def test_a_cost_that_is_none() -> None:
    with pytest.raises(UsageError, match="0 bytes of state"):
        StepCost(state_bytes=0, tape_bytes=4)


def test_segments_that_hold_next_to_nothing_are_long() -> None:
    few, many = 64 * 17 * 4 * 32, 2 * 256 * 17 * 4 * 32
    assert segments.shortest_for(few) == segments.UNHURRIED
    assert segments.shortest_for(many) == segments.SHORTEST
