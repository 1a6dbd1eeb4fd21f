"""How much of the whole batch's loss a micro-batch's loss is.

Keras divides a loss by the number of its elements, by the number of those that a mask leaves, or by the sum
of their weights: each loss by its own. So the loss of the batch is the sum over its micro-batches of `value ·
own divisor / divisor of the batch`, for each loss apart; a sum has no divisor. The divisors of the batch are
counted first, from a forward pass of which TensorFlow runs only what masks need, since nothing else is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import tensorflow as tf

from memfit.errors import UsageError
from memfit.splitting.internals_tf import merged_weights, reducing


class Kind(Enum):
    """What Keras divides a loss by, where that needs no counting."""

    SUM = auto()
    """Nothing."""
    EXAMPLES = auto()
    """The number of its elements, which is in proportion to the examples."""


# A kind, or a scalar tensor that was counted.
Divisor = Any


@dataclass(slots=True)
class Divisors:
    """The divisors of all losses in the order in which they are called.

    Args:
        found: One a loss.
    """

    found: list[Divisor] = field(default_factory=list)

    @property
    def are_known(self) -> bool:
        """Whether none of them needs counting."""
        return all(isinstance(each, Kind) for each in self.found)

    def __add__(self, other: Divisors) -> Divisors:
        pairs = zip(self.found, other.found, strict=True)
        return Divisors([one if isinstance(one, Kind) else one + two for one, two in pairs])


@contextmanager
def counting() -> Iterator[Divisors]:
    """Collects the divisors of the losses that are called inside."""
    divisors = Divisors()

    def weigh(value: Any, values: Any, sample_weight: Any, mask: Any, reduction: Any) -> Any:
        divisors.found.append(_divisor(values, sample_weight, mask, reduction))
        return value

    with reducing(weigh):
        yield divisors


@contextmanager
def weighing(whole: Divisors, share: tf.Tensor) -> Iterator[None]:
    """Has the losses that are called inside return their part of the whole batch's loss.

    Args:
        whole: The divisors of the whole batch.
        share: Which part of the batch's examples are in the micro-batch.
    """
    expected = iter(whole.found)

    def weigh(value: Any, values: Any, sample_weight: Any, mask: Any, reduction: Any) -> Any:
        total, own = next(expected), _divisor(values, sample_weight, mask, reduction)
        return value * tf.cast(_factor(own, total, share), value.dtype)

    with reducing(weigh):
        yield


def _factor(own: Divisor, total: Divisor, share: tf.Tensor) -> tf.Tensor:
    if own is Kind.SUM:
        return tf.ones([])
    if own is Kind.EXAMPLES:
        return share
    assert not isinstance(total, Kind)
    return tf.math.divide_no_nan(own, total)


def _divisor(values: Any, sample_weight: Any, mask: Any, reduction: Any) -> Divisor:
    values = tf.convert_to_tensor(values)
    if reduction is None or reduction == "none":
        return Kind.SUM
    if values.shape.rank == 0:
        raise UsageError(
            "one of the losses returns a single number for the whole batch, so memfit cannot tell how "
            "much of it each micro-batch is. Return one number per example, without the mean or sum over the "
            "batch: Keras takes the mean itself. Or leave micro_batch out of the plan."
        )
    if reduction == "sum":
        return Kind.SUM
    if reduction == "mean_with_sample_weight":
        weights = merged_weights(sample_weight, mask, reduction)
        return Kind.EXAMPLES if weights is None else tf.reduce_sum(weights)
    return Kind.EXAMPLES if mask is None else tf.reduce_sum(tf.cast(mask, tf.float32))


def sum_of(parts: Sequence[Divisors]) -> Divisors:
    """The divisors of several micro-batches together."""
    first, *rest = parts
    for each in rest:
        first = first + each
    return first
