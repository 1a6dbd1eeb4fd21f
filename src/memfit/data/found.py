"""What reading finds out about lengths, whatever is read; and what a length is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memfit.errors import UsageError
from memfit.records import Padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read.

    Attributes:
        counts: How many sequences have each length.
        source: What was read, in a few words.
        step_bytes: The inputs of a step.
        is_sample: Whether reading stopped at the limit.
        padded_length: The steps that all are padded to in what was read, or `None`.
        paddings: How what was read is padded in batches of its own, if it has any.
        notes: What to know, a sentence each.
    """

    counts: Mapping[int, int]
    source: str
    step_bytes: int
    is_sample: bool = False
    padded_length: int | None = None
    paddings: tuple[Padding, ...] = ()
    notes: tuple[str, ...] = ()


def check_length(value: Any, place: str) -> int:
    """A length as a whole number of steps.

    Raises:
        UsageError: If it is not a number, negative, or between two whole ones; with the place.

    Example:
    >>> check_length(3.0, "sample 7")
    3
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number >= 0 and number.is_integer()):
        raise UsageError(
            f"{place} has the length {value}, but a length is a whole number of steps, 0 or more. "
            "Mend it, or leave that sample out."
        )
    return int(number)
