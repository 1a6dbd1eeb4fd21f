"""Runs a script with everything on, starts it again if it is asked to, and says what became of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from memfit.budgeting import allocator, cgroup, machine
from memfit.errors import RecordError
from memfit.guarding import fragments
from memfit.guarding.autopsy import Evidence, needs_autopsy, perform
from memfit.guarding.story import INVENTORY_NAME, STORY_NAME, read_story
from memfit.measuring.attending import Attended, attend
from memfit.measuring.script import Script
from memfit.records import Autopsy, Inventory, Neighbour, Run, Session, Watched
from memfit.running.companion import Companion
from memfit.running.settings import Settings, tighten


def supervise(
    script: Script, settings: Settings, *, num_restarts: int, say: Callable[[str], None]
) -> Session:
    """Runs a script as `memfit run` does.

    Args:
        script: The script.
        settings: How to run it.
        num_restarts: How often it may be started again after it died of memory or was killed.
        say: Called with a sentence for what could not be watched, and when it is started again.
    """
    restarts: list[str] = []
    with _checkpoints(num_restarts) as folder:
        settings = replace(settings, resume_folder=folder)
        while True:
            session, has_fit = _attempt(script, settings, say)
            tighter = tighten(settings, session.measurement, has_fit=has_fit)
            if tighter is None or len(restarts) == num_restarts:
                return replace(session, restarts=tuple(restarts))
            settings, words = tighter
            restarts.append(words)
            say(f"restart {len(restarts)} of {num_restarts}: {words}")


@contextmanager
def _checkpoints(num_restarts: int) -> Iterator[str | None]:
    """A folder for the checkpoints of all attempts, gone at the end; none without restarts."""
    if not num_restarts:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="memfit-restarts-", ignore_cleanup_errors=True) as folder:
        yield folder


def _attempt(script: Script, settings: Settings, say: Callable[[str], None]) -> tuple[Session, bool]:
    """What became of a script, and whether it came to train with `model.fit`."""
    attended = attend(
        script,
        device_limit_bytes=settings.wall_bytes,
        host_limit_bytes=settings.host_limit_bytes,
        clean=settings.is_clean,
        companion=Companion(settings=settings),
        variables=_variables(settings),
    )
    measurement = attended.measurement
    if settings.budget_bytes is not None:
        measurement = replace(measurement, device_limit_bytes=settings.budget_bytes)
    told = attended.told if isinstance(attended.told, dict) else {}
    for note in told.get("unsaid", ()):
        say(note)
    runs = tuple(Run.from_dict(each) for each in told.get("runs", ()))
    seen = replace(attended, measurement=measurement)
    session = Session(
        measurement=measurement,
        runs=runs,
        autopsy=_autopsy(seen, settings, told, runs) if needs_autopsy(measurement) else None,
        watched=None if told.get("watched") is None else Watched.from_dict(told["watched"]),
        host_readings=attended.host_readings,
        notes=tuple(told.get("notes", ())),
    )
    return session, STORY_NAME in attended.files and bool(attended.files[STORY_NAME])


def _variables(settings: Settings) -> dict[str, str]:
    """What the script's own calls of memfit are to find: the budget, not the wall above it."""
    return {} if settings.budget_bytes is None else {allocator.BUDGET: str(settings.budget_bytes)}


def _autopsy(seen: Attended, settings: Settings, told: dict[str, Any], runs: tuple[Run, ...]) -> Autopsy:
    return perform(
        Evidence(
            measurement=seen.measurement,
            place=seen.place,
            is_observed=settings.is_observed,
            dump=seen.dump,
            inventory=_inventory(seen, told),
            moments=read_story(seen.files.get(STORY_NAME, "")),
            host_readings=seen.host_readings,
            neighbours=_neighbours(),
            plan=runs[-1].plan if runs else None,
        )
    )


def _inventory(seen: Attended, told: dict[str, Any]) -> Inventory | None:
    """What the process said at its end, or else what it wrote down while it was alive."""
    try:
        if told.get("inventory") is not None:
            return Inventory.from_dict(told["inventory"])
        return Inventory.from_json(seen.files[INVENTORY_NAME])
    except (KeyError, RecordError):
        return None


def _neighbours() -> tuple[Neighbour, ...]:
    own = (os.getpid(), os.getppid())
    total = machine.total_bytes()
    return (*_host_neighbours(own, total), *fragments.gpu_neighbours(own, whole_bytes=total))


def _host_neighbours(own: tuple[int, ...], total: int) -> tuple[Neighbour, ...]:
    """Those with the same memory: of the machine, or, where a container has a limit, of that container."""
    group = cgroup.read_group()
    if group is None or group.limit_bytes is None or group.limit_bytes >= total:
        return fragments.host_neighbours(own, whole_bytes=total)
    container = Path(group.limit_source).parent

    def is_inside(pid: int) -> bool:
        other = cgroup.read_group(process=str(pid))
        return other is not None and other.path.is_relative_to(container)

    return fragments.host_neighbours(own, whole_bytes=group.limit_bytes, shares=is_inside)
