"""How a process ended, from all that is known of it afterwards. Pure: facts in, an outcome out.

The order of the questions matters: what memfit itself did to the process comes first, then what
the process said, then what the kernel and TensorFlow's log say of a process that could say nothing.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from memfit.measuring.job import Report
from memfit.records import Outcome, Request
from memfit.units import format_bytes, format_seconds

# How long after TensorFlow logged a failed request a crash is still its doing. It comes at once; the
# rest is for a machine that is busy.
CRASH_SECONDS: Final = 5.0
CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """All that is known of a process that has ended.

    Attributes:
        exit_code: What it returned, or minus the signal that ended it.
        report: What it said at its end, or `None`.
        requests: The allocations that TensorFlow logged as failed, in order.
        seconds_since_request: Time from the last of those to the end, or `None`.
        num_kernel_kills: How many processes the kernel killed meanwhile for want of memory.
        is_bad_alloc: Whether C++ code said that the host gave it no memory.
        timeout_seconds: The time after which memfit stopped it, or `None` if it did not.
        host_bytes: The memory at which memfit stopped it, or `None` if it did not.
        host_limit_bytes: The limit on the host, or `None`.
        place: The user's line that ran when it crashed, or `None`.
    """

    exit_code: int
    report: Report | None = None
    requests: tuple[Request, ...] = ()
    seconds_since_request: float | None = None
    num_kernel_kills: int = 0
    is_bad_alloc: bool = False
    timeout_seconds: float | None = None
    host_bytes: int | None = None
    host_limit_bytes: int | None = None
    place: str | None = None


def judge(ending: Ending) -> tuple[Outcome, str]:
    """The outcome, and a sentence that says why."""
    if ending.timeout_seconds is not None:
        return Outcome.TIMEOUT, f"it was stopped after {format_seconds(ending.timeout_seconds)}."
    if ending.host_bytes is not None and ending.host_limit_bytes is not None:
        return Outcome.HOST_OUT_OF_MEMORY, (
            f"it was stopped at {format_bytes(ending.host_bytes)} of host memory, above the limit of "
            f"{format_bytes(ending.host_limit_bytes)}."
        )
    if ending.exit_code == 0:
        return Outcome.OK, _survived(ending)
    if ending.report is not None and ending.report.is_device_oom:
        return Outcome.DEVICE_OUT_OF_MEMORY, _asked(ending)
    if ending.report is not None and ending.report.is_host_oom:
        return Outcome.HOST_OUT_OF_MEMORY, f"{ending.report.error}{_at(ending)}."
    if ending.exit_code < 0:
        return _judge_signal(signal.Signals(-ending.exit_code), ending)
    if ending.report is not None and ending.report.error is not None:
        return Outcome.ERROR, ending.report.error
    return Outcome.ERROR, f"it ended with exit code {ending.exit_code}."


def failed_request(ending: Ending) -> Request | None:
    """The last allocation that failed: TensorFlow's log says how much, its exception which shape."""
    said = ending.report.request if ending.report is not None else None
    if not ending.requests:
        return said
    logged = ending.requests[-1]
    return Request(
        num_bytes=logged.num_bytes,
        op=logged.op or (said.op if said else None),
        shape=said.shape if said else None,
        device=logged.device or (said.device if said else None),
    )


def describe_request(request: Request | None) -> str:
    """A failed allocation in words.

    Example:
    >>> describe_request(Request(num_bytes=2**24, op="MatMul", shape=(2048, 2048)))
    'MatMul asked for 16.0 MiB, shape [2048, 2048]'
    """
    if request is None:
        return "TensorFlow did not say what was asked for"
    size = "memory" if request.num_bytes is None else format_bytes(request.num_bytes)
    shape = "" if request.shape is None else f", shape {list(request.shape)}"
    return f"{request.op or 'an op'} asked for {size}{shape}"


def _judge_signal(number: signal.Signals, ending: Ending) -> tuple[Outcome, str]:
    is_prompt = (ending.seconds_since_request or 0.0) <= CRASH_SECONDS
    if number in CRASHES and ending.requests and is_prompt:
        return Outcome.DEVICE_OUT_OF_MEMORY, (
            f"{_asked(ending)} oneDNN turned the failed request into a crash ({number.name})."
        )
    if number == signal.SIGABRT and ending.is_bad_alloc:
        return (
            Outcome.HOST_OUT_OF_MEMORY,
            f"the host gave C++ code no memory (std::bad_alloc){_at(ending)}.",
        )
    if number in CRASHES:
        return Outcome.ERROR, f"it crashed ({number.name}){_at(ending)}."
    if number == signal.SIGKILL and ending.num_kernel_kills:
        return Outcome.HOST_OUT_OF_MEMORY, "the kernel killed it because the host's memory ran out."
    if ending.report is not None and ending.report.error is None:  # Jupyter waits 2.5 s for a kernel's end.
        return Outcome.KILLED, f"it had come to its end; {number.name} ended it as Python was closing down."
    if number == signal.SIGKILL:
        return Outcome.KILLED, (
            "it was killed with SIGKILL, by someone other than the kernel's out-of-memory killer as far as "
            "its counters show."
        )
    return Outcome.KILLED, f"it was ended by {number.name}."


def _asked(ending: Ending) -> str:
    return f"{describe_request(failed_request(ending))}{_at(ending)}."


def _at(ending: Ending) -> str:
    place = ending.place or (ending.report.place if ending.report is not None else None)
    return f" at {place}" if place else ""


def _survived(ending: Ending) -> str:
    if not ending.requests:
        return "it ran to its end."
    return (
        f"it ran to its end, although {len(ending.requests)} request{'s' * (len(ending.requests) > 1)} for "
        "memory failed; the last: "
        f"{describe_request(ending.requests[-1])}."
    )
