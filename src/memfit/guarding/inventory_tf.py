"""What a process holds, counted by kind, from Python's own list of live objects."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from memfit.guarding.first_epoch import Shapes
from memfit.records import Held, Inventory
from memfit.splitting import internals_tf as internals
from memfit.splitting.checking_tf import MIXING

_EAGER: type = type(tf.constant(0))


def take_inventory(
    *, batch_size: int | None = None, batch_shapes: Shapes = (), largest_shapes: Shapes = ()
) -> Inventory:
    """Weights, slots and kept tensors of all live models and optimizers, and the weights by layer.

    Args:
        batch_size: Examples of a batch, or `None`.
        batch_shapes: The shapes of the inputs of the batch under way; empty if unknown.
        largest_shapes: The same of the largest batch before it.
    """
    objects = _live(keras.Model, keras.optimizers.Optimizer, _EAGER)
    models = [each for each in objects if isinstance(each, keras.Model)]
    weights = _distinct(variable for model in models if model.built for variable in model.variables)
    slots = _distinct(
        variable
        for optimizer in objects
        if isinstance(optimizer, keras.optimizers.Optimizer) and optimizer.built
        for variable in optimizer.variables
    )
    slots = {key: variable for key, variable in slots.items() if key not in weights}
    tensors = [each for each in objects if isinstance(each, _EAGER)]
    kinds = (
        ("weights", _total(weights.values()), len(weights)),
        ("optimizer slots", _total(slots.values()), len(slots)),
        ("tensors that Python keeps", sum(map(tensor_bytes, tensors)), len(tensors)),
    )
    held = [Held(name=name, num_bytes=total, num=num) for name, total, num in kinds if total]
    return Inventory(
        held=tuple(sorted(held, key=lambda each: each.num_bytes, reverse=True)),
        layers=tuple(_by_layer(models)),
        batch_size=batch_size,
        has_batch_norm=any(_has_batch_norm(model) for model in models if model.built),
        batch_shapes=batch_shapes,
        largest_shapes=largest_shapes,
    )


def count_tensors_and_graphs() -> tuple[int, int, int]:
    """How many eager tensors are alive, their bytes, and how many graphs of functions."""
    objects = _live(_EAGER, tf.Graph)
    tensors = [each for each in objects if isinstance(each, _EAGER)]
    return len(tensors), sum(map(tensor_bytes, tensors)), len(objects) - len(tensors)


def tensor_bytes(tensor: Any) -> int:
    """The bytes of an eager tensor, from its shape and type."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size or 0)


def _live(*kinds: type) -> list[Any]:
    # By the type itself: `isinstance` would ask proxies and lazy modules for theirs, and load them.
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]


def _distinct(variables: Iterable[Any]) -> dict[int, Any]:
    return {id(internals.raw(variable)): variable for variable in variables}


def _by_layer(models: Iterable[Any]) -> Iterator[Held]:
    """Weights by the innermost layer that has them, largest first."""
    layers = [layer for model in models if model.built for layer in internals.all_layers(model)]
    seen: set[int] = set()
    found = []
    for layer in sorted(layers, key=lambda each: len(internals.all_layers(each))):
        own = {key: each for key, each in _distinct(layer.variables).items() if key not in seen}
        seen.update(own)
        if own:
            found.append(Held(name=layer.name, num_bytes=_total(own.values()), num=len(own)))
    yield from sorted(found, key=lambda each: each.num_bytes, reverse=True)


def _has_batch_norm(model: Any) -> bool:
    layers = internals.all_layers(model)
    return any(isinstance(layer, MIXING) and layer.trainable for layer in layers)


def _total(variables: Iterable[Any]) -> int:
    return sum(
        int(tf.TensorShape(each.shape).num_elements() or 0) * int(tf.as_dtype(each.dtype).size)
        for each in variables
    )
