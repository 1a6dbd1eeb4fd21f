"""What the engine asks of a piece of a network that it can run by time segments.

A block sees a *slice*: some consecutive steps, time first. It must give the same values however the
sequence is cut into slices, with nothing but its state carried from one to the next. How slices are cut,
kept and recomputed is the engine's business; what a block computes is its own.
"""

from __future__ import annotations

import dataclasses
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
    """A time-local piece of a network with its backward pass.

    A frozen dataclass. One whose loops can be compiled has a field `compiled`, see `with_compiled`.
    """

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


def with_compiled(block: Block, compiled: bool) -> Block:
    """The block with its loops compiled by XLA or not, if it has any that can be."""
    if not hasattr(block, "compiled"):
        return block
    return dataclasses.replace(block, compiled=compiled)  # type: ignore[type-var]
