"""The parts of a model between cuts through its depth: bytes by arithmetic, seconds by running operations.

The model is traced and never called: its operations run one by one on made-up values, each but those that
write something, so that variables, seeds and statistics stay what they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from memfit.depth.calling_tf import untangled
from memfit.depth.graph import Graph, Node, cut_positions, live_bytes, segment_options
from memfit.depth.internals_tf import run_eagerly
from memfit.depth.reading_tf import Reading, is_repeatable, read
from memfit.depth.tracing_tf import READS, Returned, Trace, leaves_of, trace_call
from memfit.records import DepthPart, Profile

NUM_RUNS = 3


def profile_depth(model: keras.layers.Layer, inputs: Any) -> Profile:
    """The parts in depth of a model, for a batch.

    Args:
        model: A model, built or not.
        inputs: A batch: tensors or arrays, as the model takes them. Only shapes and dtypes are looked at.

    Returns:
        A `Profile` for the `depth_checkpoint` strategy.
    """
    inputs = keras.tree.map_structure(tf.convert_to_tensor, inputs)
    batch_size = int(keras.tree.flatten(inputs)[0].shape[0])
    traces: list[Trace] = []

    def look() -> None:
        leaves = leaves_of(((inputs,), {}))
        tensors = [tensor for leaf in leaves for tensor in leaf.tensors]
        call = lambda values: model(values, training=True)  # noqa: E731
        with untangled():
            masks = [None] * len(tensors)
            traces.append(trace_call(model, call, ((inputs,), {}), leaves, masks, Returned(model)))

    tf.function(look, autograph=False).get_concrete_function()
    reading = read(traces[0], batch_size)
    graph = _timed(reading, _measure_seconds(traces[0], reading))
    return Profile(batch_size=batch_size, recurrent=(), depth=tuple(_parts(graph, reading)))


def _timed(reading: Reading, seconds: Sequence[float]) -> Graph:
    nodes = [
        Node(node.inputs, node.outputs, each, node.is_repeatable)
        for node, each in zip(reading.graph.nodes, seconds, strict=True)
    ]
    graph = reading.graph
    return Graph(nodes=tuple(nodes), sizes=graph.sizes, needed=graph.needed, ends=graph.ends)


def _measure_seconds(trace: Trace, reading: Reading) -> list[float]:
    """The least of several runs of every operation behind a node; as estimated where that cannot be."""
    outside = {id(inside): value for value, inside in trace.captured}
    values: dict[int, tf.Tensor] = {}
    estimated = {
        id(operation): node.seconds
        for operation, node in zip(reading.operations, reading.graph.nodes, strict=True)
    }
    found: dict[int, float] = {}
    uses: dict[int, int] = {}
    for operation in trace.forward:
        for tensor in operation.inputs:
            uses[id(tensor)] = uses.get(id(tensor), 0) + 1
    for operation in trace.forward:
        inputs = [values.get(id(tensor)) for tensor in operation.inputs]
        runs = NUM_RUNS if id(operation) in estimated else 1
        outputs = None
        if operation.type == "Placeholder":
            outputs = [outside.get(id(output)) for output in operation.outputs]
            outputs = [
                _made_up(output) if value is None or not _is_eager(value) else value
                for output, value in zip(operation.outputs, outputs, strict=True)
            ]
        elif None not in inputs and (operation.type == READS or is_repeatable(operation)):
            outputs, found[id(operation)] = _run(operation, inputs, runs)
        if outputs is None:
            outputs = [_made_up(output) for output in operation.outputs]
        values.update((id(tensor), value) for tensor, value in zip(operation.outputs, outputs, strict=True))
        for tensor in operation.inputs:
            uses[id(tensor)] -= 1
            if not uses[id(tensor)]:
                values.pop(id(tensor), None)
    return [found.get(id(operation)) or estimated[id(operation)] for operation in reading.operations]


def _is_eager(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and not tf.is_symbolic_tensor(value)


def _run(operation: tf.Operation, inputs: list[Any], runs: int) -> tuple[list[Any] | None, float]:
    least = 0.0
    outputs = None
    for _ in range(runs):
        start = time.perf_counter()
        outputs = run_eagerly(operation, inputs)
        seconds = time.perf_counter() - start
        least = seconds if not least else min(least, seconds)
        if outputs is None:
            return None, 0.0
    return outputs, least


def _made_up(tensor: tf.Tensor) -> Any:
    if not tensor.shape.is_fully_defined() or tensor.dtype in (tf.resource, tf.variant, tf.string):
        return None
    return tf.cast(tf.random.stateless_uniform(tensor.shape, [1, 2]), tensor.dtype)


def _parts(graph: Graph, reading: Reading) -> list[DepthPart]:
    places = cut_positions(graph)
    live = live_bytes(graph)
    parts = []
    for start, (kept, again, *_) in enumerate(segment_options(graph, places)):
        begin, end = places[start], places[start + 1]
        made = {tensor for node in graph.nodes[begin:end] for tensor in node.outputs} - graph.ends
        costliest = max(range(begin, end), key=lambda index: graph.nodes[index].seconds)
        parts.append(
            DepthPart(
                layer=reading.operations[costliest].name.rpartition("/")[0],
                cut_bytes=live[end],
                new_bytes=again.kept_bytes,
                tape_bytes=sum(graph.sizes[tensor] for tensor in made & graph.needed),
                work_bytes=kept.held_bytes,
                seconds=sum(node.seconds for node in graph.nodes[begin:end]),
                again_seconds=again.seconds,
            )
        )
    return parts
