"""`memfit.batch_by_length`: a `tf.data` set of batches of like lengths.

Sequences that are in memory are batched here, by their index: an epoch is one random order, sorted by
bucket and cut into slices. Sets of unknown length are batched in `windows_tf`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from memfit.data.layout import Layout, in_words, lay_out
from memfit.data.leaves_tf import Numbers
from memfit.data.masking_tf import padding_value_of
from memfit.data.padded_tf import as_tensors, make_batch, with_weights
from memfit.data.sequences_tf import Sequences, read_sequences
from memfit.data.windows_tf import batch_set
from memfit.errors import UsageError


def batch_by_length(
    data: Any,
    *,
    tokens: int | None = None,
    batch_size: int | None = None,
    buckets: int | Sequence[int] = 16,
    longer: str = "own_bucket",
    shuffle: bool = True,
    seed: int = 0,
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
        batch_size: In place of `tokens`: as many batches as this many sequences in each would make; 32 if
            neither is given.
        buckets: The most different lengths to pad to, which are then the best ones; or those lengths.
        longer: What is done with sequences that are longer than the last length given in `buckets`:
            `"own_bucket"` pads them to the longest, `"truncate"` cuts their end off, and `"error"` refuses.
        shuffle: Whether each epoch has another order; otherwise batches go from short to long.
        seed: What the order depends on, beside TensorFlow's global seed.
        padding_value: What inputs are padded with, and padded arrays are; one value, or one for each
            feature. `None`: what `model` masks, or 0.
        labels_per_step: Whether labels have a value a step; only needed where the data does not tell.
        model: The model that the batches are for. Its masks say what to pad with.
        tell: Called with a line on padding before and after; `None` for silence.

    Returns:
        A `tf.data.Dataset` of batches. Where labels have a value a step, its weights are 0 on padding.

    Raises:
        UsageError: If sequences and labels do not fit together, with the index of the sample.

    Example:
    ```python
    batches = memfit.batch_by_length((sequences, labels), batch_size=64, model=model)
    memfit.fit(model, batches, epochs=10)
    ```
    """
    if padding_value is None:
        padding_value = 0.0 if model is None else padding_value_of(model)
    say = tell or (lambda _: None)
    if isinstance(data, tf.data.Dataset):
        return batch_set(
            data,
            tokens=tokens,
            batch_size=batch_size,
            buckets=buckets,
            longer=longer,
            seed=seed if shuffle else None,
            padding_value=padding_value,
            tell=say,
        )
    found = read_sequences(data, padding_value=padding_value, labels_per_step=labels_per_step)
    counts = Counter(cast("list[int]", found.lengths.tolist()))
    layout = lay_out(counts, buckets=buckets, tokens=tokens, batch_size=batch_size, longer=longer)
    if longer == "error" and not isinstance(buckets, int):
        _check_longest(found.lengths, buckets[-1])
    say(in_words(layout, counts))
    return _batches(found, layout, seed if shuffle else None, padding_value)


def _check_longest(lengths: Numbers, most: int) -> None:
    if lengths.max() > most:
        index = int(np.argmax(lengths > most))
        raise UsageError(
            f"sample {index} has {lengths[index]:,} steps, but the last boundary is {most:,}. Pass a "
            "longer one in "
            'buckets=, or longer="own_bucket" or "truncate".'
        )


def _batches(found: Sequences, layout: Layout, seed: int | None, padding_value: Any) -> tf.data.Dataset:
    everything = as_tensors(with_weights(found), padding_value)
    slots = tf.constant([(slot.start, slot.size, slot.length) for slot in layout.slots], tf.int64)
    num_batches = len(layout.slots)

    def slices(order: tf.Tensor, places: tf.Tensor) -> tf.data.Dataset:
        def one(place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            start, size, length = tf.unstack(slots[place])
            return order[start : start + size], length

        return tf.data.Dataset.from_tensor_slices(places).map(one)

    whole = tf.data.Dataset.from_tensors(everything).repeat()
    pairs = tf.data.Dataset.zip((_orders(found, layout, seed).flat_map(slices), whole))
    batches = pairs.map(
        lambda chosen, tensors: make_batch(tensors, chosen[0], chosen[1], layout.most_steps),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    options = tf.data.Options()
    # The optimizer would serialize all sequences.
    options.experimental_optimization.apply_default_optimizations = False
    counted = batches.apply(tf.data.experimental.assert_cardinality(num_batches))
    return counted.with_options(options).prefetch(tf.data.AUTOTUNE)


def _orders(found: Sequences, layout: Layout, seed: int | None) -> tf.data.Dataset:
    """The order of sequences and that of batches, anew for each pass."""
    num_batches = len(layout.slots)
    lengths = np.minimum(found.lengths, layout.boundaries[-1])
    bucket_of = np.searchsorted(layout.boundaries, lengths)
    if seed is None:
        order = np.argsort(bucket_of, kind="stable").astype(np.int64)
        return tf.data.Dataset.from_tensors((order, np.arange(num_batches, dtype=np.int64)))
    buckets = tf.constant(bucket_of, tf.int64)

    def drawn(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mixed = _shuffled(len(lengths), number, 0)
        by_bucket = tf.argsort(tf.gather(buckets, mixed), stable=True)
        return tf.gather(mixed, by_bucket), _shuffled(num_batches, number, 1)

    # One number a pass, by the seed: as `shuffle` does, but of batches whose number is known.
    numbers = tf.data.Dataset.random(seed=seed + 1, rerandomize_each_iteration=True)
    return numbers.take(1).map(drawn)


def _shuffled(num: int, number: tf.Tensor, which: int) -> tf.Tensor:
    keys = tf.random.stateless_uniform(
        [num], seed=tf.stack([number, tf.constant(which, tf.int64)]), minval=None, maxval=None, dtype=tf.int64
    )
    return tf.cast(tf.argsort(keys), tf.int64)
