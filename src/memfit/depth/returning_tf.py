"""What a call is given and what it returns, with places for tensors: those of one graph for those of another.

A call returns more than its results: masks on them, losses that layers added, tensors that layers put into
their attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from memfit.rnn.internals_tf import all_layers, attach_mask, mask_of


class Returned:
    """What a call returned, with places for its tensors.

    Args:
        model: The model that is called.
    """

    def __init__(self, model: keras.layers.Layer) -> None:
        self._model = model
        self._structure: Any = None
        self._leaves: list[Leaf] = []
        self._masked: list[int] = []
        self._kept: list[tuple[Any, str, int | None]] = []

    def take(self, results: Any, graph: Any) -> list[tf.Tensor]:
        """The tensors of a call that was traced in `graph`: results, their masks, and what layers keep."""
        leaves = leaves_of(results)
        self._structure = without_tensors(results)
        self._leaves = [leaf._replace(tensors=[None] * len(leaf.tensors)) for leaf in leaves]
        tensors = [tensor for leaf in leaves for tensor in leaf.tensors]
        masks = [mask_of(tensor) for tensor in tensors]
        self._masked = [place for place, mask in enumerate(masks) if mask is not None]
        self._kept = _kept_tensors(all_layers(self._model), graph)
        kept = [
            vars(layer)[name] if place is None else vars(layer)[name][place]
            for layer, name, place in self._kept
        ]
        return [*tensors, *(mask for mask in masks if mask is not None), *kept]

    def give(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The results with other tensors in their places, masked, and told to the layers that keep some."""
        num_kept, num_masks = len(self._kept), len(self._masked)
        num_results = len(tensors) - num_kept - num_masks
        for place, mask in zip(self._masked, tensors[num_results : num_results + num_masks], strict=True):
            attach_mask(tensors[place], mask)
        for (layer, name, at), tensor in zip(self._kept, tensors[num_results + num_masks :], strict=True):
            _put(layer, name, at, tensor)
        return filled(self._structure, self._leaves, tensors[:num_results])


class Leaf(NamedTuple):
    """A leaf of a structure: a tensor, several that are one (ragged, sparse), or anything else.

    Args:
        value: The leaf; for tensors, only what they are like.
        tensors: The tensors.
    """

    value: Any
    tensors: list[Any]


def leaves_of(structure: Any) -> list[Leaf]:
    """The leaves of a structure, as Keras sees it."""
    return [
        Leaf(tf.type_spec_from_value(value), tf.nest.flatten(value, expand_composites=True))
        if tf.is_tensor(value)
        else Leaf(value, [])
        for value in keras.tree.flatten(structure)
    ]


def without_tensors(structure: Any) -> Any:
    """The structure with 0 for every tensor, so that it holds none."""
    return keras.tree.map_structure(lambda value: 0 if tf.is_tensor(value) else value, structure)


def filled(structure: Any, leaves: Sequence[Leaf], tensors: Sequence[tf.Tensor]) -> Any:
    """The structure with other tensors in the places of its own."""
    rest, values = iter(tensors), []
    for leaf in leaves:
        parts = [next(rest) for _ in leaf.tensors]
        if parts:
            values.append(tf.nest.pack_sequence_as(leaf.value, parts, expand_composites=True))
        else:
            values.append(leaf.value)
    return keras.tree.pack_sequence_as(structure, values)


def _kept_tensors(layers: Sequence[Any], graph: Any) -> list[tuple[Any, str, int | None]]:
    """Where layers have put tensors of a graph: losses that were added, or attributes of their own."""
    found: list[tuple[Any, str, int | None]] = []
    for layer in layers:
        for name, value in vars(layer).items():
            if _is_in(value, graph):
                found.append((layer, name, None))
            elif isinstance(value, list):
                found.extend((layer, name, place) for place, each in enumerate(value) if _is_in(each, graph))
    return found


def _is_in(value: Any, graph: Any) -> bool:
    return isinstance(value, tf.Tensor) and getattr(value, "graph", None) is graph


def _put(layer: Any, name: str, place: int | None, tensor: tf.Tensor) -> None:
    if place is None:
        object.__setattr__(layer, name, tensor)
    elif place < len(vars(layer)[name]):
        vars(layer)[name][place] = tensor
    else:  # A call that was traced before: Keras has emptied its list of losses since.
        vars(layer)[name].append(tensor)
