"""The fastest candidate that fits: its laws, and what is taken when memory runs out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.planning.search import (
    SIMPLER,
    Candidate,
    Law,
    Try,
    Variant,
    candidates_of,
    even_sizes,
    fallbacks_of,
    is_safe,
    ranked,
    tightest,
)
from memfit.units import MIB

BATCH_SIZE = 24


def tried(*points: tuple[int, int, float]) -> Law:
    return Law(tuple(Try(num_examples=n, peak_bytes=size * MIB, seconds=time) for n, size, time in points))


def variant(name: str, law: Law, num_measures: int = 0) -> Variant:
    return Variant(name=name, num_measures=num_measures, law=law)


def all_of(*variants: Variant, can_split: bool = True) -> list[Candidate]:
    return [
        candidate
        for each in variants
        for candidate in candidates_of(
            each, batch_size=BATCH_SIZE, gradient_bytes=10 * MIB, can_split=can_split
        )
    ]


PLAIN = variant("", tried((2, 120, 0.2), (4, 140, 0.4)))
LEAN = variant("segments", tried((2, 105, 0.3), (4, 110, 0.6)), 1)

budgets = st.integers(1, 4000).map(lambda size: size * MIB)
laws = st.builds(
    lambda base, each, fixed, pace: tried((1, base, fixed), (3, base + 2 * each, fixed + 2 * pace)),
    st.integers(1, 500),
    st.integers(0, 100),
    st.floats(0.001, 1),
    st.floats(0, 1),
)
variants = st.lists(laws, min_size=1, max_size=4).map(
    lambda found: [variant(str(place), law, min(place, 1)) for place, law in enumerate(found)]
)


def test_a_law_goes_through_its_tries_and_on_from_the_last() -> None:
    law = tried((4, 140, 0.4), (2, 120, 0.2), (8, 160, 1.2))
    assert [law.peak_bytes(n) for n in (1, 2, 3, 4, 6, 8, 16)] == [
        n * MIB for n in (120, 120, 130, 140, 150, 160, 200)
    ]
    assert law.seconds(16) == pytest.approx(2.8)


def test_one_try_is_taken_in_proportion() -> None:
    assert tried((2, 100, 0.5)).peak_bytes(8) == 400 * MIB
    assert tried((2, 100, 0.5)).peak_bytes(1) == 100 * MIB


@given(st.integers(1, 300))
def test_even_sizes_leave_no_part_for_nothing(batch_size: int) -> None:
    sizes = even_sizes(batch_size)
    assert sizes == sorted(set(sizes), reverse=True)
    for size in sizes:
        num_parts = -(-batch_size // size)
        assert -(-batch_size // num_parts) == size
    assert batch_size == 1 or sizes[-1] == 1


def test_what_fits_as_it_is_is_left_as_it_is() -> None:
    best = ranked(all_of(PLAIN, LEAN), 10_000 * MIB)[0]
    assert (best.variant.name, best.micro_batch) == ("", None)


def test_the_faster_of_two_ways_to_fit_is_taken() -> None:
    # Whole: 340 and 160 bytes. In micro-batches the plain way fits, too, but not faster.
    best = ranked(all_of(PLAIN, LEAN), 180 * MIB)[0]
    assert best.variant.name == ""
    assert best.micro_batch in (4, 5)
    slow = variant("", tried((2, 120, 0.9), (4, 140, 1.0)))
    best = ranked(all_of(slow, LEAN), 180 * MIB)[0]
    assert (best.variant.name, best.micro_batch) == ("segments", None)


def test_of_two_equally_fast_the_simpler_is_taken() -> None:
    twin = variant("a", tried((2, 120, 0.2), (4, 140, 0.398)), 1)
    assert ranked(all_of(twin, PLAIN), 10_000 * MIB)[0].variant.name == ""


def test_batches_that_must_not_be_split_are_not() -> None:
    assert {each.micro_batch for each in all_of(PLAIN, LEAN, can_split=False)} == {None}


@given(variants, budgets, budgets)
def test_more_budget_is_never_slower(found: list[Variant], one: int, other: int) -> None:
    candidates = all_of(*found)
    less, more = sorted((one, other))
    tight, loose = ranked(candidates, less), ranked(candidates, more)
    if tight:
        assert loose[0].seconds <= tight[0].seconds * SIMPLER * (1 + 1e-9)


@given(variants, budgets)
def test_nothing_that_is_ranked_may_exceed_the_budget(found: list[Variant], budget_bytes: int) -> None:
    candidates = all_of(*found)
    assert all(each.high_bytes <= budget_bytes for each in ranked(candidates, budget_bytes))
    assert ranked(candidates, budget_bytes) == ranked(list(reversed(candidates)), budget_bytes)
    fits = tightest(candidates).high_bytes <= budget_bytes
    assert bool(ranked(candidates, budget_bytes)) == fits


@given(st.integers(0, 2**40), st.none() | st.integers(0, 2**40), st.integers(0, 2**30), budgets)
def test_a_rehearsal_is_safe_if_its_upper_bound_is_within_the_budget(
    peak_bytes: int, room_bytes: int | None, spare_bytes: int, budget_bytes: int
) -> None:
    rehearsed = Try(
        num_examples=1, peak_bytes=peak_bytes, seconds=1.0, room_bytes=room_bytes, spare_bytes=spare_bytes
    )
    assert is_safe(rehearsed, budget_bytes) == (rehearsed.high_bytes <= budget_bytes)
    assert rehearsed.high_bytes > max(peak_bytes, room_bytes or 0) + spare_bytes


@given(variants)
def test_fallbacks_are_ever_tighter(found: list[Variant]) -> None:
    candidates = all_of(*found)
    chosen = ranked(candidates, 10**12)[0]
    line = [chosen, *fallbacks_of(chosen, candidates, most=4)]
    for last, after in pairwise(line):
        assert 5 * after.peak_bytes <= 4 * last.peak_bytes
