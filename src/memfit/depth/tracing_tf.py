"""A call of a model with its gradient, traced into a graph of its own that never runs.

The graph is what everything else is decided from: which tensors the backward pass needs, which operations
make them, and what each of them weighs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.depth.internals_tf import (
    captures,
    forget_gradients,
    plain_variable,
    traced,
    watched_variables,
)
from memfit.depth.returning_tf import Leaf, Returned, filled
from memfit.rnn.internals_tf import attach_mask

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
