"""Every private name of TensorFlow and Keras that depth checkpointing leans on, in this one file.

`check_versions()` fails with the versions in its message when one of them has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.common.variables import AutocastScope
from tensorflow.python.eager import context, execute, record
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import handle_data_util

from memfit.errors import UsageError
from memfit.measuring.versions_tf import check_expectations, takes

GRADIENT_NAME = "_gradient_op_type"
# Hints of one graph for one graph: where an operation was to be placed, what it was inferred to be.
DROPPED = (GRADIENT_NAME, "_class", "_output_shapes")


def check_versions() -> None:
    """Raises a `SetupError` that names the versions when an internal is not as expected."""
    check_expectations(
        "memfit's depth checkpointing does not know",
        expectations(),
        otherwise="leave depth_checkpoint out of the plan",
    )


def expectations() -> dict[str, bool]:
    """What is leaned on, and whether it is there."""
    graph = func_graph.FuncGraph
    return {
        "tensorflow func_graph_from_py_func": callable(getattr(func_graph, "func_graph_from_py_func", None)),
        "tensorflow FuncGraph.captures": all(
            isinstance(getattr(graph, name, None), property) for name in ("captures", "variables")
        )
        and takes(graph.capture, "tensor", "name", "shape"),
        "tensorflow Graph._create_op_internal": callable(getattr(graph, "_create_op_internal", None)),
        "tensorflow Graph functions": all(
            callable(getattr(graph, name, None)) for name in ("_add_function_recursive", "_get_function")
        ),
        "tensorflow gradient recording": callable(getattr(record, "could_possibly_record", None))
        and all(callable(getattr(execute, name, None)) for name in ("must_record_gradient", "execute")),
        "tensorflow Operation._gradient_function": hasattr(tf.Operation, "_gradient_function")
        or "_gradient_function" in ops.get_gradient_function.__code__.co_names,
        "tensorflow copy_handle_data": callable(getattr(handle_data_util, "copy_handle_data", None)),
        "tensorflow gradient registry": isinstance(getattr(ops.gradient_registry, "_registry", None), dict),
        "keras Layer._losses": "_losses" in keras.layers.Layer.__init__.__code__.co_names,
    }


def is_recorded() -> bool:
    """Whether a `GradientTape` may want the gradient of what is computed now."""
    return bool(record.could_possibly_record())


def is_stateless() -> bool:
    """Whether Keras runs layers as pure functions now."""
    return bool(in_stateless_scope())


def plain_variable(variable: keras.Variable) -> tf.Variable:
    """The TensorFlow variable behind one of Keras's, also where a policy would cast it."""
    with AutocastScope(None):
        return variable.value


class _WatchingGraph(func_graph.FuncGraph):
    """A graph whose tape watches what is taken from outside."""

    tape: tf.GradientTape
    results: list[tf.Tensor]

    def capture(self, tensor: tf.Tensor, name: str | None = None, shape: Any = None) -> tf.Tensor:
        """As TensorFlow's own."""
        inside = super().capture(tensor, name, shape)
        if inside.dtype.is_floating:
            self.tape.watch(inside)
        return inside


def traced(
    name: str,
    function: Callable[..., list[tf.Tensor]],
    specs: Sequence[tf.TensorSpec],
    tape: tf.GradientTape,
) -> Any:
    """The graph of a function, traced once; a tape watches all that comes in.

    What the function returned, as the tape knows it, is in `results`; TensorFlow's `outputs` are copies.
    """
    graph = _WatchingGraph(name)
    graph.tape = tape

    def recorded(*values: tf.Tensor) -> list[tf.Tensor]:
        with tape:
            tape.watch([value for value in values if value.dtype.is_floating])
            graph.results = function(*values)
        return graph.results

    return func_graph.func_graph_from_py_func(name, recorded, (), {}, signature=list(specs), func_graph=graph)


def captures(graph: Any) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """What a graph takes from outside, and the placeholder that stands for it inside."""
    return list(graph.captures)


def watched_variables(graph: Any) -> list[tf.Variable]:
    """The variables that were read while a graph was traced."""
    return list(graph.variables)


def forget_gradients(operations: Iterable[tf.Operation]) -> None:
    """Takes the gradients of a private graph, which is differentiated already, out of the registry."""
    registry = ops.gradient_registry._registry
    for operation in operations:
        if operation.type == "IdentityN" and GRADIENT_NAME in operation.node_def.attr:
            registry.pop(operation.get_attr(GRADIENT_NAME).decode(), None)


def repeat(
    operation: tf.Operation, inputs: Sequence[tf.Tensor], control: Iterable[tf.Operation], name: str
) -> tf.Operation:
    """The operation once more in the graph being built, on other inputs.

    Tapes record it, so that gradients of gradients find their way.
    """
    graph = tf.compat.v1.get_default_graph()
    attributes = dict(operation.node_def.attr)
    for dropped in DROPPED:
        attributes.pop(dropped, None)
    _carry_functions(operation.graph, graph, attributes.values())
    with graph.control_dependencies(list(control)), tf.device(operation.device or None):
        new = graph._create_op_internal(
            operation.type,
            list(inputs),
            [output.dtype for output in operation.outputs],
            name=name,
            attrs=attributes,
            op_def=operation.op_def,
        )
    if "f" in attributes and attributes["f"].HasField("func"):
        new._gradient_function = operation._gradient_function or _refuse
    for old, output in zip(operation.outputs, new.outputs, strict=True):
        if old.dtype in (tf.resource, tf.variant):
            handle_data_util.copy_handle_data(old, output)
        else:
            output.set_shape(old.shape)
    if execute.must_record_gradient():
        values = [part for key in attributes if not key.startswith("_") for part in (key, _value(new, key))]
        execute.record_gradient(operation.type, new.inputs, tuple(values), new.outputs)
    return new


def run_eagerly(operation: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor] | None:
    """What the operation makes of these values, now; `None` if it cannot be run alone."""
    keys = [key for key in operation.node_def.attr if not key.startswith("_")]
    attributes = tuple(part for key in keys for part in (key, _value(operation, key)))
    try:
        found = execute.execute(
            operation.type, len(operation.outputs), list(inputs), attributes, context.context()
        )
    except (TypeError, ValueError, tf.errors.OpError):
        return None
    return list(found)


def _refuse(operation: tf.Operation, *_: Any) -> Any:
    raise UsageError(
        f"the gradient of a gradient goes through {operation.name!r}, a function inside the model, which "
        "depth checkpointing does not differentiate twice. Leave depth_checkpoint out for this model."
    )


def _value(operation: tf.Operation, key: str) -> Any:
    value = operation.get_attr(key)
    if isinstance(value, tf.DType):
        return value.as_datatype_enum
    return value


def _carry_functions(source: Any, target: Any, attributes: Iterable[Any]) -> None:
    for attribute in attributes:
        functions = [attribute.func] if attribute.HasField("func") else list(attribute.list.func)
        for function in functions:
            found = source._get_function(function.name)
            if found is not None and target._get_function(function.name) is None:
                target._add_function_recursive(found)
