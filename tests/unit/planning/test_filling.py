"""How many sequences fill the same memory, by meters whose law is known."""

import math
from collections.abc import Callable
from random import Random

import pytest

from memfit.planning.filling import fill

BOUNDARIES = (4, 9, 20, 45, 100, 230, 512)
LAWS: dict[str, Callable[[int, int], float]] = {
    "steps alone": lambda size, length: 1_000 * size * length,
    "sequences have bytes of their own": lambda size, length: 5_000_000 + size * (40_000 + 900 * length),
    "a floor": lambda size, length: max(30_000_000, size * (1_000 + 1_000 * length)),
    "some do not run": lambda size, length: math.inf if size * length > 90_000 else 1_000 * size * length,
    "pairs of steps": lambda size, length: size * (2_000 * length + 8 * length**2),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("room_bytes", [40_000_000, 99_000_000])
def test_every_length_fills_the_room_and_none_goes_over(name: str, room_bytes: int) -> None:
    law = LAWS[name]
    runs: list[tuple[int, int]] = []

    def metered(size: int, length: int) -> float:
        if (size, length) not in runs:  # Of a size that is nearly right, several are asked for.
            runs.append((size, length))
        return law(size, length)

    sizes = fill(metered, BOUNDARIES, room_bytes)
    for size, length in zip(sizes, BOUNDARIES, strict=True):
        assert law(size, length) <= 1.005 * room_bytes  # Sizes near each other are taken as proportional.
        one_more = law(size + 1, length) > room_bytes
        assert one_more or law(size, length) >= 0.85 * room_bytes, (size, length)
    assert len(runs) <= 8 * len(BOUNDARIES)


def test_what_does_not_fit_alone_is_said_by_a_zero() -> None:
    assert fill(lambda size, length: 1_000.0 * size * length, (10, 1_000), 500_000) == (50, 0)
    assert fill(lambda size, length: math.inf, (10,), 500_000) == (0,)
    assert fill(lambda *_: 1_000.0, (10, 20), -500) == (0, 0)  # What rests is more than the budget.


@pytest.mark.parametrize("seed", range(10))
def test_steps_that_peak_by_chance_do_not_mislead(seed: int) -> None:
    law, random = LAWS["sequences have bytes of their own"], Random(seed)

    def metered(size: int, length: int) -> float:
        return law(size, length) * random.uniform(0.93, 1.07)

    sizes = fill(metered, BOUNDARIES, 99_000_000)
    filled = [law(size, length) for size, length in zip(sizes, BOUNDARIES, strict=True)]
    assert max(filled) < 1.15 * min(filled)
    assert max(filled) < 1.08 * 99_000_000


def test_lengths_that_vary_end_up_as_full_as_those_that_do_not() -> None:
    law, apart = LAWS["sequences have bytes of their own"], []
    for seed in range(40):
        random = Random(seed)

        def metered(size: int, length: int, random: Random = random) -> float:
            if length < 100:
                return law(size, length) * random.uniform(0.99, 1.01)
            # As seen with few long sequences: far apart, and now and then one that is very high.
            return law(size, length) * (1.25 if random.random() < 0.05 else random.uniform(0.88, 1.12))

        sizes = fill(metered, BOUNDARIES, 99_000_000)
        filled = [law(size, length) for size, length in zip(sizes, BOUNDARIES, strict=True)]
        assert max(filled) < 1.05 * 99_000_000
        apart.append(max(filled) / min(filled))
    assert sorted(apart)[len(apart) // 2] < 1.10
    assert max(apart) < 1.25


def test_a_size_that_fails_is_not_run_again() -> None:
    failed: list[tuple[int, int]] = []

    def metered(size: int, length: int) -> float:
        if size * length <= 90_000:
            return 1_000.0 * size * length
        failed.append((size, length))
        return math.inf

    sizes = fill(metered, BOUNDARIES, 99_000_000)
    assert len(set(failed)) == len(failed)
    assert all(
        0.85 * 90_000 <= a * b <= 90_000 for a, b in zip(sizes, BOUNDARIES, strict=True) if a > 200 // b
    )
