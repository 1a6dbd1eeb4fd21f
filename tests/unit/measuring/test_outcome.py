import signal

import pytest

from memfit.measuring.job import Report
from memfit.measuring.outcome import Ending, describe_request, failed_request, judge
from memfit.records import Outcome, Reading, Request

READING = Reading(
    at_seconds=0.0, devices=(), host_bytes=1, host_peak_bytes=1, children_bytes=0, container_bytes=None
)
REQUEST = Request(num_bytes=2**24, op="MatMul", device="CPU:0")


def report(**fields: object) -> Report:
    return Report(reading=READING, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ending", "outcome", "words"),
    [
        (Ending(exit_code=0, report=report()), Outcome.OK, "it ran to its end."),
        (Ending(exit_code=0, requests=(REQUEST,)), Outcome.OK, "although 1 request for memory failed"),
        (
            Ending(exit_code=1, report=report(error="ValueError: no")),
            Outcome.ERROR,
            "ValueError: no",
        ),
        (Ending(exit_code=3), Outcome.ERROR, "exit code 3"),
        (
            Ending(
                exit_code=1, report=report(error="X", is_device_oom=True, place="t.py:3"), requests=(REQUEST,)
            ),
            Outcome.DEVICE_OUT_OF_MEMORY,
            "MatMul asked for 16.0 MiB at t.py:3.",
        ),
        (
            Ending(exit_code=1, report=report(error="MemoryError", is_host_oom=True)),
            Outcome.HOST_OUT_OF_MEMORY,
            "MemoryError",
        ),
        # An out-of-memory that the script survived does not explain another error, ...
        (
            Ending(exit_code=1, report=report(error="ValueError: no"), requests=(REQUEST,)),
            Outcome.ERROR,
            "ValueError: no",
        ),
        # ... and a crash is one only if it follows the failed request at once.
        (
            Ending(exit_code=-signal.SIGSEGV, requests=(REQUEST,), seconds_since_request=0.1, place="t.py:9"),
            Outcome.DEVICE_OUT_OF_MEMORY,
            "MatMul asked for 16.0 MiB at t.py:9. oneDNN turned the failed request into a crash (SIGSEGV).",
        ),
        (
            Ending(exit_code=-signal.SIGSEGV, requests=(REQUEST,), seconds_since_request=60.0),
            Outcome.ERROR,
            "it crashed (SIGSEGV).",
        ),
        (Ending(exit_code=-signal.SIGSEGV, place="t.py:9"), Outcome.ERROR, "it crashed (SIGSEGV) at t.py:9."),
        (
            Ending(exit_code=-signal.SIGABRT, is_bad_alloc=True),
            Outcome.HOST_OUT_OF_MEMORY,
            "std::bad_alloc",
        ),
        (Ending(exit_code=-signal.SIGABRT), Outcome.ERROR, "it crashed (SIGABRT)."),
        (Ending(exit_code=-signal.SIGKILL), Outcome.KILLED, "killed with SIGKILL"),
        (
            Ending(exit_code=-signal.SIGKILL, num_kernel_kills=1),
            Outcome.HOST_OUT_OF_MEMORY,
            "the kernel killed it",
        ),
        (Ending(exit_code=-signal.SIGTERM), Outcome.KILLED, "ended by SIGTERM"),
        (
            Ending(exit_code=-signal.SIGTERM, report=report()),
            Outcome.KILLED,
            "it had come to its end; SIGTERM",
        ),
        (Ending(exit_code=-signal.SIGKILL, timeout_seconds=2.0), Outcome.TIMEOUT, "stopped after 2.0 s"),
        (
            Ending(exit_code=-signal.SIGKILL, host_bytes=2**30, host_limit_bytes=2**29),
            Outcome.HOST_OUT_OF_MEMORY,
            "it was stopped at 1.00 GiB of host memory, above the limit of 512 MiB.",
        ),
    ],
)
def test_every_ending_is_judged(ending: Ending, outcome: Outcome, words: str) -> None:
    found, reason = judge(ending)
    assert found is outcome
    assert words in reason


def test_log_and_exception_complete_each_other() -> None:
    said = Request(op="Fill", shape=(2, 3), device="CPU:0")
    ending = Ending(exit_code=1, report=report(request=said), requests=(Request(num_bytes=24),))
    assert failed_request(ending) == Request(num_bytes=24, op="Fill", shape=(2, 3), device="CPU:0")
    assert failed_request(Ending(exit_code=1, report=report(request=said))) == said


def test_a_request_of_which_nothing_is_known() -> None:
    assert describe_request(None) == "TensorFlow did not say what was asked for"
    assert describe_request(Request()) == "an op asked for memory"
