"""What may be used, what the meters said, and what this machine is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memfit.records.base import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Record):
    """How many bytes may be used, and who said so.

    Attributes:
        device_bytes: Bytes allowed on the device that trains. On the CPU that is host memory, too.
        device_source: Who said so, in words: `"the argument '2GiB'"`, `"MEMFIT_BUDGET=2GiB"`.
        host_bytes: Bytes allowed in host memory for all processes of the run.
        host_source: Who said so.
    """

    device_bytes: int
    device_source: str
    host_bytes: int
    host_source: str


class Meter(StrEnum):
    """Where a figure of device memory comes from."""

    ALLOCATOR = "allocator"
    """The device's own allocator counted every byte: true."""
    PROCESS = "process"
    """The memory of the process stands in for it: an upper bound that never falls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading(Record):
    """What one device's meter said.

    Attributes:
        device: The device, such as `"CPU:0"` or `"GPU:1"`.
        current_bytes: Bytes in use now.
        peak_bytes: The most bytes that were in use since the start, or since the last reset.
        meter: Where the two figures come from.
    """

    device: str
    current_bytes: int
    peak_bytes: int
    meter: Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Record):
    """What all meters said at one moment.

    Attributes:
        at_seconds: When, in seconds since the epoch.
        devices: One reading a device; empty while TensorFlow has not started.
        host_bytes: Resident memory of this process.
        host_peak_bytes: The most resident memory this process ever had.
        children_bytes: Resident memory of all its descendants together.
        container_bytes: What the container is charged with, or `None` outside of one.
    """

    at_seconds: float
    devices: tuple[DeviceReading, ...]
    host_bytes: int
    host_peak_bytes: int
    children_bytes: int
    container_bytes: int | None

    def fullest_device(self) -> DeviceReading | None:
        """The device with the highest peak, or `None` where no device was read."""
        return max(self.devices, key=lambda device: device.peak_bytes, default=None)


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    DEVICE_OUT_OF_MEMORY = "device out of memory"
    HOST_OUT_OF_MEMORY = "host out of memory"
    KILLED = "killed"
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory was what ran out."""
        return self in (Outcome.DEVICE_OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """An allocation that failed.

    Attributes:
        num_bytes: How much was asked for, or `None` where TensorFlow did not say.
        op: The op that asked, such as `"MatMul"`, or `None`.
        shape: The shape of the tensor asked for, or `None`.
        device: The device that had no room, or `None`.
    """

    num_bytes: int | None = None
    op: str | None = None
    shape: tuple[int, ...] | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Record):
    """What one function or script took in a fresh process, and how it ended.

    Attributes:
        target: The function or the command line that ran.
        outcome: How it ended.
        reason: The outcome in a sentence; for an error, its text.
        seconds: Wall-clock time of the whole process, its start included.
        exit_code: What the process returned, or minus the signal that ended it.
        peak_bytes: Peak of the fullest device, or `None` where no device was used.
        is_peak_exact: Whether `peak_bytes` was read at the end; otherwise the process died and the
            figure is the last one it wrote, at most a tenth of a second old.
        reading: All meters at the end, or the last they said, or `None` if they never spoke.
        device_limit_bytes: The limit on the device, or `None`.
        host_limit_bytes: The limit on the host, or `None`.
        request: The last allocation that failed, or `None`.
        num_failed_requests: How many allocations failed; a script may survive some.
        value: What the function returned; `None` for a script.
        output: The end of what the process printed, both streams; empty where it was passed through.
    """

    target: str
    outcome: Outcome
    reason: str
    seconds: float
    exit_code: int
    peak_bytes: int | None = None
    is_peak_exact: bool = False
    reading: Reading | None = None
    device_limit_bytes: int | None = None
    host_limit_bytes: int | None = None
    request: Request | None = None
    num_failed_requests: int = 0
    value: Any = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts(Record):
    """A device as TensorFlow sees it.

    Attributes:
        device: Its name, such as `"CPU:0"`.
        description: What it is, such as a GPU's product name; empty where TensorFlow does not say.
        limit_bytes: What its allocator may use, or `None` where nothing limits it.
        meter: Where figures of its memory come from.
    """

    device: str
    description: str
    limit_bytes: int | None
    meter: Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Record):
    """This machine: devices, allocator, limits, versions.

    Attributes:
        versions: Package (and `"python"`, `"linux"`) to version; `"not installed"` where it is missing.
        is_supported: Package to whether memfit supports that version.
        devices: What TensorFlow can train on; empty if it did not start.
        tensorflow_error: Why TensorFlow did not start, or `None`.
        allocator: The CPU allocator in words.
        onednn: Whether oneDNN serves the CPU's ops, in words.
        num_cores: CPU cores this process may use.
        host_total_bytes: The machine's memory.
        host_available_bytes: What could be had now without swapping.
        container_limit_bytes: The container's limit, or `None`.
        container_bytes: What the container is charged with now, or `None` outside of one.
        budget: What memfit may use when it is told nothing more.
    """

    versions: dict[str, str]
    is_supported: dict[str, bool]
    devices: tuple[DeviceFacts, ...]
    tensorflow_error: str | None
    allocator: str
    onednn: str
    num_cores: int
    host_total_bytes: int
    host_available_bytes: int
    container_limit_bytes: int | None
    container_bytes: int | None
    budget: Budget
