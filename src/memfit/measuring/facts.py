"""`memfit facts`: this machine as far as training is concerned, each figure from whoever knows it.

TensorFlow is asked in a fresh process: it is noisy, slow to start, and on a broken installation may not
survive being asked.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Final

from memfit.budgeting import allocator, cgroup, machine
from memfit.budgeting.budget import budget
from memfit.decoding import decode
from memfit.measuring.trial import measure
from memfit.records import DeviceFacts, Facts, Measurement, Meter, Outcome

# Name shown: distributions that provide it, the oldest version supported.
PACKAGES: Final[dict[str, tuple[tuple[str, ...], tuple[int, int]]]] = {
    "tensorflow": (("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"), (2, 20)),
    "keras": (("keras",), (3, 12)),
}
NOT_INSTALLED: Final = "not installed"


def gather_facts() -> Facts:
    """The facts of this machine. Takes a few seconds, since TensorFlow starts in a fresh process."""
    from memfit import __version__

    versions = {
        "memfit": __version__,
        "python": platform.python_version(),
        **{name: _version(distributions) for name, (distributions, _) in PACKAGES.items()},
        "linux": platform.release(),
    }
    measured = _ask_tensorflow(versions["tensorflow"])
    devices = _devices(measured)
    group = cgroup.read_group()
    return Facts(
        versions=versions,
        is_supported={name: is_supported(versions[name], least) for name, (_, least) in PACKAGES.items()},
        devices=devices,
        tensorflow_error=_error(measured),
        allocator=_allocator(devices),
        onednn=_onednn(),
        num_cores=machine.num_cores(),
        host_total_bytes=machine.total_bytes(),
        host_available_bytes=machine.available_bytes(),
        container_limit_bytes=group.limit_bytes if group else None,
        container_bytes=group.usage_bytes if group else None,
        budget=budget(),
    )


def is_supported(version: str, least: tuple[int, int]) -> bool:
    """Whether a version text is at least a major and minor version.

    Example:
    >>> is_supported("2.21.0", (2, 20)), is_supported("not installed", (2, 20))
    (True, False)
    """
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return False
    return (int(parts[0]), int(parts[1])) >= least


def _version(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return NOT_INSTALLED


def _ask_tensorflow(version: str) -> Measurement | None:
    return None if version == NOT_INSTALLED else measure(_describe_devices, timeout_seconds=120)


def _describe_devices() -> list[dict[str, object]]:
    from memfit.measuring import facts_tf

    return facts_tf.describe_devices()


def _devices(measured: Measurement | None) -> tuple[DeviceFacts, ...]:
    if measured is None or measured.outcome is not Outcome.OK:
        return ()
    return tuple(decode(DeviceFacts, values) for values in measured.value)


def _error(measured: Measurement | None) -> str | None:
    if measured is None:
        return "TensorFlow is not installed. Type: pip install 'memfit[cpu]' or 'memfit[cuda]'"
    return None if measured.outcome is Outcome.OK else measured.reason


def _allocator(devices: tuple[DeviceFacts, ...]) -> str:
    meters = {device.meter for device in devices if device.device.startswith("CPU")}
    if Meter.ALLOCATOR in meters:
        return "best-fit, counts every byte (tested just now)"
    if Meter.PROCESS in meters:
        return f"TensorFlow's default, does not count small tensors; unset {allocator.CHOICE}"
    return "unknown"


def _onednn() -> str:
    setting = os.environ.get(allocator.ONEDNN)
    if setting is None:
        return f"as TensorFlow decides ({allocator.ONEDNN} is unset)"
    return f"{allocator.ONEDNN}={setting}"
