"""What `allow=` may hold: what is done only if the user says so, since it changes the mathematics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memfit.errors import UsageError

TRUNCATE: Final = "truncate"
TRUNCATE_FRONT: Final = "truncate_front"
BUCKETING: Final = "bucketing"
TRUNCATE_GRADIENTS: Final = "truncate_gradients"
# What changes what is learnt of a sequence; tried only where nothing exact fits.
INEXACT_IN_TIME: Final = (TRUNCATE, TRUNCATE_FRONT, TRUNCATE_GRADIENTS)
ALLOWABLE: Final = {
    "split_batch_norm": "micro-batches although BatchNormalization sees them one at a time",
    TRUNCATE: "sequences cut at their end to a greatest length",
    TRUNCATE_FRONT: "the same, cut in front",
    BUCKETING: "batches of like lengths in place of random ones",
    TRUNCATE_GRADIENTS: "gradients that go back through a window of time only, as states go on",
}


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
