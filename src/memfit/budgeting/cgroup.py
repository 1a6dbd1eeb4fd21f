"""The container's memory: limit, use and kills, from control groups of both versions.

A process stands in a tree of groups, and every group above it limits it, too: the limit is the
least on the way up. What a container sees of that tree may begin anywhere, so paths that
`/proc/self/cgroup` names and that are not there are taken as the mounted root itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Version 1 writes "no limit" as the largest page-aligned number; version 2 writes "max".
NO_LIMIT_BYTES: Final = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The names that one version of the interface has for the same things."""

    limits: tuple[str, ...]
    usage: str
    cache: str
    kills: str


VERSION_1: Final = Version(
    limits=("memory.limit_in_bytes",),
    usage="memory.usage_in_bytes",
    cache="total_inactive_file",
    kills="memory.oom_control",
)
VERSION_2: Final = Version(
    limits=("memory.max", "memory.high"),
    usage="memory.current",
    cache="inactive_file",
    kills="memory.events",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The memory group that a process is in.

    Attributes:
        path: The group's folder.
        limit_bytes: The least limit of this group and of those above it, or `None`.
        limit_source: The file that says so; empty without a limit.
        usage_bytes: What the group is charged with, less file cache that the kernel would drop.
        num_kills: How many processes the kernel has killed in this group for want of memory.
    """

    path: Path
    limit_bytes: int | None
    limit_source: str
    usage_bytes: int
    num_kills: int


def read_group(root: Path = Path("/"), process: str = "self") -> Group | None:
    """The memory group of a process, or `None` where there is no group or it has no memory files.

    Args:
        root: The folder that stands for `/`, so that a test can build a tree of its own.
        process: The process id, or `"self"`.
    """
    for version, mount, path in _candidates(root, process):
        for folder in (mount / path.lstrip("/"), mount):
            if (folder / version.usage).is_file():
                return _read(version, mount, folder)
    return None


def num_host_kills(root: Path = Path("/")) -> int:
    """How many processes the kernel has killed on this host for want of memory, since it started."""
    return _counter(root / "proc" / "vmstat", "oom_kill")


def _candidates(root: Path, process: str) -> Iterator[tuple[Version, Path, str]]:
    """Mount point and path of the process's group, version 1 first: a hybrid system keeps memory there."""
    paths = {}
    for line in _lines(root / "proc" / process / "cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers] = path
    for line in _lines(root / "proc" / process / "mountinfo"):
        left, _, right = line.partition(" - ")
        kind, *options = right.split()
        mount_root, mount = left.split()[3:5]
        if kind == "cgroup" and "memory" in options[-1].split(","):
            for controllers, path in paths.items():
                if "memory" in controllers.split(","):
                    yield VERSION_1, root / mount.lstrip("/"), _below(path, mount_root)
        elif kind == "cgroup2" and "" in paths:
            yield VERSION_2, root / mount.lstrip("/"), _below(paths[""], mount_root)


def _below(path: str, mount_root: str) -> str:
    """`path` as seen from a mount that shows only what is below `mount_root`."""
    return path.removeprefix(mount_root.rstrip("/"))


def _read(version: Version, mount: Path, folder: Path) -> Group:
    limit, source = min(_limits(version, mount, folder), default=(None, ""))
    usage = _number(folder / version.usage) or 0
    return Group(
        path=folder,
        limit_bytes=limit,
        limit_source=source,
        usage_bytes=max(0, usage - _counter(folder / "memory.stat", version.cache)),
        num_kills=_counter(folder / version.kills, "oom_kill"),
    )


def _limits(version: Version, mount: Path, folder: Path) -> Iterator[tuple[int, str]]:
    for group in (folder, *folder.parents):
        for name in version.limits:
            limit = _number(group / name)
            if limit is not None and 0 <= limit < NO_LIMIT_BYTES:
                yield limit, str(group / name)
        if group == mount:
            return


def _number(file: Path) -> int | None:
    """The number in a file; `None` for "max", for "-1", and where there is no file."""
    (line, *_) = _lines(file) or [""]
    return int(line) if line.isdigit() else None


def _counter(file: Path, name: str) -> int:
    for line in _lines(file):
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
