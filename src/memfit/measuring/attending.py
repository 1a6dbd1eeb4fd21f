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
from collections.abc import Sequence
from typing import Final

from memfit.measuring import launching
from memfit.measuring.job import Job, Script
from memfit.measuring.trial import find_script
from memfit.records import Measurement

PASSED_ON: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
AWAITED: Final = PASSED_ON | {signal.SIGCHLD, signal.SIGWINCH}
SENT_BY_KERNEL: Final = 0x80  # SI_KERNEL in siginfo.h: a key at the terminal, which the child saw, too.
STANDARD_ERROR: Final = 2


def attend(
    script: str,
    arguments: Sequence[str] = (),
    *,
    device_limit_bytes: int | None = None,
    clean: bool = False,
) -> Measurement:
    """Runs a script as plain Python would, with meters on, and returns what it took.

    Args:
        script: Its path.
        arguments: Its command line.
        device_limit_bytes: A hard limit on the device's memory, or `None`.
        clean: Whether an out-of-memory on the CPU is always an exception, at the price of oneDNN.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    try:
        job = Job(
            target=Script(path=find_script(script), arguments=tuple(arguments)),
            parent=os.getpid(),
            signals=frozenset(before),
            device_limit_bytes=device_limit_bytes,
        )
        environment = launching.environment_for(device_limit_bytes, is_clean=clean)
        stream = _terminal() if os.isatty(STANDARD_ERROR) else os.pipe()
        with launching.started(job, environment, stream=stream, show=_show) as child:
            _pass_signals(child, stream[0])
            measurement = child.measurement()
        if measurement.exit_code < 0 and not measurement.outcome.is_out_of_memory:
            _show("".join(f"{line}\n" for line in child.listener.log).encode())
        return measurement
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_signals(child: launching.Child, terminal: int) -> None:
    """Waits for the child's end, and passes on what arrives for it meanwhile."""
    while child.process.poll() is None:
        arrived = signal.sigtimedwait(AWAITED, 0.2)
        if arrived is None or arrived.si_signo == signal.SIGCHLD:
            continue
        if arrived.si_signo == signal.SIGWINCH:
            _copy_size(terminal)
        elif arrived.si_code != SENT_BY_KERNEL:
            child.process.send_signal(arrived.si_signo)


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
