"""The machine's own memory, read from the kernel with the standard library.

`import memfit` needs these figures, so this file imports nothing that takes time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from memfit.units import KIB

MEMINFO: Final = Path("/proc/meminfo")


def total_bytes() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_bytes(meminfo: Path = MEMINFO) -> int:
    """What new work could have now without swapping, in bytes, as the kernel estimates it."""
    for line in meminfo.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * KIB
    return total_bytes()


def num_cores() -> int:
    """How many CPU cores this process may run on."""
    return len(os.sched_getaffinity(0))
