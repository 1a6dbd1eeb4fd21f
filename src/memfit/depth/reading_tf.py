"""A trace as operations with bytes and seconds, for the pure half to cut.

Bytes are arithmetic from the shapes. Seconds are an estimate from the work of an operation, or were measured;
only their proportions matter, since they choose what is cheap enough to be computed again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from memfit.depth.graph import Graph, Node
from memfit.depth.tracing_tf import READS, Trace

# Their output is their input under another shape or name: no memory of its own.
ALIASES: Final = frozenset(
    ("ExpandDims", "Identity", "IdentityN", "PreventGradient", "Reshape", "Squeeze", "StopGradient")
)
# They look at the shape of a tensor only.
SHAPES: Final = frozenset(("Rank", "Shape", "ShapeN", "Size"))
# There in any case, and not made of anything.
GIVEN: Final = frozenset(("Const", "Placeholder", READS))

MOST_AXES: Final = 16

# Reads and writes of variables, which hold no activations.
ORDINARY: Final = ("Assign", "ReadVariable", "Resource", "VarHandle", "VarIsInitialized")

# Measured on 2 cores of a server in 2026 (float32): large products and convolutions, depthwise convolutions,
# memory, and starting an operation.
FLOPS_PER_SECOND: Final = 120e9
DEPTHWISE_FLOPS_PER_SECOND: Final = 8e9
BYTES_PER_SECOND: Final = 8e9
START_SECONDS: Final = 5e-6
# Times the time of moving their bytes.
SLOW: Final = {
    "Erf": 4,
    "Exp": 2,
    "Pow": 8,
    "Sigmoid": 2,
    "Softmax": 3,
    "StatelessRandomUniformV2": 4,
    "Tanh": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A trace as the pure half sees it.

    Args:
        graph: Operations, bytes, seconds.
        operations: The operation behind each node of the graph.
        root_of: For a tensor of the forward pass, by its id, the number of the tensor whose memory it has.
    """

    graph: Graph
    operations: list[tf.Operation]
    root_of: dict[int, int]


def has_unknown_sizes(trace: Trace) -> bool:
    """Whether the batch size, or another size, is not known."""
    return any(None in tensor.shape.as_list() for tensor in trace.inputs if tensor.shape.rank is not None)


def read(trace: Trace, unknown_size: int) -> Reading:
    """Operations, bytes and seconds of a trace.

    Args:
        trace: The trace.
        unknown_size: What to take a size for that is not known, such as that of the batch.
    """
    root_of: dict[int, int] = {}
    sizes: dict[int, int] = {}
    nodes: list[Node] = []
    operations: list[tf.Operation] = []
    for operation in trace.forward:
        if operation.type in GIVEN:
            continue
        if operation.type in ALIASES:
            for source, output in zip(operation.inputs, operation.outputs, strict=False):
                if id(source) in root_of:
                    root_of[id(output)] = root_of[id(source)]
            continue
        outputs = []
        for output in operation.outputs:
            number = root_of[id(output)] = len(sizes)
            sizes[number] = num_bytes(output, unknown_size)
            outputs.append(number)
        inputs = tuple(root_of[id(tensor)] for tensor in operation.inputs if id(tensor) in root_of)
        seconds = estimate_seconds(operation, unknown_size)
        can_repeat = is_repeatable(operation) and not _is_shape(operation)
        nodes.append(Node(inputs, tuple(outputs), seconds, can_repeat))
        operations.append(operation)
    needed = {
        root_of[id(tensor)]
        for operation in trace.backward
        if operation.type not in SHAPES
        for tensor in operation.inputs
        if id(tensor) in root_of
    }
    ends = {root_of[id(tensor)] for tensor in trace.outputs if id(tensor) in root_of}
    graph = Graph(nodes=tuple(nodes), sizes=sizes, needed=frozenset(needed), ends=frozenset(ends))
    return Reading(graph=graph, operations=operations, root_of=root_of)


def why_not_repeated(reading: Reading, trace: Trace) -> tuple[str, ...]:
    """A sentence for every layer with operations that run once, whatever the cuts, and hold something."""
    needed = reading.graph.needed | {tensor for node in reading.graph.nodes for tensor in node.inputs}
    kinds: dict[str, set[str]] = {}
    for node, operation in zip(reading.graph.nodes, reading.operations, strict=True):
        is_left = not is_repeatable(operation) and any(tensor in needed for tensor in node.outputs)
        if is_left and not operation.type.startswith(ORDINARY):
            layer = operation.name.rpartition("/")[0] or trace.graph.name
            kinds.setdefault(layer, set()).add(operation.type)
    return tuple(
        f"{layer}: {', '.join(sorted(found))} cannot be run twice, so what it returns is kept."
        for layer, found in kinds.items()
    )


def is_repeatable(operation: tf.Operation) -> bool:
    """Whether running it again gives the same and changes nothing but time."""
    special = (tf.resource, tf.variant)
    return not operation.op_def.is_stateful and not any(
        tensor.dtype in special for tensor in (*operation.inputs, *operation.outputs)
    )


def _is_shape(operation: tf.Operation) -> bool:
    """Whether it makes a few whole numbers only, such as a shape, which any alias may need: they are kept."""
    return all(
        output.dtype in (tf.int32, tf.int64) and num_elements(output, 1) <= MOST_AXES
        for output in operation.outputs
    )


def num_bytes(tensor: tf.Tensor, unknown_size: int) -> int:
    """The bytes of a tensor; 0 where not even its rank is known."""
    return num_elements(tensor, unknown_size) * tensor.dtype.size if tensor.dtype.size else 0


def num_elements(tensor: tf.Tensor, unknown_size: int) -> int:
    """The elements of a tensor."""
    if tensor.shape.rank is None:
        return 0
    return math.prod(unknown_size if size is None else size for size in tensor.shape.as_list())


def estimate_seconds(operation: tf.Operation, unknown_size: int) -> float:
    """How long an operation may take, from its work."""
    moved = sum(num_bytes(each, unknown_size) for each in (*operation.inputs, *operation.outputs))
    seconds = START_SECONDS + moved / BYTES_PER_SECOND * SLOW.get(operation.type, 1)
    return seconds + _product_seconds(operation, unknown_size)


def _product_seconds(operation: tf.Operation, unknown_size: int) -> float:
    kind = operation.type
    if kind not in ("BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Einsum", "MatMul"):
        return 0.0
    outputs = num_elements(operation.outputs[0], unknown_size)
    if kind == "Einsum":
        return 2 * _einsum_work(operation, unknown_size) / FLOPS_PER_SECOND
    other = operation.inputs[1].shape.as_list()
    known = [unknown_size if size is None else size for size in other]
    if kind == "DepthwiseConv2dNative":
        return 2 * outputs * math.prod(known[:2]) / DEPTHWISE_FLOPS_PER_SECOND
    if kind in ("Conv2D", "Conv3D"):
        return 2 * outputs * math.prod(known[:-1]) / FLOPS_PER_SECOND
    is_turned = operation.get_attr("transpose_b" if kind == "MatMul" else "adj_y")
    return 2 * outputs * known[-1 if is_turned else -2] / FLOPS_PER_SECOND


def _einsum_work(operation: tf.Operation, unknown_size: int) -> float:
    """The product of the sizes of all labels; without those of an ellipsis, the elements of the output."""
    labels = operation.get_attr("equation").decode().split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for names, tensor in zip(labels, operation.inputs, strict=True):
        if "." in names or tensor.shape.rank is None:
            return float(num_elements(operation.outputs[0], unknown_size))
        for name, size in zip(names, tensor.shape.as_list(), strict=True):
            sizes[name] = unknown_size if size is None else size
    return float(math.prod(sizes.values()))
