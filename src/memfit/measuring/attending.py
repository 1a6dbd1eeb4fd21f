"""A script in a child process at the user's own terminal, as if it ran there by itself.

Input and output are the user's. Signals go through: those from the terminal reach the child anyway, since
it stays in the same process group, and those that were sent to memfit alone are passed on. Standard
error takes a way round, through a terminal of its own if the user has one, so that TensorFlow's log can
be taken out and a program that asks whether it writes to a terminal gets the right answer.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memfit.measuring import launching, process
from memfit.measuring.allocator_log import Dump
from memfit.measuring.bystander import Bystander, bystander
from memfit.measuring.host_series import HostSeries
from memfit.measuring.job import Companion, Job, read_report
from memfit.measuring.script import Script
from memfit.records import HostReading, Measurement

PASSED_ON: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
AWAITED: Final = PASSED_ON | {signal.SIGCHLD, signal.SIGWINCH}
SENT_BY_KERNEL: Final = 0x80  # SI_KERNEL in siginfo.h: a key at the terminal, which the child saw, too.
STANDARD_ERROR: Final = 2
PAUSE_SECONDS: Final = 0.2
LIMITED_PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """What was seen of a script at the user's terminal.

    Attributes:
        measurement: What it took, and how it ended.
        dump: The allocator's chunks when a request failed last, or `None`.
        host_readings: Host memory over time.
        place: The user's line where it ended, or `None`.
        told: What the companion said at the end, or `None` if it did not come to it.
        files: What the companion left in the shared folder, by name.
    """

    measurement: Measurement
    dump: Dump | None
    host_readings: tuple[HostReading, ...]
    place: str | None
    told: Any
    files: dict[str, str]


def attend(
    script: Script,
    *,
    device_limit_bytes: int | None = None,
    host_limit_bytes: int | None = None,
    clean: bool = False,
    companion: Companion | None = None,
    variables: Mapping[str, str] | None = None,
) -> Attended:
    """Runs a script as plain Python would, with meters on, and returns what was seen of it.

    Args:
        script: The script.
        device_limit_bytes: A hard limit on the device's memory, or `None`.
        host_limit_bytes: What the script and its children may have of the host's memory before they are
            ended, or `None`.
        clean: Whether an out-of-memory on the CPU is always an exception, at the price of oneDNN.
        companion: What goes with the script into its process, or `None`.
        variables: Variables to set for the script, on top of all others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    try:
        job = Job(
            target=script,
            parent=os.getpid(),
            signals=frozenset(before),
            device_limit_bytes=device_limit_bytes,
            companion=companion,
        )
        environment = launching.environment_for(device_limit_bytes, is_clean=clean)
        environment.update(variables or {})
        stream = _terminal() if os.isatty(STANDARD_ERROR) else os.pipe()
        with (
            bystander() as group,
            launching.started(job, environment, stream=stream, show=_show) as child,
        ):
            watch = _HostWatch(child, host_limit_bytes)
            _pass_signals(child, stream[0], watch, group)
            measurement = child.measurement(
                host_bytes=watch.exceeded_bytes, host_limit_bytes=host_limit_bytes
            )
            report = read_report(child.folder)
            attended = Attended(
                measurement=measurement,
                dump=child.listener.dump_reader.dump,
                host_readings=watch.series.readings(),
                place=launching.fault_place(child.folder) or (report.place if report else None),
                told=report.told if report else None,
                files=_files_left(child.folder),
            )
        if measurement.exit_code < 0 and not measurement.outcome.is_out_of_memory:
            _show("".join(f"{line}\n" for line in child.listener.log).encode())
        return attended
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _HostWatch:
    """Keeps what the script has of the host's memory, and ends it above a limit."""

    def __init__(self, child: launching.Child, limit_bytes: int | None) -> None:
        self.series = HostSeries()
        self.exceeded_bytes: int | None = None
        self._child = child
        self._limit_bytes = limit_bytes

    def look(self) -> None:
        """Reads once."""
        pid = self._child.process.pid
        used = process.resident_bytes(pid) + process.children_bytes(pid)
        if not used:  # It has ended, and nobody has waited for it yet.
            return
        self.series.add(self._child.seconds(), used)
        if self._limit_bytes is not None and used > self._limit_bytes:
            self.exceeded_bytes = used
            self._child.kill_all()

    @property
    def pause_seconds(self) -> float:
        """How long to wait until the next look."""
        return PAUSE_SECONDS if self._limit_bytes is None else LIMITED_PAUSE_SECONDS


def _pass_signals(child: launching.Child, terminal: int, watch: _HostWatch, group: Bystander) -> None:
    """Waits for the child's end, and passes on what arrives for it meanwhile."""
    while child.process.poll() is None:
        arrived = signal.sigtimedwait(AWAITED, watch.pause_seconds)
        if arrived is None:
            watch.look()
        elif arrived.si_signo == signal.SIGCHLD:
            continue
        elif arrived.si_signo == signal.SIGWINCH:
            _copy_size(terminal)
        elif arrived.si_code != SENT_BY_KERNEL and not group.saw(arrived.si_signo):
            child.process.send_signal(arrived.si_signo)


def _files_left(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in folder.glob("companion-*")}


def _terminal() -> tuple[int, int]:
    """Two ends of a terminal of the user's size that changes nothing in what is written to it."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    _copy_size(ours)
    return ours, theirs


def _copy_size(terminal: int) -> None:
    if os.isatty(terminal) and os.isatty(STANDARD_ERROR):
        termios.tcsetwinsize(terminal, termios.tcgetwinsize(STANDARD_ERROR))


def _show(text: bytes) -> None:
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()
