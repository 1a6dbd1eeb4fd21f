"""Whether memory was in pieces, or with someone else. Pure but for one look at the other processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import Final

import psutil

from memfit.measuring.allocator_log import Dump
from memfit.records import Neighbour
from memfit.units import MIB, format_bytes

# Another process is worth a word if it has this share of what the script could have.
NOTABLE_SHARE: Final = 0.1
MOST_NEIGHBOURS: Final = 3
GPU_QUERY: Final = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
GPU_TIMEOUT_SECONDS: Final = 10


def why_fragmented(dump: Dump | None, request_bytes: int | None) -> str:
    """A sentence if enough was free but not in one piece; empty otherwise.

    Example:
    >>> from collections import Counter
    >>> why_fragmented(Dump(free=Counter({2 * MIB: 10})), 5 * MIB)
    '20.0 MiB were free, enough for the 5.00 MiB that were asked for, but the largest piece had 2.00 MiB.'
    >>> why_fragmented(Dump(free=Counter({2 * MIB: 2})), 5 * MIB)
    ''
    """
    if dump is None or request_bytes is None:
        return ""
    if not dump.largest_free_bytes < request_bytes <= dump.free_bytes:
        return ""
    return (
        f"{format_bytes(dump.free_bytes)} were free, enough for the {format_bytes(request_bytes)} that were "
        f"asked for, but the largest piece had {format_bytes(dump.largest_free_bytes)}."
    )


def host_neighbours(
    own: Iterable[int], *, whole_bytes: int, shares: Callable[[int], bool] = lambda _: True
) -> tuple[Neighbour, ...]:
    """The other processes with the most of the host's memory, if it is a notable share of it.

    Args:
        own: Process ids that do not count.
        whole_bytes: What the host, or the container, has.
        shares: Whether a process has its memory from there.
    """
    excluded = {os.getpid(), *own}
    found = [
        Neighbour(
            name=process.info["name"] or "?", pid=process.pid, num_bytes=process.info["memory_info"].rss
        )
        for process in psutil.process_iter(("name", "memory_info"))
        if process.pid not in excluded and process.info["memory_info"] is not None and shares(process.pid)
    ]
    return notable(found, whole_bytes=whole_bytes)


def gpu_neighbours(own: Iterable[int], *, whole_bytes: int) -> tuple[Neighbour, ...]:
    """The other processes with the most of the GPUs' memory, as `nvidia-smi` reports them; empty without it.

    No GPU has run this code: it follows `nvidia-smi --help-query-compute-apps`.
    """
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    try:
        answer = subprocess.run(
            (command, *GPU_QUERY), capture_output=True, text=True, timeout=GPU_TIMEOUT_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    excluded = {os.getpid(), *own}
    found = [each for each in map(_gpu_neighbour, answer.splitlines()) if each and each.pid not in excluded]
    return notable(found, whole_bytes=whole_bytes)


def _gpu_neighbour(line: str) -> Neighbour | None:
    pid, _, rest = line.partition(",")
    name, _, used = rest.rpartition(",")
    if not pid.strip().isdigit() or not used.strip().isdigit():
        return None
    return Neighbour(name=name.strip(), pid=int(pid), num_bytes=int(used) * MIB, memory="GPU")


def notable(found: Iterable[Neighbour], *, whole_bytes: int) -> tuple[Neighbour, ...]:
    """The largest few of those that have a notable share."""
    large = [each for each in found if each.num_bytes >= NOTABLE_SHARE * whole_bytes]
    return tuple(sorted(large, key=lambda each: each.num_bytes, reverse=True)[:MOST_NEIGHBOURS])
