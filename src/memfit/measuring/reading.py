"""All meters at one moment. It asks TensorFlow's devices only if the program has loaded TensorFlow."""

from __future__ import annotations

import sys
import time

from memfit.budgeting import cgroup
from memfit.measuring import process
from memfit.records import DeviceReading, Reading


def read_memory() -> Reading:
    """What all meters say now: each device, this process, its children, the container.

    Devices are read if the program has imported TensorFlow. On the CPU, device figures are true
    if memfit was imported before the first TensorFlow op; otherwise the process's memory stands in
    (`meter` says which), with one warning.

    Returns:
        A `Reading`.

    Example:
    >>> import memfit
    >>> memfit.read_memory().host_bytes > 0
    True
    """
    return assemble(_devices())


def reset_peak() -> None:
    """Makes each device's peak what is in use now, so that the next reading's peak is of what follows.

    Example:
    >>> import memfit
    >>> memfit.reset_peak()
    """
    if "tensorflow" in sys.modules:
        from memfit.measuring import device_tf

        device_tf.reset_peaks()


def assemble(devices: tuple[DeviceReading, ...]) -> Reading:
    """A reading of the host, with devices that were read elsewhere."""
    group = cgroup.read_group()
    return Reading(
        at_seconds=time.time(),
        devices=devices,
        host_bytes=process.resident_bytes(),
        host_peak_bytes=process.peak_resident_bytes(),
        children_bytes=process.children_bytes(),
        container_bytes=group.usage_bytes if group else None,
    )


def _devices() -> tuple[DeviceReading, ...]:
    if "tensorflow" not in sys.modules:
        return ()
    from memfit.measuring import device_tf

    return device_tf.read_devices()
