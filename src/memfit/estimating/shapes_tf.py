"""Whether the shapes of data fit a model, and where its free length goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from memfit.errors import UsageError

Shape = tuple[int | None, ...]


def inputs_of(model: Any, x: Any = None) -> list[Any] | None:
    """The inputs that a model was built with, in the order of `x`; `None` for one that does not say."""
    found = getattr(model, "inputs", None)
    if not found:
        return None
    inputs = list(keras.tree.flatten(found))
    names = {each.name: each for each in inputs}
    if isinstance(x, dict) and set(x) <= set(names):
        return [names[name] for name in sorted(x)]
    return inputs


def with_length(
    model: str,
    inputs: Sequence[Any] | None,
    names: Sequence[str],
    shapes: Sequence[Shape],
    length: int | None,
) -> tuple[list[Shape], list[bool], int | None]:
    """The shapes with the length in its place, which of them have it, and that length.

    Raises:
        UsageError: If a length is needed and nobody says which, or the model was built for another.
    """
    is_free = _free(inputs, names, shapes, length)
    known = (shape[1] for shape, free in zip(shapes, is_free, strict=True) if free and shape[1])
    data_length = next(known, None)
    if not any(is_free):
        _refuse_length(model, inputs or (), length)
        return list(shapes), is_free, None
    wanted = length or data_length
    if wanted is None:
        raise UsageError(
            f"{model!r} takes sequences of any length, and the data does not say which. Say it: "
            "length=500 (on the command line: --length 500)"
        )
    has_length = [
        # Targets go with their inputs.
        free or (name != "x" and len(shape) > 1 and data_length is not None and shape[1] == data_length)
        for name, shape, free in zip(names, shapes, is_free, strict=True)
    ]
    fixed = [
        (shape[0], wanted, *shape[2:]) if long else shape
        for shape, long in zip(shapes, has_length, strict=True)
    ]
    return fixed, has_length, wanted


def _free(
    inputs: Sequence[Any] | None, names: Sequence[str], shapes: Sequence[Shape], length: int | None
) -> list[bool]:
    """Whose second axis may have any size. A model that does not say what it takes is taken at its word."""
    taken = iter(inputs or ())
    found = []
    for name, shape in zip(names, shapes, strict=True):
        own = tuple(getattr(next(taken, None), "shape", ())) if name == "x" else ()
        is_told = name == "x" and inputs is None and length is not None
        is_open = len(own) > 1 and own[1] is None
        found.append(len(shape) > 1 and (shape[1] is None or is_open or is_told))
    return found


def _refuse_length(model: str, inputs: Sequence[Any], length: int | None) -> None:
    for each in inputs:
        if length is not None and len(each.shape) > 1 and each.shape[1] not in (None, length):
            raise UsageError(
                f"{model!r} was built for a length of {each.shape[1]}, so length={length} does not fit "
                "it. Build it for any length, keras.Input((None, ...)), or leave length out."
            )


def check_shapes(
    model: str, inputs: Sequence[Any] | None, names: Sequence[str], shapes: Sequence[Shape]
) -> None:
    """Refuses shapes that are not known, or that the model does not take.

    Raises:
        UsageError: If so.
    """
    for name, shape in zip(names, shapes, strict=True):
        if None in shape[1:]:
            raise UsageError(
                f"{name} has the shape {_shown(shape)}, and memfit must know all of it but the batch. Give "
                "sizes: memfit.estimate(model, (tf.TensorSpec([None, 224, 224, 3]), tf.TensorSpec([None, "
                "1])))"
            )
    given = [shape for name, shape in zip(names, shapes, strict=True) if name == "x"]
    if inputs is None:
        return
    if len(inputs) != len(given):
        raise UsageError(
            f"{model!r} takes {len(inputs)} inputs, and the data has {len(given)} for x. Give data as "
            "(x, y), with a list or dict for x where there are several."
        )
    for own, shape in zip(inputs, given, strict=True):
        if own.shape[0] is not None:
            raise UsageError(
                f"{model!r} was built for batches of {own.shape[0]}, and memfit measures smaller ones. Build "
                "it without batch_size."
            )
        if not tf.TensorShape(own.shape).is_compatible_with(shape):
            raise UsageError(
                f"{model!r} takes {_shown(own.shape)}, and the data has {_shown(shape)}. The first axis "
                "is the batch: give arrays or specs as (x, y)."
            )


def _shown(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("None" if size is None else str(size) for size in shape) + "]"
