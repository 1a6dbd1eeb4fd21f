"""Starting a child process, listening to it, and leaving nothing of it behind.

A child runs in the environment of its limits, writes what it prints through a filter that takes out
TensorFlow's log, and carries a tag in its environment that its own children inherit: whatever still has
the tag at the end is ended. What the end of it means is left to `outcome`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from memfit.budgeting import allocator, cgroup
from memfit.errors import TrialError
from memfit.measuring import oom
from memfit.measuring.allocator_log import DumpReader
from memfit.measuring.child import LOG_LEVEL
from memfit.measuring.job import FAULT_NAME, Job, read_latest, read_report
from memfit.measuring.noise import LogFilter
from memfit.measuring.outcome import Ending, failed_request, judge
from memfit.measuring.places import first_user_place
from memfit.records import Measurement, Outcome, Request

TAG: Final = "MEMFIT_TRIAL"
# The package's own folder goes last on the path, so that a child finds memfit wherever its parent did.
BOOTSTRAP: Final = """\
import sys
sys.path.append(sys.argv[2])
from memfit.measuring.child import main
main(sys.argv[1])
"""
DRAIN_SECONDS: Final = 5.0
KEPT_OUTPUT_BYTES: Final = 65_536
KEPT_LOG_LINES: Final = 40
PIECE_BYTES: Final = 65_536


class Listener(threading.Thread):
    """Reads what a child writes until the end, without TensorFlow's log, and keeps what the log tells.

    Args:
        stream: The descriptor to read from. It is closed at the end.
        show: Called with what the child itself wrote, as it comes.
    """

    def __init__(self, stream: int, show: Callable[[bytes], None]) -> None:
        super().__init__(name="memfit-listener", daemon=True)
        self.requests: list[Request] = []
        self.request_seconds: float | None = None
        self.log: list[str] = []
        self.is_bad_alloc = False
        self.dump_reader = DumpReader()
        self._stream = stream
        self._show = show
        self._filter = LogFilter(self._on_log)

    def run(self) -> None:
        """Reads until every process that could write has ended."""
        while piece := self._read():
            self._pass_on(self._filter.feed(piece))
        self._pass_on(self._filter.close())
        os.close(self._stream)

    def _read(self) -> bytes:
        try:
            return os.read(self._stream, PIECE_BYTES)
        except OSError:  # A terminal whose other side is closed reports an error, not an end.
            return b""

    def _pass_on(self, text: bytes) -> None:
        self.is_bad_alloc = self.is_bad_alloc or b"std::bad_alloc" in text
        if text:
            self._show(text)

    def _on_log(self, line: str) -> None:
        request = oom.read_log_line(line)
        if request is not None:
            self.requests.append(request)
            self.request_seconds = time.monotonic()
        self.dump_reader.feed(line)
        self.log = [*self.log, line][-KEPT_LOG_LINES:]


class Tail:
    """The end of an output, however long it is."""

    def __init__(self) -> None:
        self._kept = b""

    def add(self, text: bytes) -> None:
        """Takes in more output."""
        self._kept = (self._kept + text)[-KEPT_OUTPUT_BYTES:]

    def __str__(self) -> str:
        return self._kept.decode(errors="replace")


@dataclass(kw_only=True)
class Child:
    """A child process that has been started. Use `started`."""

    job: Job
    folder: Path
    tag: str
    process: subprocess.Popen[bytes]
    listener: Listener
    tail: Tail
    start_seconds: float = field(default_factory=time.monotonic)
    num_kills_before: int = field(default_factory=lambda: _num_kernel_kills())

    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.start_seconds

    def kill_all(self) -> None:
        """Ends the child and all that it started, wherever they went."""
        self.process.kill()
        self.process.wait()
        while survivors := _tagged(self.tag):
            for survivor in survivors:
                _kill(survivor)
            psutil.wait_procs(survivors, timeout=0.1)

    def measurement(
        self,
        *,
        timeout_seconds: float | None = None,
        host_bytes: int | None = None,
        host_limit_bytes: int | None = None,
    ) -> Measurement:
        """What there is to say of the child, once it has ended.

        Raises:
            TrialError: If a function's result cannot come back.
        """
        exit_code = self.process.wait()
        end_seconds = time.monotonic()
        self.listener.join(DRAIN_SECONDS)
        report = read_report(self.folder)
        if report is not None and report.value_error is not None:
            raise TrialError(
                f"what {self.job.target} returned cannot come back: {report.value_error}. Return numbers, "
                "text, lists and dicts of them, or None."
            )
        request_seconds = self.listener.request_seconds
        ending = Ending(
            exit_code=exit_code,
            report=report,
            requests=tuple(self.listener.requests),
            seconds_since_request=end_seconds - request_seconds if request_seconds else None,
            num_kernel_kills=_num_kernel_kills() - self.num_kills_before,
            is_bad_alloc=self.listener.is_bad_alloc,
            timeout_seconds=timeout_seconds,
            host_bytes=host_bytes,
            host_limit_bytes=host_limit_bytes,
            place=fault_place(self.folder),
        )
        outcome, reason = judge(ending)
        reading = report.reading if report else read_latest(self.folder)
        fullest = reading.fullest_device() if reading else None
        return Measurement(
            target=str(self.job.target),
            outcome=outcome,
            reason=reason,
            seconds=end_seconds - self.start_seconds,
            exit_code=exit_code,
            peak_bytes=fullest.peak_bytes if fullest else None,
            is_peak_exact=report is not None,
            reading=reading,
            device_limit_bytes=self.job.device_limit_bytes,
            host_limit_bytes=host_limit_bytes,
            request=failed_request(ending) if outcome is not Outcome.OK or ending.requests else None,
            num_failed_requests=len(ending.requests),
            value=report.value if report else None,
            output=str(self.tail),
        )


@contextmanager
def started(
    job: Job,
    environment: Mapping[str, str],
    *,
    stream: tuple[int, int],
    show: Callable[[bytes], None] | None,
) -> Iterator[Child]:
    """A child that runs `job`.

    Args:
        job: What to run.
        environment: The child's environment; see `environment_for`.
        stream: The two ends, to read and to write, of a pipe or terminal for the child's standard error.
        show: Called with what the child writes to `stream`, less TensorFlow's log, while the child shares
            this process's terminal and session. With `None` the child is alone: no input, all its output
            kept, a session of its own, and all that it started is ended on leaving.
    """
    is_alone = show is None
    tag = uuid.uuid4().hex
    read_end, write_end = stream
    with tempfile.TemporaryDirectory(prefix="memfit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job.save(folder)
        home = str(Path(__file__).resolve().parents[2])
        process = subprocess.Popen(
            (sys.executable, "-c", BOOTSTRAP, name, home),
            env={**environment, TAG: f"{os.environ.get(TAG, '')}:{tag}"},
            stdin=subprocess.DEVNULL if is_alone else None,
            stdout=write_end if is_alone else None,
            stderr=write_end,
            start_new_session=is_alone,
        )
        os.close(write_end)
        tail = Tail()
        listener = Listener(read_end, show or tail.add)
        listener.start()
        child = Child(job=job, folder=folder, tag=tag, process=process, listener=listener, tail=tail)
        try:
            yield child
        finally:
            if is_alone:
                child.kill_all()
            process.wait()


def environment_for(
    device_limit_bytes: int | None, *, is_clean: bool, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """This process's environment with the true meter on, and a limit if there is one."""
    environment = {**os.environ, **(extra or {})}
    allocator.turn_on(environment)
    if device_limit_bytes is not None:
        allocator.set_limit(environment, device_limit_bytes)
    if is_clean:
        environment[allocator.ONEDNN] = "0"
    environment.setdefault(LOG_LEVEL, "0")
    return environment


def _num_kernel_kills() -> int:
    """How many processes of this container, or else of this host, the kernel killed for want of memory."""
    group = cgroup.read_group()
    return group.num_kills if group else cgroup.num_host_kills()


def fault_place(folder: Path) -> str | None:
    """The user's line in what Python's fault handler wrote, if the child crashed.

    It writes a section a thread. The one that crashed is called current, if it ran Python code at all; the
    main thread, which waits for TensorFlow's threads, comes last.
    """
    try:
        sections = (folder / FAULT_NAME).read_text().split("\n\n")
    except OSError:
        return None
    sections.sort(key=lambda section: "Current thread" in section)
    frames = re.findall(r'^  File "(.+)", line (\d+) in', "\n".join(reversed(sections)), re.MULTILINE)
    return first_user_place((name, int(line)) for name, line in frames)


def _tagged(tag: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _has_tag(process, tag)]


def _has_tag(process: psutil.Process, tag: str) -> bool:
    try:
        is_over = process.status() == psutil.STATUS_ZOMBIE
        return not is_over and tag in process.environ().get(TAG, "")
    except (psutil.Error, OSError):
        return False


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.Error):
        process.kill()
