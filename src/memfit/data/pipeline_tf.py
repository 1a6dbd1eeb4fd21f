"""A `tf.data` set of batches of like lengths, for `memfit.batch_by_length`.

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
from memfit.data.padded_tf import as_tensors, beside_tensors, make_batch, with_weights
from memfit.data.sequences_tf import Sequences, read_sequences
from memfit.data.weighing_tf import NUM_PARTS, counts_of, means_of, weighed
from memfit.data.windows_tf import NUM_SHOWN, batch_set
from memfit.errors import UsageError


def batches_by_length(
    data: Any,
    *,
    tokens: int | None,
    batch_size: int | None,
    buckets: int | Sequence[int],
    longer: str,
    seed: int | None,
    is_weighed: bool,
    padding_value: Any,
    labels_per_step: bool | None,
    tell: Callable[[str], None],
    most_size: int | None = None,
    sizes_for: Callable[[Any, tuple[int, ...]], Sequence[int]] | None = None,
) -> tf.data.Dataset:
    """What `memfit.batch_by_length` returns; it has most of the arguments.

    Args:
        data: And so on: as there.
        tokens: The most steps of a batch.
        batch_size: In place of that.
        buckets: How many lengths, or which.
        longer: What is done with what is longer.
        seed: What the order depends on; `None`: batches go from short to long.
        is_weighed: Whether each example counts alike over an epoch, by its weight.
        padding_value: What inputs are padded with.
        labels_per_step: Whether labels have a value a step.
        tell: Called with a line on padding.
        most_size: The most sequences of a batch of `tokens` steps, of sequences that are in memory.
        sizes_for: In place of `tokens`: from a batch that shows what batches are like and the lengths to pad
            to, says how many sequences of each a batch may have.
    """
    if isinstance(data, tf.data.Dataset):
        return batch_set(
            data,
            tokens=tokens,
            batch_size=batch_size,
            buckets=buckets,
            longer=longer,
            seed=seed,
            is_weighed=is_weighed,
            padding_value=padding_value,
            tell=tell,
            sizes_for=sizes_for,
        )
    found = read_sequences(data, padding_value=padding_value, labels_per_step=labels_per_step)
    counts = Counter(cast("list[int]", found.lengths.tolist()))
    if longer == "error" and not isinstance(buckets, int):
        _check_longest(found.lengths, buckets[-1])
    parts = with_weights(found, is_weighed=is_weighed)
    tensors = as_tensors(parts, padding_value)

    def sizes(boundaries: tuple[int, ...]) -> Sequence[int]:
        assert sizes_for is not None
        shown = tf.range(min(NUM_SHOWN, len(found.lengths)), dtype=tf.int64)
        return sizes_for(make_batch(tensors, shown, tf.constant(boundaries[-1], tf.int64), None), boundaries)

    layout = lay_out(
        counts,
        buckets=buckets,
        tokens=tokens,
        batch_size=batch_size,
        longer=longer,
        most_size=most_size,
        sizes_for=None if sizes_for is None else sizes,
    )
    tell(in_words(layout, counts))
    if not is_weighed or len(parts) < NUM_PARTS:
        return _batches(found, tensors, layout, seed)
    counted = counts_of(parts[-1], layout.most_steps)
    means = means_of(counted, len(layout.slots))
    everything = (*tensors, beside_tensors(counted))
    return _batches(found, everything, layout, seed, finish=lambda batch: weighed(batch, means))


def _check_longest(lengths: Numbers, most: int) -> None:
    if lengths.max() > most:
        index = int(np.argmax(lengths > most))
        raise UsageError(
            f"sample {index} has {lengths[index]:,} steps, but the last boundary is {most:,}. Pass a "
            "longer one in "
            'buckets=, or longer="own_bucket" or "truncate".'
        )


def _batches(
    found: Sequences,
    everything: Any,
    layout: Layout,
    seed: int | None,
    finish: Callable[[Any], Any] = lambda batch: batch,
) -> tf.data.Dataset:
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
        lambda chosen, tensors: finish(make_batch(tensors, chosen[0], chosen[1], layout.most_steps)),
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
