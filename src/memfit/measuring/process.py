"""Memory of this process, of its children, and of the container they run in."""

from __future__ import annotations

from pathlib import Path

import psutil

from memfit.units import KIB


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process in bytes; of this one by default, 0 if it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def peak_resident_bytes(pid: int | None = None) -> int:
    """The most resident memory that a process ever had, in bytes; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid or 'self'}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB
    return 0  # A process that has ended but was not waited for has no memory left.


def children_bytes(pid: int | None = None) -> int:
    """Resident memory of all descendants of a process together, in bytes.

    Pages that several of them share are counted in each: an upper bound.
    """
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    return sum(resident_bytes(child.pid) for child in children)
