"""The readings that cost microseconds: devices, host, graphs, gradients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet, finalize

import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.guarding.series import Series
from memfit.measuring import device_tf, process
from memfit.records import Budget, Meter
from memfit.rnn import internals_tf as gradients

STATM: Final = Path("/proc/self/statm")
MOST_STATM_BYTES: Final = 128  # It is seven numbers.
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
        self._host = HostMeter()
        self._first = self.read()

    def read(self) -> dict[str, int]:
        """What each series is now."""
        readings = {name: device_bytes(name) for name in self.devices}
        readings[HOST] = self._host.read()
        readings["traces"] = self.num_traces
        readings["graphs"] = len(self.graphs)
        readings["gradients"] = gradients.num_gradients()
        return readings

    def grown_bytes(self) -> int:
        """By how much the host's memory has grown since the first reading."""
        return self._host.read() - self._first[HOST]

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


class HostMeter:
    """Resident memory of this process, in a fraction of the time that psutil takes where there is /proc.

    The file stays open, since opening it costs several times what reading it does. In a fork it still tells
    of the process that opened it, which is why forks are not watched.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        if STATM.exists():
            self._file = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
            finalize(self, os.close, self._file)

    def read(self) -> int:
        """Its bytes now."""
        if self._file is None:
            return process.resident_bytes()
        return int(os.pread(self._file, MOST_STATM_BYTES, 0).split()[1]) * PAGE_BYTES
