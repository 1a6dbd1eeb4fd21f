"""Host memory over time, in a list that stays short: the longer it lasts, the coarser it is."""

from __future__ import annotations

from typing import Final

from memfit.records import HostReading

MOST_READINGS: Final = 120


class HostSeries:
    """A bounded series of readings. The last one is always among them.

    Example:
    >>> series = HostSeries()
    >>> for second in range(1000):
    ...     series.add(float(second), second)
    >>> len(series.readings()) <= 121, series.readings()[-1].at_seconds
    (True, 999.0)
    """

    def __init__(self) -> None:
        self._kept: list[HostReading] = []
        self._last: HostReading | None = None
        self._gap_seconds = 0.0

    def add(self, at_seconds: float, host_bytes: int) -> None:
        """Takes in a reading."""
        self._last = HostReading(at_seconds=at_seconds, host_bytes=host_bytes)
        if self._kept and at_seconds < self._kept[-1].at_seconds + self._gap_seconds:
            return
        self._kept.append(self._last)
        if len(self._kept) == MOST_READINGS:
            self._kept = self._kept[::2]
            self._gap_seconds = self._kept[-1].at_seconds / len(self._kept)

    def readings(self) -> tuple[HostReading, ...]:
        """What was kept, oldest first."""
        if self._last is None or (self._kept and self._last is self._kept[-1]):
            return tuple(self._kept)
        return (*self._kept, self._last)
