"""Buckets cut into batches: few shapes, and no batch over its steps."""

import math
from typing import Any

import pytest

from memfit.data.batching import MOST_ADDED, cut, most_size_for, tokens_for
from memfit.data.layout import in_words, lay_out
from memfit.data.padding import num_random_steps
from memfit.errors import UsageError


def test_what_is_left_over_joins_the_next_bucket_if_that_costs_little() -> None:
    slots = cut((5, 3), (10, 11), 40)
    assert [(slot.start, slot.size, slot.length) for slot in slots] == [(0, 4, 10), (4, 3, 11), (7, 1, 11)]


def test_what_is_left_over_stays_if_the_next_bucket_is_far() -> None:
    slots = cut((5, 1), (10, 1000), 40)
    assert [(slot.size, slot.length) for slot in slots] == [(4, 10), (1, 10), (1, 1000)]


def test_batches_have_few_shapes() -> None:
    boundaries = tuple(range(50, 210, 10))
    slots = cut([777] * 16, boundaries, 5_000)
    shapes = {(slot.size, slot.length) for slot in slots}
    assert len(shapes) <= 16 + 2
    added = sum(slot.size * slot.length for slot in slots) - 777 * sum(boundaries)
    assert 0 <= added <= 16 * MOST_ADDED * 5_000


def test_tokens_make_as_many_batches_as_a_batch_size_would() -> None:
    sizes, boundaries = (900, 80, 20), (10, 50, 300)
    tokens, most = tokens_for(25, sizes, boundaries), most_size_for(25)
    assert len(cut(sizes, boundaries, tokens, most)) <= math.ceil(1000 / 25)
    assert len(cut(sizes, boundaries, tokens - 1, most)) > math.ceil(1000 / 25)


def test_where_a_batch_size_is_asked_for_no_batch_is_far_larger() -> None:
    asked: dict[str, Any] = {"buckets": 3, "longer": "error"}
    counts = {10: 900, 50: 80, 300: 20}
    layout = lay_out(counts, **asked, tokens=None, batch_size=25)
    assert max(slot.size for slot in layout.slots) == max(layout.sizes) == 50
    assert sum(slot.size for slot in layout.slots) == 1000
    # Steps that are asked for are filled.
    filled = lay_out(counts, **asked, tokens=layout.tokens, batch_size=None)
    assert max(slot.size for slot in filled.slots) == layout.tokens // 10 > 50


def test_boundaries_that_nothing_is_padded_to_are_no_shapes() -> None:
    layout = lay_out({3: 4, 40: 2}, buckets=(10, 20, 50), tokens=100, batch_size=None, longer="error")
    assert layout.boundaries == (10, 50)


def test_longer_ones_are_padded_to_the_longest_or_cut() -> None:
    counts = {3: 4, 40: 2}
    own = lay_out(counts, buckets=(10,), tokens=100, batch_size=None, longer="own_bucket")
    assert (own.boundaries, own.most_steps) == ((10, 40), None)
    cut_off = lay_out(counts, buckets=(10,), tokens=100, batch_size=None, longer="truncate")
    assert (cut_off.boundaries, cut_off.most_steps) == ((10,), 10)
    assert "Cut to 10 steps: 2, which loses 60 steps, 65.2%." in in_words(cut_off, counts)


def test_the_line_on_padding() -> None:
    layout = lay_out({0: 1, 3: 6, 100: 1}, buckets=2, tokens=12, batch_size=None, longer="own_bucket")
    assert in_words(layout, {0: 1, 3: 6, 100: 1}) == (
        "memfit: 8 sequences in 3 batches of at most 12 steps and 3 shapes: 2.5% padding, where random "
        "batches of 3 have 59.5%. Longer than that, and batches of their own: 1. Empty, and padding alone: 1."
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tokens": 5, "batch_size": 5}, "both say"),
        ({"tokens": 0}, "tokens=0"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"longer": "drop"}, "own_bucket, truncate, error"),
    ],
)
def test_what_cannot_be(asked: dict[str, object], message: str) -> None:
    arguments = {"tokens": None, "batch_size": None, "longer": "error", "buckets": 2} | asked
    with pytest.raises(UsageError, match=message):
        lay_out({1: 1}, **arguments)  # type: ignore[arg-type]


def test_random_batches_by_expectation() -> None:
    # Two of three are drawn, then the one that is left: (1, 2), (1, 9) and (2, 9) are equally likely.
    expected = (2 * 2 + 2 * 9 + 2 * 9) / 3 + (9 + 2 + 1) / 3
    assert num_random_steps({1: 1, 2: 1, 9: 1}, 2) == round(expected)
