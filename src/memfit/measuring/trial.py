"""`memfit.measure`: one function or script in a fresh process under limits, and what it took.

Memory can only be measured truly in a process that has done nothing else. A trial never hangs, never
leaves a process behind, and never takes another error for an out-of-memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import UsageError
from memfit.measuring import launching, process
from memfit.measuring.job import Call, Job, prepare_call
from memfit.measuring.script import Script
from memfit.records import Measurement

WATCH_SECONDS: Final = 0.02


def measure(
    target: Callable[..., Any] | str | os.PathLike[str],
    *arguments: Any,
    device_limit: str | int | None = None,
    host_limit: str | int | None = None,
    timeout_seconds: float = 600.0,
    clean: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Measurement:
    """What a function or a script takes in a fresh process, and how it ends.

    Args:
        target: A function defined at the top level of a module, or the path of a script. A function's
            result comes back in `value` and must be made of JSON values.
        *arguments: For the function, or the script's command line.
        device_limit: A hard limit on the device's memory, such as `"256MiB"`; `None` for none.
        host_limit: A limit on the resident memory of the process and its children. It is checked
            every 20 ms, and what exceeds it is ended.
        timeout_seconds: How long it may take before it is ended.
        clean: Whether an out-of-memory on the CPU is always an exception and never a crash, at
            the price of oneDNN.
        environment: Variables to set for the process.

    Returns:
        A `Measurement`. Whatever happens in the process is an outcome, not an exception.

    Raises:
        TrialError: If the function cannot be sent to a process, or its result cannot come back.
        UsageError: If the script is not there.

    Example:
    >>> import memfit, math
    >>> measured = memfit.measure(math.hypot, 3, 4)
    >>> measured.outcome.value, measured.value
    ('ok', 5.0)
    """
    job = Job(
        target=_target(target, arguments),
        parent=os.getpid(),
        signals=frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        device_limit_bytes=None if device_limit is None else find_budget(device_limit).device_bytes,
    )
    limit_bytes = None if host_limit is None else find_budget(host=host_limit).host_bytes
    variables = launching.environment_for(job.device_limit_bytes, is_clean=clean, extra=environment)
    with launching.started(job, variables, stream=os.pipe(), show=None) as child:
        is_late, host_bytes = _watch(child, timeout_seconds, limit_bytes)
        child.kill_all()
        return child.measurement(
            timeout_seconds=timeout_seconds if is_late else None,
            host_bytes=host_bytes,
            host_limit_bytes=limit_bytes,
        )


def find_script(path: str | os.PathLike[str]) -> str:
    """`path` as text, if there is a script.

    Raises:
        UsageError: If there is none.
    """
    script = Path(path)
    if script.is_dir() and not (script / "__main__.py").is_file():
        raise UsageError(f"{script} is a folder, not a script. Name the file in it: {script / 'train.py'}")
    if not script.exists():
        raise UsageError(f"there is no script {str(script)!r} in {Path.cwd()}. Check the name with: ls")
    return str(script)


def _target(target: Callable[..., Any] | str | os.PathLike[str], arguments: tuple[Any, ...]) -> Script | Call:
    if callable(target):
        return prepare_call(target, arguments)
    return Script(path=find_script(target), arguments=tuple(map(str, arguments)))


def _watch(
    child: launching.Child, timeout_seconds: float, limit_bytes: int | None
) -> tuple[bool, int | None]:
    """Waits for the end. Returns whether time ran out, and the host memory that was too much."""
    pause = timeout_seconds if limit_bytes is None else WATCH_SECONDS
    while (left := timeout_seconds - child.seconds()) > 0:
        try:
            child.process.wait(min(pause, left))
        except subprocess.TimeoutExpired:
            pass
        else:
            return False, None
        used = process.resident_bytes(child.process.pid) + process.children_bytes(child.process.pid)
        if limit_bytes is not None and used > limit_bytes:
            return False, used
    return True, None
