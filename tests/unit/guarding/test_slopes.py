"""What is a leak and what only looks like one, on series that were made up."""

import random

import pytest

from memfit.guarding.slopes import Point, trend


def series(values: list[float]) -> list[Point]:
    return [(float(step), value) for step, value in enumerate(values)]


def noise(spread: float, num: int, seed: int) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(0, spread) for _ in range(num)]


def test_a_line_is_a_leak_with_its_slope() -> None:
    found = trend(series([100.0 + 5 * step for step in range(60)]))
    assert found.is_growing
    assert found.slope == found.low == found.high == 5
    assert found.confidence > 0.999


@pytest.mark.parametrize("seed", range(20))
def test_a_line_in_noise_is_a_leak_and_the_interval_holds_its_slope(seed: int) -> None:
    values = [5.0 * step + error for step, error in enumerate(noise(20, 200, seed))]
    found = trend(series(values))
    assert found.is_growing
    assert found.low <= 5 <= found.high


@pytest.mark.parametrize("seed", range(60))
def test_noise_alone_is_no_leak(seed: int) -> None:
    assert not trend(series(noise(10, 100, seed))).is_growing


@pytest.mark.parametrize("at", range(5, 95, 3))
def test_one_jump_is_no_leak(at: int) -> None:
    assert not trend(series([0.0 if step < at else 1e6 for step in range(100)])).is_growing


@pytest.mark.parametrize("seed", range(10))
def test_a_jump_in_noise_is_no_leak(seed: int) -> None:
    values = [error + 1000 * (step > 50) for step, error in enumerate(noise(10, 100, seed))]
    assert not trend(series(values)).is_growing


def test_what_fills_up_and_stays_is_no_leak() -> None:
    assert not trend(series([float(min(step, 50)) for step in range(100)])).is_growing


def test_what_still_fills_is_growing() -> None:
    assert trend(series([float(min(step, 50)) for step in range(50)])).is_growing


def test_a_sawtooth_is_no_leak() -> None:
    assert not trend(series([float(step % 13) for step in range(150)])).is_growing


def test_a_rising_sawtooth_is_a_leak() -> None:
    found = trend(series([2.0 * step + 40 * (step % 7) for step in range(150)]))
    assert found.is_growing
    assert found.slope == pytest.approx(2, rel=0.2)


def test_stairs_that_go_on_are_a_leak() -> None:
    """Host memory comes in large pieces."""
    assert trend(series([1000.0 * (step // 10) for step in range(120)])).is_growing


def test_two_stairs_are_none() -> None:
    assert not trend(series([1000.0 * (step > 40) + 1000.0 * (step > 80) for step in range(120)])).is_growing


def test_a_warm_up_is_passed_over() -> None:
    assert not trend(series([float(min(step, 15) * 1000) for step in range(100)])).is_growing


def test_too_few_readings_say_nothing() -> None:
    assert not trend(series([float(step) for step in range(9)])).is_growing


def test_growth_below_the_least_is_nothing_to_speak_of() -> None:
    values = series([float(step) for step in range(100)])
    assert trend(values, least_growth=50).is_growing
    assert not trend(values, least_growth=100).is_growing


def test_falling_is_no_leak() -> None:
    assert not trend(series([-1.0 * step for step in range(100)])).is_growing
