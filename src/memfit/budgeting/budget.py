"""`memfit.budget`: how many bytes may be used on the device and on the host, and who said so.

It asks the sources in a fixed order and takes the first that answers; it never loads TensorFlow,
but asks it if the program already has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

from memfit.budgeting import allocator, cgroup, gpu, machine
from memfit.errors import UnitError
from memfit.records import Budget
from memfit.units import parse_bytes

HOST_VARIABLE: Final = "MEMFIT_HOST_BUDGET"

Source = tuple[int, str]


def budget(spec: str | int | None = None, *, host: str | int | None = None) -> Budget:
    """How many bytes may be used, and who said so.

    For the device, the first of these that says anything: `spec`, the variable `MEMFIT_BUDGET`, the
    limit of TensorFlow's CPU allocator, the GPU's logical limit or its memory (the smallest, where
    there are several), the container's limit, the memory that the host has available. For the host:
    `host`, `MEMFIT_HOST_BUDGET`, the container, the memory available.

    Args:
        spec: The device's budget: `"2GiB"`, `"512 MiB"`, `"1.5g"`, a number of bytes, or a share
            such as `"80%"` of what the next source says.
        host: The host's budget, in the same forms.

    Returns:
        A `Budget`.

    Raises:
        UnitError: If a size cannot be read.

    Example:
    >>> import memfit
    >>> memfit.budget("2GiB").device_bytes
    2147483648
    >>> memfit.budget("2GiB").device_source
    "the argument '2GiB'"
    """
    host_bytes, host_source = _first(host, HOST_VARIABLE, _host_sources())
    device_bytes, device_source = _first(spec, allocator.BUDGET, _device_sources())
    return Budget(
        device_bytes=device_bytes,
        device_source=device_source,
        host_bytes=host_bytes,
        host_source=host_source,
    )


def _first(spec: str | int | None, variable: str, sources: Iterator[Source]) -> Source:
    """What was asked for, or else the first source; a share is one of that source."""
    found_bytes, found_source = next(sources)
    asked: str | int | None = spec
    asked_source = f"the argument {spec!r}"
    if asked is None and os.environ.get(variable, "").strip():
        asked = os.environ[variable]
        asked_source = f"{variable}={asked}"
    if asked is None:
        return found_bytes, found_source
    try:
        asked_bytes = parse_bytes(asked, available_bytes=found_bytes)
    except UnitError as fault:
        raise UnitError(f"{variable}: {fault}" if spec is None else str(fault)) from None
    if str(asked).strip().endswith("%"):
        asked_source += f" of {found_source}"
    return asked_bytes, asked_source


def _device_sources() -> Iterator[Source]:
    limit = allocator.limit_bytes(os.environ)
    if limit is not None:
        yield limit, f"the allocator's limit, {allocator.LIMIT_MIB}={os.environ[allocator.LIMIT_MIB]}"
    yield from sorted(_gpu_sources())
    yield from _host_sources()


def _gpu_sources() -> Iterator[Source]:
    limits: tuple[int, ...] = ()
    if "tensorflow" in sys.modules:
        from memfit.budgeting import gpu_tf

        limits = gpu_tf.limits_bytes()
    for limit in limits:
        yield limit, "the GPU's logical limit"
    if not limits:
        for total in gpu.memory_bytes():
            yield total, "the GPU's memory"


def _host_sources() -> Iterator[Source]:
    available = machine.available_bytes()
    group = cgroup.read_group()
    if group is not None and group.limit_bytes is not None:
        left = max(0, group.limit_bytes - group.usage_bytes)
        if left < available:
            yield left, f"what is left of the container's limit, {group.limit_source}"
    yield available, "the host's available memory"
