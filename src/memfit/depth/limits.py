"""What `limit=` may be: bytes, a share of what plain Keras holds, or the least that can be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from memfit.errors import UsageError
from memfit.units import parse_bytes

LEAST: Final = "least"
WHOLE: Final = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much the activations of a call may hold.

    Args:
        text: As it was given, for messages.
        num_bytes: The bytes, or `None` where it is a share or the least.
        share: The share of what plain Keras holds, or `None`.
    """

    text: str
    num_bytes: int | None = None
    share: float | None = None

    @property
    def is_least(self) -> bool:
        """Whether as little as possible is wanted."""
        return self.num_bytes is None and self.share is None

    def bytes_of(self, plain_bytes: int) -> int:
        """The limit in bytes, where plain Keras holds so much."""
        return int((self.share or 0) * plain_bytes) if self.num_bytes is None else self.num_bytes


def parse_limit(limit: str | int | None) -> Limit:
    """The limit that is meant.

    Args:
        limit: `None` or `"least"`, a share such as `"40%"`, or a size such as `"64MiB"` or 67108864.

    Example:
    >>> parse_limit("40%").bytes_of(1000), parse_limit(64).bytes_of(1000), parse_limit(None).is_least
    (400, 64, True)
    """
    if limit is None or limit == LEAST:
        return Limit(text=LEAST)
    if isinstance(limit, str) and limit.strip().endswith("%"):
        share = parse_bytes(limit, available_bytes=WHOLE) / WHOLE
        return Limit(text=limit.strip(), share=share)
    return Limit(text=str(limit), num_bytes=parse_bytes(limit))


def check_batch_size(batch_size: int | None) -> None:
    """Refuses a batch size that cannot be one."""
    is_whole = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if batch_size is not None and (not is_whole or batch_size < 1):
        raise UsageError(
            f"batch_size must be a whole number of at least 1, or None. Received: {batch_size!r}."
        )
