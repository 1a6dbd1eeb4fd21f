"""The readings that cost microseconds: devices, host, graphs, gradients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.guarding.series import Series
from memfit.measuring import device_tf, process
from memfit.records import Budget, Meter
from memfit.rnn import internals_tf as gradients

STATM: Final = Path("/proc/self/statm")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
HOST: Final = "host"


class Meters:
    """Reads all the cheap meters of this process. Made when TensorFlow has started: it asks its devices.

    Args:
        budget: What may be used, as in `memfit.budget`.
    """

    def __init__(self, budget: str | int | None) -> None:
        self.budget: Budget = find_budget(budget)
        # Only meters that count every byte; elsewhere the process's memory is read anyway.
        self.devices = [each.device for each in device_tf.read_devices() if each.meter is Meter.ALLOCATOR]
        self.graphs: WeakSet[Any] = WeakSet()
        self.num_traces = 0
        self._first = self.read()

    def read(self) -> dict[str, int]:
        """What each series is now."""
        readings = {name: device_bytes(name) for name in self.devices}
        readings[HOST] = host_bytes()
        readings["traces"] = self.num_traces
        readings["graphs"] = len(self.graphs)
        readings["gradients"] = gradients.num_gradients()
        return readings

    def grown_bytes(self) -> int:
        """By how much the host's memory has grown since the first reading."""
        return host_bytes() - self._first[HOST]

    def make_series(self) -> dict[str, Series]:
        """An empty series for each reading."""
        return {name: Series(name, is_bytes=name == HOST or name in self.devices) for name in self.read()}

    def room(self, series: Series) -> int | None:
        """What is left of what a series may use, in bytes."""
        if not series.is_bytes:
            return None
        is_host = series.name == HOST
        limit = self.budget.host_bytes if is_host else self.budget.device_bytes
        source = self.budget.host_source if is_host else self.budget.device_source
        # What the machine has available is what was left when it was asked; a limit counts from nothing.
        used_before = self._first[series.name] if "available" in source or "is left" in source else 0
        return max(0, limit + used_before - series.last)


def device_bytes(name: str) -> int:
    """What a device's allocator has given out."""
    return int(tf.config.experimental.get_memory_info(name)["current"])


def device_peak_bytes(name: str) -> int:
    """The most that a device's allocator had given out, since the start or since somebody reset it."""
    return int(tf.config.experimental.get_memory_info(name)["peak"])


def host_bytes() -> int:
    """Resident memory of this process, in a fraction of the time that psutil takes where there is /proc."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:
        return process.resident_bytes()
