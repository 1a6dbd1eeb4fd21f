"""Matrix products of a cell with the dropout that Keras puts before them.

Keras draws a dropout mask once per call, either one for all gates or one a gate (`recurrent_dropout`).
With one a gate, each gate sees inputs of its own, so the product falls into one a gate. The cells need not
know: they call `product` and its two gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

DropoutMask: TypeAlias = tf.Tensor | tuple[tf.Tensor, ...] | None
"""Nothing dropped, one mask `[batch, features]` for all gates, or one a gate."""


def sigmoid_slope(sigmoid: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """`factor * sigmoid * (1 - sigmoid)` in one op: passing over memory is what such products cost."""
    return tf.raw_ops.SigmoidGrad(y=sigmoid, dy=factor)


def tanh_slope(tanh: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """`factor * (1 - tanh * tanh)` in one op."""
    return tf.raw_ops.TanhGrad(y=tanh, dy=factor)


def one_later(first: tf.Tensor, values: tf.Tensor, *, once: tf.Tensor) -> tf.Tensor:
    """What was there before each step, from what was there before the first and after each.

    Not before `once` is there: what is made early only lies around.
    """
    with tf.control_dependencies([once]):
        return tf.concat([first[tf.newaxis], values[:-1]], axis=0)


def product(inputs: tf.Tensor, kernel: tf.Tensor, dropped: DropoutMask = None) -> tf.Tensor:
    """`inputs @ kernel` for inputs `[..., batch, features]`, with dropout on the inputs."""
    if isinstance(dropped, tuple):
        kernels = tf.split(kernel, len(dropped), axis=1)
        parts = [_matmul(inputs * mask, part) for mask, part in zip(dropped, kernels, strict=True)]
        return tf.concat(parts, axis=-1)
    return _matmul(inputs if dropped is None else inputs * dropped, kernel)


def gradient_of_inputs(upstream: tf.Tensor, transposed: tf.Tensor, dropped: DropoutMask = None) -> tf.Tensor:
    """The gradient of the inputs of `product` from that of its result, for one step.

    It takes the transposed kernel: a product with few rows is five times slower if it has to transpose.
    """
    if isinstance(dropped, tuple):
        kernels = tf.split(transposed, len(dropped), axis=0)
        return _sum_over_gates(upstream, kernels, dropped, transpose=False)
    gradient = _matmul(upstream, transposed)
    return gradient if dropped is None else gradient * dropped


def gradient_of_all_inputs(upstream: tf.Tensor, kernel: tf.Tensor, dropped: DropoutMask = None) -> tf.Tensor:
    """The gradient of the inputs of `product` from that of its result, for a slice.

    With many rows a product transposes in passing, and the kernel need not be kept a second time.
    """
    if isinstance(dropped, tuple):
        kernels = tf.split(kernel, len(dropped), axis=1)
        return _sum_over_gates(upstream, kernels, dropped, transpose=True)
    gradient = _matmul(upstream, kernel, transpose=True)
    return gradient if dropped is None else gradient * dropped


def _sum_over_gates(
    upstream: tf.Tensor, kernels: Sequence[tf.Tensor], dropped: Sequence[tf.Tensor], *, transpose: bool
) -> tf.Tensor:
    upstreams = tf.split(upstream, len(dropped), axis=-1)
    return tf.add_n(
        [
            _matmul(gradient, kernel, transpose=transpose) * mask
            for mask, gradient, kernel in zip(dropped, upstreams, kernels, strict=True)
        ]
    )


def gradient_of_kernel(inputs: tf.Tensor, upstream: tf.Tensor, dropped: DropoutMask = None) -> tf.Tensor:
    """The gradient of the kernel of `product`, summed over all leading axes by one product."""
    if isinstance(dropped, tuple):
        upstreams = tf.split(upstream, len(dropped), axis=-1)
        parts = [_outer(inputs * mask, gradient) for mask, gradient in zip(dropped, upstreams, strict=True)]
        return tf.concat(parts, axis=1)
    return _outer(inputs if dropped is None else inputs * dropped, upstream)


def _matmul(inputs: tf.Tensor, kernel: tf.Tensor, *, transpose: bool = False) -> tf.Tensor:
    if inputs.shape.rank == 2:
        return tf.matmul(inputs, kernel, transpose_b=transpose)
    width = kernel.shape[0] if transpose else kernel.shape[1]
    rows = tf.matmul(_rows(inputs), kernel, transpose_b=transpose)
    result = tf.reshape(rows, tf.concat([tf.shape(inputs)[:-1], [width]], axis=0))
    result.set_shape([*inputs.shape[:-1], width])
    return result


def _outer(inputs: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    return tf.matmul(_rows(inputs), _rows(upstream), transpose_a=True)


def _rows(values: tf.Tensor) -> tf.Tensor:
    # The number of rows in full, not -1: with a batch of 0 there is no telling what -1 stands for.
    return tf.reshape(values, [tf.reduce_prod(tf.shape(values)[:-1]), values.shape[-1]])
