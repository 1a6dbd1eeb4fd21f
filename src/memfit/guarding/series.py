"""A series of readings that never grows: when it is full, every second reading goes."""

from __future__ import annotations

from typing import Final

from memfit.guarding.slopes import Point

MAX_READINGS: Final = 256


class Series:
    """Readings by step.

    Args:
        name: What is read.
        is_bytes: Whether the values are bytes; otherwise they are a number of things.

    Example:
    >>> series = Series("host", is_bytes=True)
    >>> for step in range(1_000):
    ...     series.add(step, 5)
    >>> len(series.readings) <= MAX_READINGS, series.last
    (True, 5)
    """

    def __init__(self, name: str, *, is_bytes: bool) -> None:
        self.name = name
        self.is_bytes = is_bytes
        self.readings: list[Point] = []
        self.last = 0

    def add(self, step: float, value: int) -> None:
        """One more reading, at a later step than the last."""
        self.last = value
        self.readings.append((step, float(value)))
        if len(self.readings) > MAX_READINGS:
            # Of each two the lower one: what memory comes back to is what is kept.
            self.readings = [
                min(pair, key=lambda point: point[1])
                for pair in zip(self.readings[::2], self.readings[1::2], strict=False)
            ]

    def clear(self) -> None:
        """Begins anew, where steps are counted by another clock."""
        self.readings.clear()
