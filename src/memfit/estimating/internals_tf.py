"""Every private name of TensorFlow and Keras that estimating leans on, in this one file.

The reader of the profiler's files, the registry of gradients, and the inside of a `tf.data` set. Nothing else
in `estimating` may touch a name that begins with an underscore.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops as framework_ops
from tensorflow.tsl.profiler.protobuf import xplane_pb2


def read_profile(data: bytes) -> Any:
    """What the profiler wrote."""
    return xplane_pb2.XSpace.FromString(data)


@contextmanager
def forgetting_gradients() -> Iterator[None]:
    """Takes what is traced inside out of TensorFlow's registry of gradients afterwards.

    TensorFlow files the closure of every `tf.custom_gradient` in a graph there for ever, and the whole step
    with it. What was traced inside must not be differentiated any more later.
    """
    registry = framework_ops.gradient_registry._registry
    before = set(registry)
    try:
        yield
    finally:
        for name in [each for each in registry if each not in before and each.startswith("CustomGradient-")]:
            registry.pop(name, None)


def input_structure(model: Any) -> Any:
    """The inputs of a model in the nesting that it takes them in."""
    return getattr(model, "_inputs_struct", model.inputs)


@contextmanager
def copied_values(variables: Sequence[Any]) -> Iterator[None]:
    """Has Keras variables stand for copies of their values, which are gone afterwards."""
    own = [(variable, variable._value) for variable in variables]
    try:
        for variable, value in own:
            variable._value = tf.Variable(
                value, dtype=value.dtype, trainable=value.trainable, name=variable.name
            )
        yield
    finally:
        for variable, value in own:
            variable._value = value


def stages(data: tf.data.Dataset) -> Iterator[tuple[str, Any]]:
    """The stages of a data set from its end to its sources: what each is called, and the stage."""
    yield type(data).__name__.strip("_"), data
    for source in data._inputs():
        yield from stages(source)


def buffer_size(stage: Any) -> int | None:
    """How many elements a stage of a data set holds, or `None` where it does not say."""
    size = getattr(stage, "_buffer_size", None)
    return None if size is None else int(size)
