import math
import os
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from memfit.errors import TrialError
from memfit.measuring.job import (
    LATEST_NAME,
    REPORT_NAME,
    Job,
    Report,
    prepare_call,
    read_latest,
    read_report,
    write_latest,
    write_report,
)
from memfit.measuring.script import Script
from memfit.records import Reading, Request

READING = Reading(
    at_seconds=0.5, devices=(), host_bytes=1, host_peak_bytes=1, children_bytes=0, container_bytes=None
)


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    job = Job(
        target=Script(path="t.py", arguments=("a",)),
        parent=1,
        signals=frozenset({2}),
        device_limit_bytes=None,
    )
    job.save(tmp_path)
    assert Job.load(tmp_path) == job
    assert str(job.target) == "t.py a"


def test_the_latest_reading_overwrites_a_longer_one(tmp_path: Path) -> None:
    file = os.open(tmp_path / LATEST_NAME, os.O_WRONLY | os.O_CREAT)
    write_latest(file, replace(READING, host_bytes=10**15))
    write_latest(file, READING)
    os.close(file)
    assert read_latest(tmp_path) == READING


def test_nothing_written_is_nothing_said(tmp_path: Path) -> None:
    assert read_latest(tmp_path) is None
    assert read_report(tmp_path) is None
    (tmp_path / REPORT_NAME).write_text('{"reading": {"at_sec')
    assert read_report(tmp_path) is None


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    report = Report(reading=READING, error="X: y", request=Request(op="Fill"), value=[1, {"a": None}])
    write_report(tmp_path, report)
    assert read_report(tmp_path) == report


def test_functions_that_a_fresh_process_cannot_find_are_refused() -> None:
    for function in (lambda: 1, partial(lambda: 1)):
        with pytest.raises(TrialError, match="Give a function that is defined at the top level"):
            prepare_call(function, ())
    with pytest.raises(TrialError, match="cannot be sent"):
        prepare_call(math.sqrt, (threading.Lock(),))


def test_a_library_function_does_not_run_the_main_module_again() -> None:
    call = prepare_call(math.hypot, (3, 4))
    assert call.name == "hypot"
    assert not call.preparation.keys() & {"init_main_from_path", "init_main_from_name"}
