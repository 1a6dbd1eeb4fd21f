"""Who traced what, at the moment when it happens: the function, its arguments, the user's line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import numpy as np
import tensorflow as tf

from memfit.guarding.clock import Clock
from memfit.guarding.naming import is_user_file
from memfit.guarding.traces import Description, Origin, Origins

PIPELINE: Final = "tensorflow/python/data/"
KERAS: Final = "keras/src/"
PLAIN: Final = (bool, int, float, str, bytes, type(None))


class Tracer:
    """Keeps where graphs came from.

    Args:
        clock: Says when.
    """

    def __init__(self, clock: Clock) -> None:
        self.origins = Origins()
        self._clock = clock
        self._counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._codes: dict[CodeType | None, int] = {}
        self._last: Callable[[], Any] = lambda: None
        self._last_number = -1

    def num_ticks(self) -> int:
        """How much has happened since the beginning."""
        return self._clock.num_ticks

    def number_of(self, function: Any) -> int:
        """What stands for a function, and for all others that are made at the same place.

        A number: code can be compared, too, but to hash it all of its constants and names are gone through.
        """
        if self._last() is not function:  # Mostly it is the one before.
            self._last_number = self._found_number(function)
            self._last = ref(function)
        return self._last_number

    def _found_number(self, function: Any) -> int:
        try:
            return self._numbers[function]
        except KeyError:
            code = code_of(function.python_function)
            number = self._numbers[function] = self._codes.setdefault(code, len(self._codes))
            return number

    def note_call(self, function: Any, args: Any, kwargs: Any) -> None:
        """A function was traced for these arguments."""
        count, before = function.experimental_get_tracing_count(), self._counts.get(function)
        if count == before:  # Only its gradient was.
            return
        self._counts[function] = count
        code = code_of(function.python_function)
        if code is None:
            return
        is_library = not is_user(code.co_filename)
        # Keras has one training function for all models: what tells them apart is who called.
        caller = user_caller() if is_library else None
        origin = self.origins.at(
            Origin(code.co_name, code.co_filename, code.co_firstlineno, caller, is_library=is_library)
        )
        origin.happened(self._clock.num_ticks, is_new=before is None)
        origin.called_with(describe_all(function.python_function, args, kwargs))

    def note_graph(self) -> None:
        """A graph was begun by no function: the stack tells whether a data pipeline is being built."""
        is_pipeline = False
        for frame in stack():
            file = frame.f_code.co_filename
            if KERAS in file:  # Keras makes one of its own for each `fit`; it ends with it.
                return
            if is_user(file):
                break
            is_pipeline = is_pipeline or PIPELINE in file
        else:
            return
        if is_pipeline:
            place = (file, frame.f_lineno)
            origin = self.origins.at(Origin("", file, frame.f_lineno, place, is_dataset=True))
            origin.happened(self._clock.num_ticks, is_new=True)


@lru_cache(maxsize=4096)
def is_user(file: str) -> bool:
    """Whether a file is the user's own; remembered, since stacks are walked often."""
    return is_user_file(file)


def stack() -> Iterator[FrameType]:
    """This thread's frames, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def user_caller() -> tuple[str, int] | None:
    """File and line of the innermost frame of the user's own."""
    return next(
        ((each.f_code.co_filename, each.f_lineno) for each in stack() if is_user(each.f_code.co_filename)),
        None,
    )


def code_of(function: Any) -> CodeType | None:
    """The code of a Python function, whatever it is wrapped in."""
    plain = inspect.unwrap(getattr(function, "func", function))
    found = getattr(getattr(plain, "__func__", plain), "__code__", None)
    return found if isinstance(found, CodeType) else None


def describe_all(function: Any, args: Any, kwargs: Any) -> dict[str, Description]:
    """What decides over a new trace, for each argument by name."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {f"argument {index}": value for index, value in enumerate(args)} | kwargs
    return {name: describe(value) for name, value in bound.items()}


def describe(value: Any) -> Description:
    """What kind of argument it is, and what of it makes TensorFlow trace again when it changes."""
    if tf.is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        return "tensor", f"{value.dtype} {value.shape}"
    if isinstance(value, PLAIN):
        return f"Python {type(value).__name__}", repr(value)
    if isinstance(value, list | tuple | dict):
        parts = tf.nest.flatten(value)
        inner = [describe(part) for part in parts]
        kinds = {kind for kind, _ in inner}
        return kinds.pop() if len(kinds) == 1 and len(parts) == 1 else "structure", repr(inner)
    return "object", f"{type(value).__name__} {id(value)}"
