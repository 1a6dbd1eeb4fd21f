"""A call of a model with its gradient, traced into a graph of its own that never runs.

The graph is what everything else is decided from: which tensors the backward pass needs, which operations
make them, and what each of them weighs. Whatever the call does besides returning tensors is found here, too:
masks on its outputs, losses that layers added, tensors that layers put into their attributes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import keras
import tensorflow as tf

from memfit.depth.internals_tf import (
    captures,
    forget_gradients,
    plain_variable,
    traced,
    watched_variables,
)
from memfit.rnn.internals_tf import all_layers, attach_mask, mask_of

READS = "ReadVariableOp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A call and its gradient as operations.

    Args:
        graph: The graph that they are in.
        forward: The operations of the call, in the order in which they were made.
        backward: Those of its gradient.
        inputs: Placeholders of the tensors that were given.
        captured: What else comes from outside: the tensor outside, and its placeholder.
        variables: Trainable variables that were read.
        handles: The placeholders of their handles.
        outputs: What comes out, flat: results, masks, and what layers keep.
        differentiable: Which of the outputs have a gradient.
        upstream: Placeholders of the gradients of those.
        gradients: By the id of a placeholder (input, captured tensor, handle), its gradient.
    """

    graph: Any
    forward: list[tf.Operation]
    backward: list[tf.Operation]
    inputs: list[tf.Tensor]
    captured: list[tuple[tf.Tensor, tf.Tensor]]
    variables: list[tf.Variable]
    handles: list[tf.Tensor]
    outputs: list[tf.Tensor]
    differentiable: list[int]
    upstream: list[tf.Tensor]
    gradients: dict[int, Any]

    @property
    def changed_handles(self) -> set[int]:
        """Ids of the handles of variables that the call writes."""
        return {
            id(tensor)
            for operation in self.forward
            for tensor in operation.inputs
            if tensor.dtype == tf.resource and operation.type not in (READS, "ResourceGather")
        }


class _Now(threading.local):
    """Whether this thread is tracing a call already: a model inside another is a part of it."""

    is_tracing = False


NOW: Final = _Now()


def is_tangled() -> bool:
    """Whether this thread is tracing a call already."""
    return NOW.is_tracing


@contextmanager
def untangled() -> Iterator[None]:
    """Models that are called inside run as plain Keras: they are a part of what is traced."""
    before, NOW.is_tracing = NOW.is_tracing, True
    try:
        yield
    finally:
        NOW.is_tracing = before


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


def trace_call(
    model: keras.layers.Layer,
    call: Callable[..., Any],
    structure: Any,
    leaves: Sequence[Leaf],
    masks: Sequence[tf.Tensor | None],
    returned: Returned,
) -> Trace:
    """Traces a call and its gradient.

    Args:
        model: The model or layer that is called.
        call: Its plain `call`.
        structure: Positional and keyword arguments of the call.
        leaves: Their leaves, with tensors of the graph being built.
        masks: The mask of each tensor among them, or `None`.
        returned: Gets the structure of the results.

    Returns:
        The trace. Its inputs are the tensors, then the masks.
    """
    tensors = [tensor for leaf in leaves for tensor in leaf.tensors]
    given = [*tensors, *(mask for mask in masks if mask is not None)]

    def run(*values: tf.Tensor) -> list[tf.Tensor]:
        rest = iter(values[len(tensors) :])
        for value, mask in zip(values, masks, strict=False):
            if mask is not None:
                attach_mask(value, next(rest))
        positional, named = filled(structure, leaves, values[: len(tensors)])
        return returned.take(call(*positional, **named), tf.compat.v1.get_default_graph())

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
    # Persistent, since it is asked twice where an operation has no gradient.
    tape = tf.GradientTape(persistent=True)
    return _differentiate(model, traced(model.name, run, specs, tape), tape)


def _differentiate(model: keras.layers.Layer, graph: Any, tape: tf.GradientTape) -> Trace:
    forward = graph.get_operations()
    captured = captures(graph)
    variables = _trained_variables(model, graph, {id(outside) for outside, _ in captured})
    inside_of = {id(outside): inside for outside, inside in captured}
    handles = [inside_of[id(variable.handle)] for variable in variables]
    inside = {id(tensor) for _, tensor in captured}
    inputs = [tensor for tensor in graph.inputs if id(tensor) not in inside]
    outputs = list(graph.outputs)
    differentiable = [place for place, output in enumerate(outputs) if output.dtype.is_floating]
    with graph.as_default(), tf.name_scope("gradients"):
        upstream = [
            tf.compat.v1.placeholder(outputs[place].dtype, outputs[place].shape) for place in differentiable
        ]
        targets = [graph.results[place] for place in differentiable]
        floats = [tensor for tensor in (*inputs, *inside_of.values()) if tensor.dtype.is_floating]
        places = [*floats, *handles]
        gradients = _gradients(tape, targets, [*floats, *variables], variables, upstream)
    operations = graph.get_operations()
    forget_gradients(operations)
    forward = _with_makers(forward)
    names = {operation.name for operation in forward}
    rest = [operation for operation in operations if operation.name not in names]
    return Trace(
        graph=graph,
        forward=forward,
        backward=_leading_to(gradients, rest),
        inputs=inputs,
        captured=captures(graph),
        variables=variables,
        handles=handles,
        outputs=outputs,
        differentiable=differentiable,
        upstream=upstream,
        gradients={id(place): gradient for place, gradient in zip(places, gradients, strict=True)},
    )


def _trained_variables(model: keras.layers.Layer, graph: Any, handles: set[int]) -> list[tf.Variable]:
    """The variables that the call reads and that may be asked for a gradient."""
    frozen = {id(plain_variable(each)) for each in model.variables if not each.trainable}
    return [
        variable
        for variable in watched_variables(graph)
        if variable.trainable
        and variable.dtype.is_floating
        and id(variable) not in frozen
        and id(variable.handle) in handles
    ]


def _gradients(
    tape: tf.GradientTape,
    targets: list[tf.Tensor],
    sources: list[Any],
    variables: list[tf.Variable],
    upstream: list[tf.Tensor],
) -> list[Any]:
    """The gradients of the sources; only of the variables where an operation between has none."""
    nothing = [None] * (len(sources) - len(variables))
    if not targets or not sources:
        return [None] * len(sources)
    try:
        return list(tape.gradient(targets, sources, output_gradients=upstream))
    except LookupError:
        found = tape.gradient(targets, variables, output_gradients=upstream)
    return [*nothing, *found]


def _with_makers(forward: Sequence[tf.Operation]) -> list[tf.Operation]:
    """The operations, each behind those that make its inputs: a gradient gives a loop inputs to fill."""
    found: dict[str, tf.Operation] = {}

    def add(operation: tf.Operation) -> None:
        if operation.name not in found:
            for tensor in operation.inputs:
                if tensor.op.name not in found:
                    add(tensor.op)
            found[operation.name] = operation

    for operation in forward:
        add(operation)
    return list(found.values())


def _leading_to(gradients: Sequence[Any], operations: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Those of the operations that the gradients depend on, in their order."""
    wanted = {
        tensor.op.name
        for gradient in gradients
        if gradient is not None
        for tensor in tf.nest.flatten(gradient, expand_composites=True)
    }
    found = []
    for operation in reversed(operations):
        if operation.name in wanted:
            found.append(operation)
            wanted.update(tensor.op.name for tensor in operation.inputs)
            wanted.update(each.name for each in operation.control_inputs)
    return found[::-1]
