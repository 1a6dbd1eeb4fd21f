"""What `limit=` may be, and what a decision says."""

from typing import Any

import pytest

from memfit.depth.deciding import decide
from memfit.depth.graph import Graph, Node
from memfit.depth.limits import check_batch_size, parse_limit
from memfit.errors import MemfitError, UsageError

GRAPH = Graph(
    nodes=tuple(Node((at - 1,) if at else (), (at,), 1.0) for at in range(16)),
    sizes=dict.fromkeys(range(16), 100),
    needed=frozenset(range(15)),
)


@pytest.mark.parametrize("limit", [0, -1, "x", "0%", "101%", True, 0.5, ""])
def test_what_is_no_limit(limit: Any) -> None:
    with pytest.raises(MemfitError):
        parse_limit(limit)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, True])
def test_what_is_no_batch_size(batch_size: Any) -> None:
    with pytest.raises(UsageError, match="batch_size must be a whole number"):
        check_batch_size(batch_size)


def test_the_least_is_less_than_all() -> None:
    decision, layout = decide(GRAPH, parse_limit(None), model_name="deep", batch_size=4)
    assert decision.held_bytes < decision.plain_bytes == 1500
    assert decision.num_segments == sum(map(bool, layout.segments)) > 0
    assert str(decision).startswith(f"deep: {decision.held_bytes} B of 1.46 KiB are held; ")


def test_all_that_is_needed_may_be_kept() -> None:
    decision, layout = decide(GRAPH, parse_limit("100%"), model_name="deep", batch_size=4)
    assert not any(layout.segments)
    assert str(decision) == "deep: nothing is computed again; 1.46 KiB are kept."


def test_what_cannot_be_met_is_refused_with_what_would_do() -> None:
    expected = r"cannot be held in 100 B .* the least is \d+ B\. Pass a limit of \"\d+%\""
    with pytest.raises(UsageError, match=expected):
        decide(GRAPH, parse_limit(100), model_name="deep", batch_size=4)
