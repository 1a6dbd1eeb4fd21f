"""A time by which a search has to end, whatever it has found by then."""

from __future__ import annotations

import time


class Deadline:
    """Ends after so much time of this thread's own, which others on the machine do not use up.

    Args:
        seconds: How much there is; `None` for no end.

    Example:
    >>> Deadline(0.0).is_over, Deadline(None).is_over
    (True, False)
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.thread_time() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._end is not None and time.thread_time() >= self._end
