"""The parts of a model between cuts through its depth: bytes by arithmetic, seconds by running operations.

The model is traced and never called, so that variables, seeds and statistics stay what they are.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from memfit.depth.graph import cut_positions, live_bytes, segment_options
from memfit.depth.reading_tf import Reading, read
from memfit.depth.returning_tf import Returned, leaves_of
from memfit.depth.timing_tf import measure_seconds, timed
from memfit.depth.tracing_tf import Trace, trace_call, untangled
from memfit.records import DepthPart, Profile


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
    reading = timed(reading, measure_seconds(traces[0], reading, batch_size))
    return Profile(batch_size=batch_size, recurrent=(), depth=tuple(_parts(reading)))


def _parts(reading: Reading) -> list[DepthPart]:
    graph = reading.graph
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
