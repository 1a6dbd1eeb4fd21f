"""`memfit.batch_by_length`: batches of like lengths; and with a budget, of as many sequences as fill it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.data.masking_tf import padding_value_of
from memfit.data.pipeline_tf import batches_by_length
from memfit.data.weighing_tf import is_summed
from memfit.errors import BudgetError, UsageError
from memfit.estimating.batches_tf import describe
from memfit.estimating.probing_tf import check_meter, find_subject
from memfit.planning.filling import fill
from memfit.planning.metering_tf import metering
from memfit.planning.search import NOISE, OWN_BYTES
from memfit.units import format_bytes


def batch_sizes(model: Any, budget: str | int, example: Any, boundaries: Sequence[int]) -> tuple[int, ...]:
    """For each length, the sequences whose training step fills a budget.

    Args:
        model: Compiled and built.
        budget: What the device may use.
        example: A batch that shows what batches are like.
        boundaries: The lengths.

    Raises:
        BudgetError: If not even one sequence fits.
    """
    subject = find_subject(model)
    check_meter()
    batches = describe(model, example, length=boundaries[-1], loss=model.loss)
    if batches.length is None:
        raise UsageError(
            f"{model.name!r} takes sequences of one length only, so batches by length are not for it. Build "
            "it for any length: keras.Input((None, ...))."
        )
    budget_bytes = find_budget(budget).device_bytes
    with metering(subject, batches) as meter:
        room_bytes = int((budget_bytes - OWN_BYTES) / (1 + NOISE)) - meter.resting_bytes
        sizes = fill(meter.step_bytes, boundaries, room_bytes)
        if not all(sizes):
            length = max(each for each, size in zip(boundaries, sizes, strict=True) if not size)
            need_bytes = (meter.peak_bytes(1, length) + meter.resting_bytes) * (1 + NOISE) + OWN_BYTES
            need = format_bytes(int(need_bytes)) if math.isfinite(need_bytes) else "more than there is"
            raise BudgetError(
                f"a batch of one sequence of {length:,} steps needs {need}, but the budget is "
                f"{format_bytes(budget_bytes)}. Run the model by time segments, memfit.checkpoint_time("
                'model), or cut sequences: buckets=(50, 100, 200), longer="truncate".'
            )
    return sizes


def batch_by_length(
    data: Any,
    *,
    tokens: int | None = None,
    budget: str | int | None = None,
    batch_size: int | None = None,
    buckets: int | Sequence[int] = 16,
    longer: str = "own_bucket",
    shuffle: bool = True,
    seed: int = 0,
    weigh_alike: bool | None = None,
    padding_value: Any = None,
    labels_per_step: bool | None = None,
    model: Any = None,
    tell: Callable[[str], None] | None = print,
) -> tf.data.Dataset:
    """Batches of sequences of about the same length and about the same number of steps, in few shapes.

    Every sequence is in exactly one batch of an epoch, with its own label. Each epoch has another order,
    with long and short batches mixed; the same seed gives the same epochs in every process.

    Args:
        data: `x`, `(x, y)` or `(x, y, weights)`. Each is a list of sequences, a `tf.RaggedTensor` or an
            array, or a dict or tuple of such. An array `[sequences, steps, ...]` is freed of its padding
            first. Or a `tf.data` set with one sequence an element.
        tokens: The most steps of a batch, padding included. A longer sequence is a batch of its own.
        budget: In place of `tokens`: what the device may use while `model` is trained on a batch, as in
            `memfit.budget`. Steps are run at each length, so that all batches fill it about equally.
        batch_size: In place of both: as many batches as this many sequences in each would make, none of
            more than twice as many; 32 if nothing is given.
        buckets: The most different lengths to pad to, which are then the best ones; or those lengths.
        longer: What is done with sequences that are longer than the last length given in `buckets`:
            `"own_bucket"` pads them to the longest, `"truncate"` cuts their end off, and `"error"` refuses.
        shuffle: Whether each epoch has another order; otherwise batches go from short to long.
        seed: What the order depends on, beside TensorFlow's global seed.
        weigh_alike: Whether batches have weights by which each example counts alike over an epoch, whether it
            comes among many or few. `None`: if `shuffle`, as for training, unless the loss of `model` is a
            sum, with which they do so already. Evaluate without, so that the loss is a plain mean.
        padding_value: What inputs are padded with, and padded arrays are; one value, or one for each
            feature. `None`: what `model` masks, or 0.
        labels_per_step: Whether labels have a value a step; only needed where the data does not tell.
        model: The model that the batches are for. Its masks say what to pad with. For a budget it is
            compiled, built, and as it will be trained: with `memfit.checkpoint_time`, for example.
        tell: Called with a line on padding before and after; `None` for silence.

    Returns:
        A `tf.data.Dataset` of batches `(x, y, weights)`; without weights where none are needed, and `(x,)`
        where there are no labels. Where labels have a value a step, the weights are 0 on padding.

    Raises:
        UsageError: If sequences and labels do not fit together, with the index of the sample.
        BudgetError: If one sequence alone does not fit the budget.

    Example:
    ```python
    batches = memfit.batch_by_length((sequences, labels), batch_size=64, model=model)
    memfit.fit(model, batches, epochs=10)
    ```
    """
    if not (weigh_alike is None or isinstance(weigh_alike, bool)):
        raise UsageError(
            f"weigh_alike is True, False, or None for what training needs. Received: {weigh_alike!r}."
        )
    if padding_value is None:
        padding_value = 0.0 if model is None else padding_value_of(model)
    sizes_for = None
    if budget is not None:
        _check_budget(model, budget, tokens, batch_size)
        sizes_for = lambda example, boundaries: batch_sizes(model, budget, example, boundaries)  # noqa: E731
    return batches_by_length(
        data,
        tokens=tokens,
        batch_size=batch_size,
        buckets=buckets,
        longer=longer,
        seed=seed if shuffle else None,
        is_weighed=shuffle and not is_summed(model) if weigh_alike is None else weigh_alike,
        padding_value=padding_value,
        labels_per_step=labels_per_step,
        tell=tell or (lambda _: None),
        sizes_for=sizes_for,
    )


def _check_budget(model: Any, budget: str | int, tokens: int | None, batch_size: int | None) -> None:
    for name, value in (("tokens", tokens), ("batch_size", batch_size)):
        if value is not None:
            raise UsageError(
                f"budget={budget!r} and {name}={value} both say how large a batch is. Pass one of them."
            )
    if model is None or not getattr(model, "compiled", False):
        raise UsageError(
            f"budget={budget!r} needs the model that is trained, compiled and built: what a batch takes is "
            "measured with it. Pass model=, or tokens= or batch_size= in place of the budget."
        )
