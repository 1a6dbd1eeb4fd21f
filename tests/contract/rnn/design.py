"""Few cases that try many options: every two values of two options meet in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from random import Random
from typing import Any

Case = dict[str, Any]


def every_pair(options: Mapping[str, Sequence[Any]]) -> list[Case]:
    """Cases in which every value of an option meets every value of every other one, the same at each call.

    Each case starts from a pair that is still missing; its other values are those, of many tries, that bring
    the most other missing pairs.
    """
    random = Random(0)
    missing = {
        ((one, first), (other, second))
        for one, other in combinations(options, 2)
        for first, second in product(range(len(options[one])), range(len(options[other])))
    }
    cases = []
    while missing:
        pair = dict(min(missing))
        tries = (
            {name: pair.get(name, random.randrange(len(values))) for name, values in options.items()}
            for _ in range(500)
        )
        best = max(tries, key=lambda case: len(missing.intersection(combinations(case.items(), 2))))
        missing.difference_update(combinations(best.items(), 2))
        cases.append({name: options[name][index] for name, index in best.items()})
    return cases


def name_of(case: Case) -> str:
    """The case for a list of tests: its values that are names, and the names of options that are on."""
    words = (name if value is True else value for name, value in case.items())
    return "-".join(word for word in words if word and isinstance(word, str))
