"""The best boundaries, against all boundaries there are."""

from collections import Counter
from itertools import combinations
from random import Random

import pytest

from memfit.data import buckets
from memfit.data.buckets import best_boundaries, check_boundaries, num_padded_steps
from memfit.errors import UsageError


def test_the_giant_among_short_ones_gets_a_bucket_of_its_own() -> None:
    counts = dict.fromkeys(range(1, 51), 100) | {10_000: 1}
    boundaries = best_boundaries(counts, 4)
    assert len(boundaries) == 4
    assert boundaries[-2:] == (50, 10_000)


def test_few_lengths_need_no_padding() -> None:
    counts = {3: 5, 70: 2}
    assert best_boundaries(counts, 16) == (3, 70)
    assert num_padded_steps(counts, (3, 70)) == 155


def test_empty_sequences_are_padded_to_a_step() -> None:
    assert best_boundaries({0: 5}, 4) == (1,)
    assert best_boundaries({0: 5, 1: 2, 9: 1}, 2) == (1, 9)
    assert num_padded_steps({0: 5, 1: 2}, (1,)) == 7


def test_lengths_that_do_not_occur_are_passed_over() -> None:
    assert best_boundaries({3: 1, 5: 0}, 4) == (3,)


@pytest.mark.parametrize("num_buckets", [1, 2, 3, 5])
def test_the_classic_trap_of_equal_shares(num_buckets: int) -> None:
    """On skewed lengths quantiles are far from the best; all choices are tried."""
    counts = {2**power: 2 ** (9 - power) for power in range(10)}
    *inner, last = sorted(counts)
    least = min(num_padded_steps(counts, (*some, last)) for some in combinations(inner, num_buckets - 1))
    assert num_padded_steps(counts, best_boundaries(counts, num_buckets)) == least


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [
        ((), "is empty"),
        ((0, 10), r"buckets\[0\] is 0, but must be at least 1"),
        ((10, 10), r"buckets\[1\] is 10, but must be more than the 10 before it"),
        ((10, 5), r"buckets\[1\] is 5"),
        ((2.5,), r"buckets\[0\] = 2.5"),
        ((float("nan"),), r"buckets\[0\] = nan"),
    ],
)
def test_boundaries_that_cannot_be(boundaries: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_boundaries(boundaries)


def test_nothing_to_pad() -> None:
    with pytest.raises(UsageError, match="no sequences"):
        best_boundaries({}, 4)
    with pytest.raises(UsageError, match="buckets=0"):
        best_boundaries({1: 1}, 0)


@pytest.mark.parametrize("num_buckets", [1, 2, 5, 16])
def test_the_search_for_very_many_lengths_finds_the_same_costs(
    num_buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(num_buckets)
    for _ in range(60):
        most = random.choice((3, 20, 300, 5_000))
        counts = Counter(1 + int(random.random() ** random.choice((1, 4)) * most) for _ in range(400))
        plain = best_boundaries(counts, num_buckets)
        monkeypatch.setattr(buckets, "MANY", 0)
        found = best_boundaries(counts, num_buckets)
        monkeypatch.undo()
        assert list(found) == sorted(set(found))
        assert found[-1] == max(counts)
        assert len(found) <= num_buckets
        assert num_padded_steps(counts, found) == num_padded_steps(counts, plain)
