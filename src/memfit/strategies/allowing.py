"""What `allow=` may hold: what is done only if the user says so, since it changes the mathematics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memfit.errors import UsageError

ALLOWABLE: Final = {"split_batch_norm": "micro-batches although BatchNormalization sees them one at a time"}


def check_allowed(allow: str | Iterable[str]) -> tuple[str, ...]:
    """The words, each once.

    Raises:
        UsageError: If one of them means nothing.

    Example:
    >>> check_allowed("split_batch_norm")
    ('split_batch_norm',)
    """
    words = (allow,) if isinstance(allow, str) else tuple(allow)
    for word in words:
        if word not in ALLOWABLE:
            choices = ", ".join(f'"{each}" ({meaning})' for each, meaning in ALLOWABLE.items())
            raise UsageError(f"allow= does not know {word!r}. It takes: {choices}.")
    return tuple(dict.fromkeys(words))
