"""The part of loading models that knows Keras: no training meanwhile, and only models are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.cli.factory import Made
from memfit.errors import UsageError

TRAINING: Final = ("fit", "train_on_batch")


@contextmanager
def not_training(place: str) -> Iterator[None]:
    """Refuses to train while a user's file is imported and its function is called."""

    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError(
            f"{place} trains while it is loaded, and memfit only wants the model. Put the training under "
            "if __name__ == '__main__': or into another function."
        )

    own = {name: getattr(keras.Model, name) for name in TRAINING}
    for name in TRAINING:
        setattr(keras.Model, name, refuse)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(keras.Model, name, method)


def as_made(returned: Any, place: str) -> Made:
    """A model with or without data, as a factory returned it.

    Raises:
        UsageError: If it is something else.
    """
    if isinstance(returned, keras.Model):
        return Made(model=returned, data=None)
    if isinstance(returned, tuple) and returned and isinstance(returned[0], keras.Model):
        rest = returned[1:]
        if len(rest) == 1:
            return Made(model=returned[0], data=rest[0])
        if len(rest) in (2, 3) and not isinstance(rest[0], tf.data.Dataset):
            return Made(model=returned[0], data=rest)
    raise UsageError(
        f"{place} returned {_in_words(returned)}, but a Keras model is needed, or a model and its data: "
        "return model, or return model, (x, y)"
    )


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(each).__name__ for each in value)})"
    return "nothing" if value is None else f"an object of type {type(value).__name__}"


def data_of(returned: Any) -> Any:
    """The data alone of what a function returned: data, or a model and its data."""
    if not (isinstance(returned, tuple) and returned and isinstance(returned[0], keras.Model)):
        return returned
    return returned[1] if len(returned) == 2 else returned[1:]
