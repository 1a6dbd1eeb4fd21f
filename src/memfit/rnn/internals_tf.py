"""Every private name of TensorFlow and Keras that the engine leans on, in this one file.

`check_versions()` fails with the versions in its message when one of them has moved. Nothing else in the
engine may import from `tensorflow.python` or `keras.src`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.variables import AutocastScope
from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell
from keras.src.models.functional import Functional
from keras.src.ops.function import Function
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.ops import control_flow_util

from memfit.measuring.versions_tf import check_expectations, takes

GRADIENT_NAME = "_gradient_op_type"
KEPT_GRADIENTS = "_memfit_gradients"
GRADIENT_PREFIX = "CustomGradient-"
# Names inside `tensorflow.python.ops.custom_gradient`, of the closures that the registry holds.
GRADIENT_INNER, GRADIENT_RESULT = "tape_grad_fn", "result"
EagerTensor = tf.__internal__.EagerTensor


def check_versions() -> None:
    """Raises a `SetupError` that names the versions when an internal is not as expected."""
    check_expectations(
        "memfit's recurrent engine does not know",
        _expectations(),
        otherwise="leave time_checkpoint out of the plan",
    )


def _expectations() -> dict[str, bool]:
    registry = framework_ops.gradient_registry
    inner_loop = getattr(keras.layers.RNN, "inner_loop", None)
    return {
        "keras.layers.RNN.inner_loop": takes(inner_loop, "sequences", "initial_state", "mask", "training"),
        "keras RNN dropout masks": all(
            hasattr(keras.layers.RNN, name)
            for name in ("_maybe_config_dropout_masks", "_maybe_reset_dropout_masks")
        ),
        "keras Function._run_through_graph": takes(
            getattr(Function, "_run_through_graph", None), "inputs", "operation_fn"
        ),
        "keras DropoutRNNCell masks": _mentions(DropoutRNNCell.reset_dropout_mask, "_dropout_mask")
        and _mentions(DropoutRNNCell.reset_recurrent_dropout_mask, "_recurrent_dropout_mask"),
        "keras Function._nodes_by_depth": _mentions(Function.__init__, "_nodes_by_depth"),
        "keras Sequential._functional": _mentions(keras.Sequential.__init__, "_functional"),
        "keras Layer._flatten_layers": takes(
            getattr(keras.layers.Layer, "_flatten_layers", None), "include_self", "recursive"
        ),
        "keras Layer._call_has_training_arg": _mentions(
            keras.layers.Layer.__init__, "_call_has_training_arg"
        ),
        "tensorflow gradient registry": isinstance(getattr(registry, "_registry", None), dict),
        "tensorflow XLA context": hasattr(control_flow_util, "GraphOrParentsInXlaContext"),
    }


def _mentions(function: Callable[..., Any], name: str) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and name in code.co_names


def raw_value(variable: keras.Variable) -> tf.Tensor:
    """The variable in its own dtype, also where a policy would cast it."""
    with AutocastScope(None):
        return tf.convert_to_tensor(variable.value)


def is_compiled_by_xla() -> bool:
    """Whether the graph being traced will be compiled by XLA."""
    if tf.executing_eagerly():
        return False
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def with_gradient(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """`tf.custom_gradient`, without keeping the closure alive for ever.

    TensorFlow files the gradient of every graph-mode `tf.custom_gradient` in a process-wide registry and
    never takes it out; the closure holds the whole model. Here the registry gets a weak reference, the
    graph that owns the operation gets the strong one, and the entry goes when the graph goes.

    Args:
        function: Takes the arguments and returns `(results, gradient_function)`.
        *arguments: Tensors that gradients may be asked for.

    Returns:
        The results, a tuple of tensors of the graph being built.
    """
    results = tf.custom_gradient(function)(*arguments)
    operation = results[0].op
    _tie(operation.get_attr(GRADIENT_NAME).decode(), operation.graph)
    return results


class TiedGradient:
    """Stands in TensorFlow's registry for a gradient that its graph keeps alive.

    Args:
        gradient: The gradient's closure.
    """

    __slots__ = ("_reference",)

    def __init__(self, gradient: Callable[..., Any]) -> None:
        self._reference = weakref.ref(gradient)

    def __call__(self, operation: Any, *upstream: Any) -> Any:
        """The gradient of an operation."""
        found = self._reference()
        assert found is not None, "an operation outlived the graph that it is in"
        return found(operation, *upstream)


def _tie(name: str, graph: Any) -> None:
    """Ties the life of one gradient in the registry to its graph."""
    registry = framework_ops.gradient_registry._registry
    gradient = registry[name]["type"]
    setattr(graph, KEPT_GRADIENTS, [*getattr(graph, KEPT_GRADIENTS, ()), gradient])
    registry[name]["type"] = TiedGradient(gradient)
    weakref.finalize(graph, registry.pop, name, None)


def tie_gradients() -> int:
    """Ties the closures of all custom gradients that TensorFlow keeps for ever to their graphs.

    A graph that is alive keeps its gradients, differentiated or not; one that only the registry kept goes
    with the next garbage collection, and so do the model and the optimizer that its closures hold.

    Returns:
        How many there were that were not tied yet.
    """
    registry = framework_ops.gradient_registry._registry
    graphs = {name: _graph_of(registry[name]["type"]) for name in loose_gradients()}
    for name, graph in graphs.items():
        if graph is not None:
            _tie(name, graph)
    return sum(graph is not None for graph in graphs.values())


def loose_gradients() -> list[str]:
    """The names of all custom gradients that TensorFlow keeps for ever."""
    registry = framework_ops.gradient_registry._registry
    return [
        name
        for name in list(registry)
        if name.startswith(GRADIENT_PREFIX) and not isinstance(registry[name]["type"], TiedGradient)
    ]


def num_gradients() -> int:
    """How many gradients TensorFlow's registry holds."""
    return len(framework_ops.gradient_registry._registry)


def _graph_of(gradient: Any) -> Any:
    """The graph whose operation a custom gradient belongs to, or `None` if it is of another make."""
    inner = _free_variable(gradient, GRADIENT_INNER)
    results = tf.nest.flatten(_free_variable(inner, GRADIENT_RESULT), expand_composites=True)
    symbolic = (each for each in results if isinstance(each, tf.Tensor) and not isinstance(each, EagerTensor))
    return next((each.graph for each in symbolic), None)


def _free_variable(function: Any, name: str) -> Any:
    """What a closure knows by a name, or `None`."""
    if not isinstance(function, FunctionType) or name not in function.__code__.co_freevars:
        return None
    assert function.__closure__ is not None
    return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents


def dropout_cells(cell: Any) -> list[Any]:
    """The cells inside `cell` for which Keras draws dropout masks once per call."""
    if isinstance(cell, keras.layers.StackedRNNCells):
        return [found for inner in cell.cells for found in dropout_cells(inner)]
    return [cell] if isinstance(cell, DropoutRNNCell) else []


def draw_dropout(layer: keras.layers.RNN, first: tf.Tensor, states: list[Any]) -> None:
    """Has Keras draw the dropout masks of a call, as `RNN.call` does before its loop."""
    layer._maybe_config_dropout_masks(layer.cell, first, states)


def forget_dropout(layer: keras.layers.RNN) -> None:
    """Has Keras drop the masks of a call, as `RNN.call` does after its loop."""
    layer._maybe_reset_dropout_masks(layer.cell)


def dropout_masks(cell: Any) -> tuple[Any, Any]:
    """The input and the recurrent dropout mask of one cell: `None`, a tensor, or a list of one a gate."""
    return getattr(cell, "_dropout_mask", None), getattr(cell, "_recurrent_dropout_mask", None)


def set_dropout_masks(cell: Any, masks: tuple[Any, Any]) -> None:
    """Puts masks back on a cell for a recomputation."""
    cell._dropout_mask, cell._recurrent_dropout_mask = masks


def takes_training(layer: Any) -> bool:
    """Whether `layer.call` has a `training` argument."""
    return bool(layer._call_has_training_arg)


INNER_LOOPS = tuple(
    vars(each).get("inner_loop") for each in (keras.layers.RNN, keras.layers.LSTM, keras.layers.GRU)
)


def inner_loops() -> tuple[Callable[..., Any] | None, ...]:
    """Keras's own loops, as they were when this file was loaded: those that the engine may replace."""
    return INNER_LOOPS


def is_known_loop(loop: Any) -> bool:
    """Whether a loop is Keras's own, or one that stands in for it in the whole process."""
    wrapped = getattr(loop, "__wrapped__", None)
    return loop in INNER_LOOPS or (wrapped is not None and wrapped in INNER_LOOPS)


def mask_of(values: Any) -> Any:
    """The mask that Keras has attached to a tensor, or `None`."""
    return get_keras_mask(values)


def attach_mask(values: Any, mask: Any) -> None:
    """Attaches a mask to a tensor, as a layer does for the next one."""
    if mask is not None:
        set_keras_mask(values, mask)


class GraphNode(NamedTuple):
    """One call of a layer in the graph of a functional model.

    Args:
        layer: What is called.
        inputs: Ids of all tensors that go in, the mask included.
        outputs: Ids of the tensors that come out.
        mask: Id of the tensor that is the mask, or `None`.
        is_plain: Whether nothing but one tensor, and maybe a mask, is given.
        input_shape: Of the first tensor that goes in.
    """

    layer: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    mask: int | None
    is_plain: bool
    input_shape: tuple[int | None, ...]


def functional_of(model: Any) -> Any:
    """The functional graph behind a Sequential or Functional model, or `None`."""
    if isinstance(model, keras.Sequential):
        return model._functional
    is_functional = isinstance(model, Functional) and type(model).call is Functional.call
    return model if is_functional else None


def graph_nodes(functional: Any) -> tuple[list[GraphNode], set[int]]:
    """The calls of a functional model from its inputs to its outputs, and the ids of its output tensors."""
    nodes = []
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        for node in functional._nodes_by_depth[depth]:
            if node.is_input:
                continue
            options = dict(node.arguments.kwargs)
            mask = options.pop("mask", None)
            is_plain = len(node.arguments.args) == 1 and not any(
                each is not None and each is not False for each in options.values()
            )
            nodes.append(
                GraphNode(
                    layer=node.operation,
                    inputs=tuple(id(each) for each in node.input_tensors),
                    outputs=tuple(id(each) for each in node.outputs),
                    mask=None if mask is None else id(mask),
                    is_plain=is_plain,
                    input_shape=tuple(node.input_tensors[0].shape) if node.input_tensors else (),
                )
            )
    return nodes, {id(each) for each in functional.outputs}


def all_layers(layer: Any) -> list[Any]:
    """A layer and everything inside it, each once."""
    found = {id(each): each for each in layer._flatten_layers(include_self=True, recursive=True)}
    return list(found.values())
