"""A loop over the steps of a slice, run by TensorFlow op by op, or compiled by XLA into one op.

TensorFlow takes about as long to start a small operation as to run it, and a step of a cell has dozens.
Compiled, a slice is one loop of machine code with the element-wise work of a step fused. The price is a
compilation for every new shape, a few tenths of a second each, so slices should come in few lengths.

XLA fuses a step so eagerly that it computes some values once for every use. A body *spills* such values: it
hands them out as a part of its state, for no one to read, and they are computed once. Measured on two cores,
forward loop of a GRU: 49 us a step without, 20 us with r spilled (128 units). From about 256 units on it pays
to spill everything: with many pieces XLA runs them side by side (GRU(256): 99 us with r, 75 us with all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import tensorflow as tf

from memfit.rnn.block_tf import Tensors
from memfit.rnn.internals_tf import with_gradient

WIDE = 256
"""Units from which on a compiled step spills all its gates."""


Body: TypeAlias = Callable[..., tuple[Tensors, Tensors]]
"""One step: `body(constants, state, *elements)` returns the new state and what to collect.

`constants` is a structure of what is the same at every step (weights, dropout masks), `state` a tuple of
tensors `[batch, ...]`, `elements` what this step reads. To be compiled, a body has to be comparable (a frozen
dataclass) and to take every tensor from its arguments: equal loops are compiled once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A body over the first axis of its elements.

    Args:
        body: One step.
        shapes: Of everything that is collected at a step, without the batch.
        dtype: Of everything that is collected.
        reverse: From the last step to the first; what is collected stays in the order of time.
    """

    body: Body
    shapes: tuple[tuple[int | None, ...], ...]
    dtype: tf.DType
    reverse: bool = False

    def run(
        self, constants: Any, state: Tensors, elements: Sequence[tf.Tensor], *, compiled: bool
    ) -> tuple[Tensors, Tensors]:
        """As calling it, or `compiled` into one op."""
        return (self.compiled if compiled else self)(constants, state, elements)

    def __call__(
        self, constants: Any, state: Tensors, elements: Sequence[tf.Tensor]
    ) -> tuple[Tensors, Tensors]:
        """The last state, and the collected tensors as `[steps, batch, ...]`."""
        num_steps = tf.shape(elements[0])[0]
        arrays = tuple(
            tf.TensorArray(self.dtype, size=num_steps, element_shape=[state[0].shape[0], *shape])
            for shape in self.shapes
        )

        def step(count: tf.Tensor, state: Tensors, arrays: Any) -> Any:
            time = num_steps - 1 - count if self.reverse else count
            new_state, collected = self.body(constants, state, *(element[time] for element in elements))
            for new, old in zip(new_state, state, strict=True):
                new.set_shape(old.shape)
            arrays = tuple(array.write(time, value) for array, value in zip(arrays, collected, strict=True))
            return count + 1, new_state, arrays

        _, state, arrays = tf.while_loop(
            lambda count, *_: count < num_steps, step, (0, tuple(state), arrays), parallel_iterations=1
        )
        return state, tuple(array.stack() for array in arrays)

    def compiled(
        self, constants: Any, state: Tensors, elements: Sequence[tf.Tensor]
    ) -> tuple[Tensors, Tensors]:
        """As calling it, in one op; its gradients are those of the loop that is not compiled."""
        given = (constants, tuple(state), tuple(elements))
        shape: Any = None

        def function(*tensors: tf.Tensor) -> tuple[Tensors, Any]:
            nonlocal shape
            # Nothing recorded inside: TensorFlow would have the compiled function hand out every step.
            shape = _compiled(self)(*with_tensors(given, [tf.stop_gradient(each) for each in tensors]))

            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                with tf.GradientTape(watch_accessed_variables=False) as recorder:
                    recorder.watch([each for each in tensors if each.dtype.is_floating])
                    results = tf.nest.flatten(self(*with_tensors(given, tensors)))
                return recorder.gradient(results, tensors, output_gradients=list(upstream))  # type: ignore[no-any-return]

            return tuple(tf.nest.flatten(shape)), gradient

        results = with_gradient(function, *tensors_in(given))
        return tf.nest.pack_sequence_as(shape, results)  # type: ignore[no-any-return]


@cache
def _compiled(loop: Loop) -> Callable[..., tuple[Tensors, Tensors]]:
    """One function for all equal loops of the process: XLA never gives back what it compiled."""
    return tf.function(  # type: ignore[no-any-return]
        lambda *given: loop(*given), autograph=False, jit_compile=True
    )


def spilled(h: tf.Tensor, number: int) -> Tensors:
    """Where a body spills: as many zeros like h."""
    return tuple(tf.zeros_like(h) for _ in range(number))


def tensors_in(structure: Any) -> list[tf.Tensor]:
    """The tensors in a structure that may have `None` in places."""
    return [value for value in tf.nest.flatten(structure) if value is not None]


def with_tensors(structure: Any, tensors: Sequence[tf.Tensor]) -> Any:
    """The structure with other tensors, in the order of `tensors_in`."""
    rest = iter(tensors)
    flat = [None if value is None else next(rest) for value in tf.nest.flatten(structure)]
    return tf.nest.pack_sequence_as(structure, flat)
