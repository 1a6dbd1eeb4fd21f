"""Who was meant by a signal: this process alone, or all of its process group, and so the child as well.

A signal does not say. A bystander does: a process in the same group that does nothing and lets signals wait,
so that one that was sent to the group can be seen with it. Jupyter interrupts a kernel in that way, and
`timeout` ends a command so; passed on once more, it would interrupt the child in the middle of its handling.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

COMMAND: Final = ("cat",)  # It waits for its input, which ends when this process does, however that happens.
GRACE_SECONDS: Final = 0.02  # A group is told one after another.


class Bystander:
    """A process of the same group in which signals wait that are blocked when it is started."""

    def __init__(self) -> None:
        self._process = self._start()

    def saw(self, signal_number: int) -> bool:
        """Whether a signal that has just arrived here was sent to the whole group."""
        time.sleep(GRACE_SECONDS)
        if not _is_waiting(self._process.pid, signal_number):
            return False
        self.stop()
        self._process = self._start()  # The next one of its kind would not be told from this one.
        return True

    def stop(self) -> None:
        """Ends it."""
        with self._process:  # Which closes its input.
            self._process.kill()

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


@contextmanager
def bystander() -> Iterator[Bystander]:
    """A bystander that is gone at the end."""
    found = Bystander()
    try:
        yield found
    finally:
        found.stop()


def _is_waiting(pid: int, signal_number: int) -> bool:
    """Whether a process has been sent a signal that it blocks, by the kernel's list."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "ShdPnd":
            return bool(int(value, 16) >> (signal_number - 1) & 1)
    return False
