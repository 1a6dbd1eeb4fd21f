"""What an interactive session keeps by itself: what cells have shown, and the variables of the last error."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import keras

from memfit.guarding.census_tf import tensor_bytes, weigh
from memfit.measuring import notebook
from memfit.records import Run
from memfit.units import MIB, format_bytes

LEAST_BYTES: Final = MIB  # Less is not worth a word.
MOST_NUMBERS: Final = 3


def forget_last_error() -> None:
    """Lets go of what the frames of the last error hold, such as the tensors of a step that failed.

    Python keeps the error at its prompt and in a notebook until the next one comes. It can still be shown.
    """
    for error in _chain(getattr(sys, "last_value", None)):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            with suppress(RuntimeError):  # It is still running.
                frame.clear()
            # Whoever showed it asked for a copy, which Python before 3.13 keeps. Asking again empties it.
            _ = frame.f_locals


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            waiting += (each.__cause__, each.__context__)
            yield each


def told_outputs() -> str | None:
    """What IPython's history alone keeps alive, in words; `None` where that is nothing much."""
    used = {id(_model_of(value)) for value in notebook.own_names().values()}
    held = {number: _held_bytes(value, used) for number, value in notebook.outputs().items()}
    numbers = sorted((number for number in held if held[number]), key=lambda number: -held[number])
    if sum(held.values()) < LEAST_BYTES:
        return None
    named = ", ".join(f"Out[{number}]" for number in numbers[:MOST_NUMBERS])
    rest = f" and {len(numbers) - MOST_NUMBERS:,} more" if len(numbers) > MOST_NUMBERS else ""
    return (
        "IPython keeps what cells have shown, and with it models and tensors that have no other name: "
        f"{named}{rest}, {format_bytes(sum(held.values()))} in all. Type `%reset -f out` and then "
        "memfit.release() to let go of them; a semicolon at the end of a cell keeps its result out."
    )


def _held_bytes(value: Any, used: set[int]) -> int:
    """What a result holds, if it is not one of those that have a name."""
    model = _model_of(value)
    if id(model) in used:
        return 0
    if not isinstance(model, keras.Model):
        return weigh([value]).num_bytes
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer is not None else ())]
    return sum(tensor_bytes(variable.value) for variable in variables)


def _model_of(value: Any) -> Any:
    """The model that Keras's History or memfit's Run leads to, or the value itself."""
    if isinstance(value, Run):
        value = value.history
    return value.model if isinstance(value, keras.callbacks.Callback) else value
