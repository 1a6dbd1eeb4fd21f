"""Whether a function can be run twice with the same result: recomputation depends on it.

Keras's seed generators are variables, and the engine carries them along. TensorFlow's own stateful random ops
keep their state where nobody can put it back, so what they draw in a recomputed segment would not be what
they drew before, and the gradient would be wrong without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from memfit.errors import UsageError

STATEFUL_RANDOM: Final = re.compile(
    r"Random(Uniform|UniformInt|StandardNormal|Shuffle|Gamma|PoissonV?2?)$|(Parameterized)?TruncatedNormal$"
    r"|Multinomial$|Stateful.*(Normal|Uniform|Binomial)|Rng(ReadAndSkip|Skip)"
)


def check_repeatable(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Raises a `UsageError` if `function` draws random numbers that cannot be drawn again.

    Args:
        name: What to call it in the error.
        function: It is traced with the arguments into a graph of its own, and never run.
        *arguments: Tensors or structures of them.
    """
    specs = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), arguments)
    graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    drawing = sorted({node.op for node in nodes if STATEFUL_RANDOM.match(node.op)})
    if drawing:
        raise UsageError(
            f"{name} draws random numbers with {', '.join(drawing)}, which cannot be drawn a second time, so "
            "its gradient by segments would be wrong. Draw them with keras.random and a "
            "keras.random.SeedGenerator, or leave this layer out."
        )
