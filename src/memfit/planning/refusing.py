"""What to say when no plan fits: what the tightest one needs, where it goes, and what would help. Pure."""

from __future__ import annotations

import math

from memfit.errors import BudgetError
from memfit.planning.search import Candidate
from memfit.units import format_bytes


def refusal(
    *,
    words: str,
    tightest: Candidate,
    parts: dict[str, int],
    budget_bytes: int,
    why_not_split: str,
    length: int | None,
) -> BudgetError:
    """The error for a budget that nothing fits.

    Args:
        words: The tightest plan.
        tightest: What it was predicted to take.
        parts: Bytes that no plan changes, by name.
        budget_bytes: The budget.
        why_not_split: Why batches were not split; empty if they were.
        length: Time steps, or `None`.
    """
    need_bytes = tightest.high_bytes
    rest_bytes = max(0, tightest.peak_bytes - sum(parts.values()))
    largest = sorted([*parts.items(), ("activations and the rest", rest_bytes)], key=lambda part: -part[1])
    shares = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest if size)
    helps = [f'budget="{format_bytes(need_bytes).replace(" ", "")}"']
    if "split_batch_norm" in why_not_split:
        helps.append('allow="split_batch_norm"')
    room_bytes = budget_bytes / (need_bytes / max(1, tightest.peak_bytes)) - sum(parts.values())
    fitting_length = None
    if length is not None and 0 < room_bytes < rest_bytes:
        fitting_length = max(1, math.floor(length * room_bytes / rest_bytes))
        helps.append(f"sequences of at most {fitting_length} steps")
    elif room_bytes <= 0:
        helps.append("a smaller model, or an optimizer with fewer slots")
    error = BudgetError(
        f"nothing fits {format_bytes(budget_bytes)}: the tightest plan, {words}, needs about "
        f"{format_bytes(need_bytes)}. It goes to: {shares}. What would help: {'; or '.join(helps)}."
    )
    error.fitting_length = fitting_length
    return error


def with_truncation(error: BudgetError, *, max_length: int, lost_share: float) -> BudgetError:
    """The error with what cutting sequences would cost, for those who have not allowed it."""
    found = BudgetError(
        f'{error} allow="truncate" would cut sequences to {max_length} steps and lose {lost_share:.1%} of '
        "all steps."
    )
    found.fitting_length = error.fitting_length
    return found
