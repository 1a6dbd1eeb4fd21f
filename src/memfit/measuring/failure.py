"""What an exception says of how it came about: of the process that it ends, or of the cell."""

from __future__ import annotations

import traceback
from types import TracebackType

from memfit.errors import OutOfMemoryError
from memfit.measuring import oom
from memfit.measuring.job import Report
from memfit.measuring.places import first_user_place
from memfit.records import Reading


def report_failure(error: BaseException, reading: Reading) -> Report:
    """What `error` says, beside what the meters said then."""
    is_device_oom = oom.is_device_oom(error) or isinstance(error, OutOfMemoryError)
    return Report(
        reading=reading,
        error=traceback.format_exception_only(error)[-1].strip(),
        is_device_oom=is_device_oom,
        is_host_oom=oom.is_host_oom(error),
        place=_place(error.__traceback__),
        request=oom.read_error(error) if is_device_oom else None,
    )


def _place(trace: TracebackType | None) -> str | None:
    frames = traceback.extract_tb(trace)
    return first_user_place((frame.filename, frame.lineno or 0) for frame in reversed(frames))
