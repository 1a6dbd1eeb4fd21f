"""How long the operations of a trace run, by running them one by one on made-up values.

Operations that write something, or that cannot be run alone, are not run; their time stays estimated. So
variables, seeds and statistics stay what they are. A tensor is dropped as soon as nothing uses it any more.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from memfit.depth.internals_tf import run_eagerly
from memfit.depth.reading_tf import Reading, is_repeatable
from memfit.depth.tracing_tf import READS, Trace

NUM_RUNS = 3


def timed(reading: Reading, seconds: Sequence[float]) -> Reading:
    """The reading with other seconds."""
    nodes = [
        dataclasses.replace(node, seconds=each)
        for node, each in zip(reading.graph.nodes, seconds, strict=True)
    ]
    graph = reading.graph
    return dataclasses.replace(reading, graph=dataclasses.replace(graph, nodes=tuple(nodes)))


def measure_seconds(trace: Trace, reading: Reading, unknown_size: int) -> list[float]:
    """For every node of a reading the least of several runs, or as estimated where it is not run.

    Args:
        trace: What was read.
        reading: The nodes.
        unknown_size: What to take a size for that is not known.
    """
    outside = {id(inside): value for value, inside in trace.captured}
    nodes = {
        id(operation): node for operation, node in zip(reading.operations, reading.graph.nodes, strict=True)
    }
    uses = Counter(id(tensor) for operation in trace.forward for tensor in operation.inputs)
    values: dict[int, Any] = {}
    found: dict[int, float] = {}
    for operation in trace.forward:
        inputs = [values.get(id(tensor)) for tensor in operation.inputs]
        outputs: list[Any] | None = None
        if operation.type == "Placeholder":
            value = outside.get(id(operation.outputs[0]))
            outputs = [value] if _is_eager(value) else None
        elif None not in map(_kind, inputs) and (operation.type == READS or is_repeatable(operation)):
            num_runs = NUM_RUNS if id(operation) in nodes else 1
            outputs, found[id(operation)] = _run(operation, inputs, num_runs)
        if outputs is None:
            found.pop(id(operation), None)
            outputs = [_made_up(output, unknown_size) for output in operation.outputs]
        values.update((id(tensor), value) for tensor, value in zip(operation.outputs, outputs, strict=True))
        uses.subtract(id(tensor) for tensor in operation.inputs)
        for tensor in operation.inputs:
            if not uses[id(tensor)]:
                values.pop(id(tensor), None)
    return [found.get(number, node.seconds) for number, node in nodes.items()]


def _kind(value: Any) -> Any:
    return None if value is None else type(value)


def _is_eager(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and not tf.is_symbolic_tensor(value)


def _run(operation: tf.Operation, inputs: list[Any], num_runs: int) -> tuple[list[Any] | None, float]:
    """What it makes, and the least seconds of several runs."""
    outputs, seconds = None, []
    for _ in range(num_runs):
        start = time.perf_counter()
        outputs = run_eagerly(operation, inputs)
        seconds.append(time.perf_counter() - start)
        if outputs is None:
            break
    return outputs, min(seconds)


def _made_up(tensor: tf.Tensor, unknown_size: int) -> Any:
    """A value in the place of a tensor that is not computed; `None` where there can be none."""
    if tensor.shape.rank is None or tensor.dtype in (tf.resource, tf.variant, tf.string):
        return None
    shape = [unknown_size if size is None else size for size in tensor.shape.as_list()]
    return tf.cast(tf.random.stateless_uniform(shape, [1, 2]), tensor.dtype)
