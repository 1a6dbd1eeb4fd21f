"""What a child process is to run, and the files through which it answers.

Parent and child share one private folder: the job goes in, the latest reading and the report come
out. The reading is overwritten in place many times a second and survives whatever ends the child.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any, Final, Protocol

from memfit.decoding import decode, encode
from memfit.errors import RecordError, TrialError
from memfit.measuring.script import Script
from memfit.records import Reading, Request

JOB_NAME: Final = "job.pickle"
LATEST_NAME: Final = "latest.json"
REPORT_NAME: Final = "report.json"
FAULT_NAME: Final = "fault.txt"
PREPARING: Final = "MEMFIT_PREPARING"  # Set while a child imports the module that its function is in.
LATEST_SIZE: Final = 4096  # A reading, padded with spaces so that each overwrites the last.


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function with its arguments, pickled, and what a fresh process needs to find it."""

    name: str
    preparation: dict[str, Any]
    payload: bytes

    def __str__(self) -> str:
        return self.name


class Companion(Protocol):
    """What goes with a target into its process, beside the meters. It is pickled with the job."""

    def begin(self, folder: Path) -> None:
        """Called before the target runs.

        Args:
            folder: The folder that parent and child share.
        """

    def loaded(self, name: str) -> None:
        """Called when `"tensorflow"` or `"keras"` was imported for the first time, whole."""

    def end(self, error: BaseException | None) -> Any:
        """Called when the target has ended, with what it raised; what it returns goes into the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run, and how.

    Attributes:
        target: The script or the function.
        parent: The parent's process id: the child ends when that process does.
        signals: The signals that were blocked before the parent blocked its own.
        device_limit_bytes: The limit on each device, or `None`.
        companion: What goes with the target, or `None`.
    """

    target: Script | Call
    parent: int
    signals: frozenset[int]
    device_limit_bytes: int | None
    companion: Companion | None = None

    def save(self, folder: Path) -> None:
        """Writes the job where the child will look for it."""
        (folder / JOB_NAME).write_bytes(pickle.dumps(self))

    @staticmethod
    def load(folder: Path) -> Job:
        """The job that the parent wrote."""
        job = pickle.loads((folder / JOB_NAME).read_bytes())  # noqa: S301 - our own, in a private folder
        assert isinstance(job, Job)
        return job


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the child says at its end, if it comes to say anything.

    Attributes:
        reading: All meters at the end.
        error: The exception that ended it, in one line, or `None`.
        is_device_oom: Whether that was a device out of memory.
        is_host_oom: Whether that was Python out of memory.
        place: The user's line where it happened, `"train.py:30"`, or `None`.
        request: The allocation that failed, as far as the exception says, or `None`.
        value: What the function returned.
        value_error: Why the value cannot be sent back, or `None`.
        told: What the job's companion said at the end.
    """

    reading: Reading
    error: str | None = None
    is_device_oom: bool = False
    is_host_oom: bool = False
    place: str | None = None
    request: Request | None = None
    value: Any = None
    value_error: str | None = None
    told: Any = None


def prepare_call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Call:
    """`function` and its arguments in a form that a fresh process can take.

    Raises:
        TrialError: If they cannot be sent there, such as a lambda or a function inside a function.
    """
    if PREPARING in os.environ:
        raise TrialError(
            f"a trial of {os.environ[PREPARING]} imports the script it is in, and that script starts a "
            "trial when it is imported. Put what the script does below: if __name__ == '__main__':"
        )
    name = getattr(function, "__qualname__", None) or repr(function)
    remedy = (
        "Give a function that is defined at the top level of a module (functools.partial of one is "
        "fine), or a script."
    )
    try:
        payload = pickle.dumps((function, arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as fault:
        raise TrialError(f"{name} cannot be sent to a fresh process: {fault}. {remedy}") from None
    preparation = spawn.get_preparation_data(name)
    del preparation["authkey"]  # It is for multiprocessing's own connections, and refuses to be pickled.
    if b"__main__" not in payload:  # Then the main module need not be run a second time.
        preparation.pop("init_main_from_path", None)
        preparation.pop("init_main_from_name", None)
    elif not preparation.keys() & {"init_main_from_path", "init_main_from_name"}:
        raise TrialError(
            f"{name} is defined in an interactive session, where a fresh process cannot find it. {remedy}"
        )
    return Call(name=name, preparation=preparation, payload=payload)


def write_latest(file: int, reading: Reading) -> None:
    """Overwrites the latest reading, in one system call."""
    os.pwrite(file, json.dumps(reading.to_dict()).encode().ljust(LATEST_SIZE), 0)


def read_latest(folder: Path) -> Reading | None:
    """The last reading that the child wrote, or `None` if it wrote none."""
    try:
        return Reading.load(folder / LATEST_NAME)
    except RecordError:
        return None


def write_report(folder: Path, report: Report) -> None:
    """Leaves the child's report for the parent."""
    (folder / REPORT_NAME).write_text(json.dumps(encode(report)))


def read_report(folder: Path) -> Report | None:
    """The child's report, or `None` if it died without one, or in the middle of it."""
    try:
        return decode(Report, json.loads((folder / REPORT_NAME).read_text()))
    except (OSError, ValueError):
        return None
