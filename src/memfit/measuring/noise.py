"""TensorFlow's log, told apart from what a program itself writes to standard error.

TensorFlow's C++ code logs to the same stream as the user's program, even at `TF_CPP_MIN_LOG_LEVEL=3`,
and among the noise is the one line that says which op ran out of memory. `LogFilter` takes the stream
in pieces, as they come, and gives back what a user should see, at once and unchanged; the log's lines
go to `on_log`. Fatal lines are never taken away.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# "W0000 00:00:1794774316.122076    2617 bfc_allocator.cc:502] ..." and the older
# "2026-11-15 20:18:59.123456: W tensorflow/core/framework/op_kernel.cc:1858] ..."
_LOG_LINE: Final = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d\d(?:\d*\.\d+)?\s+\d+ \S+:\d+\] "
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] \S+:\d+\] "
)
STANDARD_ERROR: Final = 2
_BANNER: Final = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
# Second and later lines of the messages above carry no mark of their own.
_CONTINUATIONS: Final = (
    b"To enable the following instructions:",
    b"If the cause is memory fragmentation",
    b"Current allocation summary follows.",
)
# Further lines that carry no mark, and that a program may write as well: taken out only right after the log.
_FIGURES: Final = (
    *(b"Limit", b"InUse", b"MaxInUse", b"NumAllocs", b"MaxAllocSize"),
    *(b"Reserved", b"PeakReserved", b"LargestFreeBlock"),
)
_AFTER_LOG: Final = (
    b"\t [[{{",
    b"Hint: If you want to see a list of allocated tensors when OOM happens",
    *(figure + b":     " for figure in _FIGURES),
)
# How a line may begin that is or may yet become a log line: worth waiting for its end.
_BEGINNING: Final = re.compile(rb"[IWE](?:\d{1,4}(?: .*)?)?|\d{1,4}(?:-.*)?", re.DOTALL)


class LogFilter:
    r"""A stream without TensorFlow's log lines.

    Args:
        on_log: Called with each line that was taken out, as text.

    Example:
    >>> filter = LogFilter(print)
    >>> filter.feed(b"epoch 1\nW0000 00:00:1794774316.12  26 bfc.cc:5] ran out\nepoch ")
    W0000 00:00:1794774316.12  26 bfc.cc:5] ran out
    b'epoch 1\nepoch '
    """

    def __init__(self, on_log: Callable[[str], None]) -> None:
        self._on_log = on_log
        self._held = b""  # The beginning of a line that may be a log line.
        self._is_inside_line = False  # Whether part of the present line was passed on.
        self._is_after_log = False  # Whether the last whole line was taken out.
        self._is_after_more = False  # Whether it was one without a mark.

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held back before, a user should see now."""
        *lines, rest = (self._held + data).split(b"\n")
        self._held = b""
        shown = b"".join(self._take(line + b"\n") for line in lines)
        if rest and not self._is_inside_line and (self._may_continue(rest) or _may_be_log(rest)):
            self._held = rest
            return shown
        self._is_inside_line = self._is_inside_line or bool(rest)
        return shown + rest

    def close(self) -> bytes:
        """What was still held back when the stream ended."""
        return self._take(self._held) if self._held else b""

    def _take(self, line: bytes) -> bytes:
        if not self._is_inside_line and (_is_log(line) or self._continues(line)):
            self._is_after_more = not _is_log(line) and bool(line.strip())
            self._is_after_log = _is_log(line) or self._is_after_more
            self._on_log(line.decode(errors="replace").rstrip())
            return b""
        self._is_inside_line = self._is_after_log = self._is_after_more = False
        return line

    def _continues(self, line: bytes) -> bool:
        """Whether a line goes on with a message of the log; an empty one ends what goes on."""
        is_end = self._is_after_more and not line.strip()
        return is_end or (self._is_after_log and line.startswith(_AFTER_LOG))

    def _may_continue(self, beginning: bytes) -> bool:
        return self._is_after_log and any(
            text.startswith(beginning) or beginning.startswith(text) for text in _AFTER_LOG
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps TensorFlow's log off this process's standard error while the context lasts.

    What else was written there meanwhile is shown when the context is left.
    """
    sys.stderr.flush()
    own = os.dup(STANDARD_ERROR)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), STANDARD_ERROR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(own, STANDARD_ERROR)
            os.close(own)
            file.seek(0)
            stream = LogFilter(lambda _: None)
            os.write(STANDARD_ERROR, stream.feed(file.read()) + stream.close())


def _is_log(line: bytes) -> bool:
    return _LOG_LINE.match(line) is not None or line.startswith((_BANNER, *_CONTINUATIONS))


def _may_be_log(beginning: bytes) -> bool:
    if _BEGINNING.fullmatch(beginning):
        return True
    known = (_BANNER, *_CONTINUATIONS)
    return any(text.startswith(beginning) or beginning.startswith(text) for text in known)
