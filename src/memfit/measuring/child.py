"""What runs in the fresh process of a trial: the target as plain Python would run it, with meters on.

It adds three things to the target: a thread that writes down the meters as it goes, a report at
the end, and an end that follows the parent's. Exceptions, exit codes and output are the target's own.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing import spawn
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from memfit.budgeting import allocator
from memfit.measuring import importing
from memfit.measuring.failure import report_failure
from memfit.measuring.job import (
    FAULT_NAME,
    LATEST_NAME,
    PREPARING,
    Call,
    Job,
    Report,
    write_latest,
    write_report,
)
from memfit.measuring.reading import assemble
from memfit.measuring.script import Script, run_script
from memfit.records import DeviceReading, Reading

SAMPLE_SECONDS: Final = 0.1
SAMPLES_A_HOST_READING: Final = 5  # A device's figures take microseconds, the host's take milliseconds.
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"


def main(folder_name: str) -> None:
    """Runs the job in the folder. Whatever the target raises goes on to Python's own end."""
    folder = Path(folder_name)
    job = Job.load(folder)
    _end_with(job.parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, job.signals)
    sys.excepthook = _show_without_our_frames
    faulthandler.enable((folder / FAULT_NAME).open("w"))
    sampler = Sampler(folder)
    importing.around("tensorflow", before=_keep_log, after=lambda: _tensorflow_loaded(job, sampler))
    if job.companion is not None:
        importing.around("keras", before=lambda: None, after=partial(job.companion.loaded, "keras"))
        job.companion.begin(folder)
    sampler.start()
    own_process = os.getpid()
    try:
        value = _run(job.target)
        _join_threads()
    except BaseException as error:
        if os.getpid() == own_process:
            told = job.companion.end(error) if job.companion is not None else None
            write_report(folder, replace(report_failure(error, _last_reading(sampler)), told=told))
        raise
    if os.getpid() == own_process:  # The script may have forked, and this be the other one.
        told = job.companion.end(None) if job.companion is not None else None
        write_report(folder, replace(_succeeded(value, _last_reading(sampler)), told=told))


def _run(target: Script | Call) -> Any:
    if isinstance(target, Script):
        return run_script(target)
    os.environ[PREPARING] = target.name
    spawn.prepare(target.preparation)
    del os.environ[PREPARING]
    function, arguments = pickle.loads(target.payload)  # noqa: S301 - our parent's, in a private folder
    return function(*arguments)


def _end_with(parent: int) -> None:
    """Asks the kernel to end this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _keep_log() -> None:
    """Scripts like to silence TensorFlow's log, but it alone says which op ran out of memory beside what.

    The parent takes the log out of what the user sees.
    """
    os.environ[LOG_LEVEL] = "0"


def _tensorflow_loaded(job: Job, sampler: Sampler) -> None:
    """What the environment alone cannot say."""
    limit_bytes = job.device_limit_bytes
    from memfit.measuring import gpus_tf, region_tf

    if allocator.is_on(os.environ):
        region_tf.take_region_when_started(limit_bytes, unseen=sampler.lock)
    if limit_bytes is not None:
        gpus_tf.set_up(limit_bytes, growth=True)
    if job.companion is not None:
        job.companion.loaded("tensorflow")


class Sampler(threading.Thread):
    """Writes down the meters several times a second, where they survive the process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="memfit-meter", daemon=True)
        self._file = os.open(folder / LATEST_NAME, os.O_WRONLY | os.O_CREAT, 0o600)
        self._is_over = threading.Event()
        self.lock = threading.Lock()
        self.highest: tuple[DeviceReading, ...] = ()

    def run(self) -> None:
        """Samples until `stop`."""
        for number in count():
            if number % SAMPLES_A_HOST_READING == 0:
                reading = assemble(())
            write_latest(self._file, replace(reading, at_seconds=time.time(), devices=self.sample()))
            if self._is_over.wait(SAMPLE_SECONDS):
                return

    def stop(self) -> None:
        """Ends the sampling, so that nothing more is written."""
        self._is_over.set()
        self.join()

    def sample(self) -> tuple[DeviceReading, ...]:
        """Figures of the devices. Their peaks are kept even if the target resets its meters."""
        with self.lock:
            figures = _figures()
        peaks = {device.device: device.peak_bytes for device in self.highest}
        self.highest = tuple(
            replace(device, peak_bytes=max(device.peak_bytes, peaks.get(device.device, 0)))
            for device in figures
        )
        return self.highest


def _figures() -> tuple[DeviceReading, ...]:
    """The devices' figures, without starting TensorFlow or touching its memory."""
    if not importing.is_loaded("tensorflow") or not allocator.is_on(os.environ):
        return ()
    from memfit.measuring import device_tf

    return device_tf.read_figures() if device_tf.has_started() else ()


def _last_reading(sampler: Sampler) -> Reading:
    """The figures at the end, and then, with nothing left to disturb, the test whether they are true."""
    sampler.stop()
    devices = sampler.sample()
    if devices:
        from memfit.measuring import device_tf

        if not device_tf.has_true_meter():
            devices = tuple(device_tf.process_stands_in(device.device) for device in devices)
    return assemble(devices)


def _join_threads() -> None:
    """Waits for the target's threads, as Python does at its end: their memory counts."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


def _succeeded(value: Any, reading: Reading) -> Report:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as fault:
        return Report(reading=reading, value_error=str(fault))
    return Report(reading=reading, value=value)


def _user_traceback(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from where the target began."""
    begin, frame = trace, trace
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") in (__name__, run_script.__module__):
            begin = frame.tb_next
        frame = frame.tb_next
    return begin


def _show_without_our_frames(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    trace = _user_traceback(trace)
    sys.__excepthook__(kind, error.with_traceback(trace), trace)
