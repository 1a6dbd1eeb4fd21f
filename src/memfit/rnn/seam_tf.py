"""Puts a callable in the place of `call` of a model, on the instance, and takes it out again.

Several may stand on one model, each over the one before it, and may be taken out in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

SEAM = "call"


class Overlay(Protocol):
    """What stands in for `call`."""

    previous: Callable[..., Any] | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the call below it."""


def overlay(model: Any) -> Any:
    """What stands in for `call` of a model, the outermost, or `None`."""
    return vars(model).get(SEAM)


def below(model: Any, call: Overlay) -> Callable[..., Any]:
    """The call that an overlay stands over."""
    if call.previous is not None:
        return call.previous
    plain: Callable[..., Any] = getattr(type(model), SEAM).__get__(model)
    return plain


def put(model: Any, call: Overlay) -> None:
    """Puts an overlay over what is there."""
    call.previous = overlay(model)
    object.__setattr__(model, SEAM, call)


def take_out(model: Any, call: Overlay) -> None:
    """Takes an overlay out, wherever it stands."""
    above = overlay(model)
    if above is not call:
        while above.previous is not call:
            above = above.previous
        above.previous = call.previous
        return
    object.__delattr__(model, SEAM)
    if call.previous is not None:
        object.__setattr__(model, SEAM, call.previous)
