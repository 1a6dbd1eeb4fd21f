"""The values of a model's variables and callbacks, out to bytes and back in."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf

from memfit.errors import MemfitWarning, UsageError
from memfit.training.resuming import VariableNote
from memfit.training.resuming_internals_tf import KEPT_ATTRIBUTES, global_seed_state
from memfit.training.store import Stored


@runtime_checkable
class StatefulCallback(Protocol):
    """A callback that says what it must remember: numbers, text, lists, dicts and arrays."""

    def get_state(self) -> dict[str, Any]:
        """What to remember, asked for with every checkpoint."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what was remembered, before the first step of a resumed run."""


def state_variables(model: keras.Model) -> list[keras.Variable]:
    """Everything that a training step reads and changes, each variable once.

    Weights, BatchNormalization statistics, states of RNNs and seed generators are the model's; the loss
    scale, the iterations, slots, averages and accumulators are the optimizer's; and the metrics of the epoch
    under way.
    """
    slots = [variable for optimizer in optimizers_of(model) for variable in optimizer.variables]
    found = [*model.variables, *model.metrics_variables, *slots, global_seed_state()]
    return list({id(each): each for each in found}.values())


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The optimizer of `compile`, and those that a model with a `train_step` of its own has besides."""
    return [each for each in vars(model).values() if isinstance(each, keras.optimizers.Optimizer)]


def notes_of(variables: Iterable[keras.Variable]) -> tuple[VariableNote, ...]:
    """What tells one model's variables from another's."""
    return tuple(VariableNote.of(each.path, tuple(each.shape), str(each.dtype)) for each in variables)


def dump_variables(variables: Iterable[keras.Variable]) -> Iterator[tuple[str, memoryview]]:
    """Name in the file and bytes of each variable, one in host memory at a time."""
    for number, variable in enumerate(variables):
        yield f"variables/{number}", to_bytes(np.asarray(variable.value))


def load_variables(variables: Iterable[keras.Variable], stored: Stored) -> None:
    """Gives each variable the value that it had, bit for bit."""
    with stored.arrays() as read:
        for number, variable in enumerate(variables):
            variable.assign(
                from_bytes(read(f"variables/{number}"), tuple(variable.shape), str(variable.dtype))
            )


def to_bytes(values: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of an array of any dtype, `bfloat16` included."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def from_bytes(content: bytes, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """The array that `to_bytes` was given."""
    return np.frombuffer(content, dtype=tf.as_dtype(dtype).as_numpy_dtype).reshape(shape)


class CallbackStates:
    """What the callbacks of one run remember.

    Args:
        callbacks: All of them, Keras's History included.
    """

    def __init__(self, callbacks: Iterable[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)

    def dump(self) -> tuple[list[dict[str, Any]], list[tuple[str, np.ndarray[Any, Any]]]]:
        """The states as JSON values, and the arrays in them."""
        arrays: list[tuple[str, np.ndarray[Any, Any]]] = []
        states = [
            {"name": type(each).__name__, "state": _encode(_state_of(each), type(each).__name__, arrays)}
            for each in self._callbacks
        ]
        return states, arrays

    def load(self, states: list[dict[str, Any]], stored: Stored) -> None:
        """Gives each callback what it remembered, matched by class and order."""
        waiting = list(states)
        with stored.arrays() as read:
            for callback in self._callbacks:
                name = type(callback).__name__
                kept = next((each for each in waiting if each["name"] == name), None)
                if kept is not None:
                    waiting.remove(kept)
                    _set_state(callback, _decode(kept["state"], read))

    def warn_of_what_starts_anew(self) -> None:
        """Says which callbacks will not remember, before training starts."""
        anew = sorted({type(each).__name__ for each in self._callbacks if not _remembers(each)})
        if anew:
            warnings.warn(
                f"after a resume these callbacks start anew: {', '.join(anew)}. What they change in training "
                "is then not what it would have been. Give them get_state() and set_state(state) to be "
                "remembered.",
                MemfitWarning,
                stacklevel=2,
            )
        for each in self._callbacks:
            if isinstance(each, keras.callbacks.CSVLogger) and not each.append:
                warnings.warn(
                    f"after a resume CSVLogger begins {each.filename} anew. Write CSVLogger(..., "
                    "append=True).",
                    MemfitWarning,
                    stacklevel=2,
                )


def _attributes_of(callback: keras.callbacks.Callback) -> tuple[str, ...]:
    return next((names for kind, names in KEPT_ATTRIBUTES if isinstance(callback, kind)), ())


def _state_of(callback: keras.callbacks.Callback) -> dict[str, Any]:
    own = callback.get_state() if isinstance(callback, StatefulCallback) else {}
    kept = {name: getattr(callback, name) for name in _attributes_of(callback) if name in vars(callback)}
    return {"kept": kept, "own": own}


def _set_state(callback: keras.callbacks.Callback, state: dict[str, Any]) -> None:
    for name, value in state["kept"].items():
        setattr(callback, name, value)
    if isinstance(callback, StatefulCallback):
        callback.set_state(state["own"])


def _remembers(callback: keras.callbacks.Callback) -> bool:
    if isinstance(callback, StatefulCallback) or type(callback).__module__.startswith("keras."):
        return True
    plain = vars(keras.callbacks.Callback())
    return not any(name not in plain and not callable(value) for name, value in vars(callback).items())


def _encode(value: Any, owner: str, arrays: list[tuple[str, np.ndarray[Any, Any]]]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(each, owner, arrays) for key, each in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_encode(each, owner, arrays) for each in value]
    if isinstance(value, (np.ndarray, tf.Tensor, keras.Variable)):
        array = np.array(value.value if isinstance(value, keras.Variable) else value)
        arrays.append((f"callbacks/{len(arrays)}", array))
        return {"array": arrays[-1][0], "shape": list(array.shape), "dtype": array.dtype.name}
    raise UsageError(
        f"{owner}.get_state() holds a {type(value).__name__}, which cannot be kept. It may hold None, "
        "numbers, text, arrays, and lists and dicts of those."
    )


def _decode(value: Any, read: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each, read) for each in value]
    if isinstance(value, dict) and "array" in value:
        return from_bytes(read(value["array"]), tuple(value["shape"]), value["dtype"]).copy()
    if isinstance(value, dict):
        return {key: _decode(each, read) for key, each in value["dict"].items()}
    return value
