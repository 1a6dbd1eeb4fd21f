"""What the engine asks of a piece of a network that it can run by time segments.

A block sees a *slice*: some consecutive steps, time first. It must give the same values however the
sequence is cut into slices, with nothing but its state carried from one to the next. How slices are cut,
kept and recomputed is the engine's business; what a block computes is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

Tensors = tuple[tf.Tensor, ...]


class Slice(NamedTuple):
    """Consecutive time steps.

    Args:
        values: `[steps, batch, ...]`.
        mask: `[steps, batch]` of booleans, `True` where the step is real, or `None`.
        start: Index of the first step in the sequence, an int32 scalar.
    """

    values: tf.Tensor
    mask: tf.Tensor | None
    start: tf.Tensor


class Widths(NamedTuple):
    """What one step of one example holds, in elements of the block's dtype.

    Args:
        state: Kept at a border.
        tape: Kept from the forward to the backward pass of a slice.
        work: Held in addition while the slice is walked back.
    """

    state: int
    tape: int
    work: int


class Block(Protocol):
    """A time-local piece of a network with its backward pass."""

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the outputs."""

    @property
    def widths(self) -> Widths:
        """What a step holds, for the choice of the segments."""

    def prepare(self, weights: Tensors) -> Any:
        """What `forward` and `backward` need of the weights, computed once for all slices."""

    def forward(
        self, weights: Any, noise: Any, state: Tensors, inputs: Slice, keep: bool
    ) -> tuple[Slice, Tensors, Any]:
        """Outputs, the state after the slice, and (if `keep`) the tape for `backward`, else `None`."""

    def backward(
        self, weights: Any, noise: Any, tape: Any, upstream: tf.Tensor | None, d_state: Tensors
    ) -> tuple[tf.Tensor | None, Tensors, Tensors]:
        """Gradients of the inputs, of the state before the slice, and of the weights.

        `upstream` is the gradient of the outputs, or `None` where nothing but the state comes back.
        """


def scan(
    step: Callable[..., tuple[Tensors, Tensors]],
    state: Tensors,
    elements: Sequence[tf.Tensor],
    shapes: Sequence[Sequence[int | None]],
    *,
    dtype: tf.DType,
    reverse: bool = False,
) -> tuple[Tensors, Tensors]:
    """Runs `step(state, *elements_at_t)` over the first axis of `elements`.

    Args:
        step: Returns the new state and what to collect.
        state: Tensors `[batch, ...]`.
        elements: Tensors `[steps, ...]`, read at one step at a time.
        shapes: Of everything that is collected at a step, without the batch.
        dtype: Of everything that is collected.
        reverse: From the last step to the first; what is collected stays in the order of time.

    Returns:
        The last state, and the collected tensors as `[steps, batch, ...]`.
    """
    num_steps = tf.shape(elements[0])[0]
    arrays = tuple(
        tf.TensorArray(dtype, size=num_steps, element_shape=[state[0].shape[0], *shape]) for shape in shapes
    )

    def body(count: tf.Tensor, state: Tensors, arrays: Any) -> Any:
        time = num_steps - 1 - count if reverse else count
        new_state, collected = step(state, *(element[time] for element in elements))
        for new, old in zip(new_state, state, strict=True):
            new.set_shape(old.shape)
        arrays = tuple(array.write(time, value) for array, value in zip(arrays, collected, strict=True))
        return count + 1, new_state, arrays

    _, state, arrays = tf.while_loop(
        lambda count, *_: count < num_steps, body, (0, tuple(state), arrays), parallel_iterations=1
    )
    return state, tuple(array.stack() for array in arrays)
