"""When growth is worth an alarm: a leak that would take a million steps to matter is none."""

from __future__ import annotations

from typing import Final

from memfit.guarding.series import Series
from memfit.guarding.slopes import MIN_POINTS, Point, trend
from memfit.records import Growth
from memfit.units import KIB, MIB

# Python, malloc and the loading of libraries move a process's memory by some MiB; a device's meter is exact.
LEAST_HOST_BYTES: Final = 8 * MIB
LEAST_DEVICE_BYTES: Final = 64 * KIB
MAX_STEPS: Final = 1_000_000
FLAT_SHARE: Final = 0.4
HOST: Final = "host"


def judge(series: Series, room: int | None) -> Growth:
    """How a series goes on, by all of it or by its second half, if it began to grow late."""
    whole = _judge(series, series.readings, room)
    if whole.is_growing:
        return whole
    late = _judge(series, series.readings[len(series.readings) // 2 :], room)
    return late if late.is_growing else whole


def _judge(series: Series, readings: list[Point], room: int | None) -> Growth:
    least = (LEAST_HOST_BYTES if series.name == HOST else LEAST_DEVICE_BYTES) if series.is_bytes else 0
    if _rise(readings) <= FLAT_SHARE * least:  # By far the most frequent, so it must cost nothing.
        return _flat(series, len(readings), room)
    found = trend(readings, least_growth=least)
    matters = room is None or found.slope * MAX_STEPS >= room
    return Growth(
        series=series.name,
        slope=found.slope,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        is_growing=found.is_growing and matters,
        num_readings=found.num_readings,
        last=series.last,
        room=room,
    )


def _rise(readings: list[Point]) -> float:
    """From the lowest of the first half to the lowest of the last quarter."""
    if len(readings) < MIN_POINTS:
        return 0.0
    values = [value for _, value in readings]
    return min(values[-(len(values) // 4) :]) - min(values[len(values) // 5 : len(values) // 2])


def _flat(series: Series, num_readings: int, room: int | None) -> Growth:
    return Growth(
        series=series.name,
        slope=0.0,
        low=0.0,
        high=0.0,
        confidence=0.0,
        is_growing=False,
        num_readings=num_readings,
        last=series.last,
        room=room,
    )
