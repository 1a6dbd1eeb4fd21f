"""Batches by length of a `tf.data` set, whose sequences are known only when they are read.

The first elements say which lengths to pad to, and how many examples a batch has on average; then
`group_by_window` gathers like lengths until a batch is full.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import tensorflow as tf

from memfit.data.batching import batch_size_of, num_windows
from memfit.data.buckets import check_boundaries
from memfit.data.found import Found
from memfit.data.internals_tf import is_batched
from memfit.data.layout import Layout, check_asked, in_words, lay_out
from memfit.data.reading_tf import read_lengths
from memfit.data.weighing_tf import weighed
from memfit.errors import UsageError

# Elements that are read to find out how long sequences are, and that are shuffled among themselves.
NUM_READ: Final = 10_000
# Batches that are shuffled among themselves, so that what is left over at the end does not come by length.
NUM_MIXED: Final = 32
# Elements in a batch that shows what batches are like.
NUM_SHOWN: Final = 64


def batch_set(
    dataset: tf.data.Dataset,
    *,
    tokens: int | None,
    batch_size: int | None,
    buckets: int | Sequence[int],
    longer: str,
    seed: int | None,
    is_weighed: bool,
    padding_value: Any,
    tell: Callable[[str], None],
    sizes_for: Callable[[Any, tuple[int, ...]], Sequence[int]] | None = None,
) -> tf.data.Dataset:
    """What `memfit.batch_by_length` returns for a set with one sequence an element."""
    check_asked(tokens=tokens, batch_size=batch_size, longer=longer)
    if is_batched(dataset):
        raise UsageError(
            "the elements of the tf.data set are batches, but sequences are needed, one an element. Leave "
            "out its .batch(...), or write dataset.unbatch()."
        )
    spec = dataset.element_spec
    parts = spec if isinstance(spec, tuple) else (spec,)
    if not any(_has_steps(each) for each in tf.nest.flatten(parts[0])):
        raise UsageError(
            f"the inputs of the tf.data set have no open axis of steps: {parts[0]}. Give them a shape that "
            "begins with None."
        )
    is_weighed = is_weighed and len(parts) > 1
    found = None
    if not isinstance(buckets, int) and tokens is not None and not is_weighed:
        boundaries = check_boundaries(buckets)
        sizes = [batch_size_of(boundary, tokens) for boundary in boundaries]
    else:
        found = read_lengths(dataset, limit=NUM_READ, padding_value=None)
        chosen = None
        if sizes_for is not None:
            example = _example(dataset, padding_value, is_weighed)
            chosen = lambda boundaries: sizes_for(example, boundaries)  # noqa: E731
        asked = {"buckets": buckets, "tokens": tokens, "batch_size": batch_size, "longer": longer}
        layout = lay_out(found.counts, **asked, sizes_for=chosen)  # type: ignore[arg-type]
        boundaries, sizes = layout.boundaries, list(layout.sizes)
        if not isinstance(buckets, int):
            boundaries = check_boundaries(buckets)
            sizes = _sizes_at(boundaries, layout, tokens)
        tell(
            in_words(layout, found.counts) + (" So far: the rest is not read yet." if found.is_sample else "")
        )
    elements = dataset.enumerate().map(
        lambda index, element: _checked(index, element, boundaries[-1], longer, is_weighed)
    )
    if seed is not None:
        elements = elements.shuffle(NUM_READ, seed=seed + 1)
    if found is None or not is_weighed:
        batches = _windows(elements, boundaries, sizes, padding_value)
    else:
        means = _means(found, elements.element_spec[-1], boundaries, sizes, longer)
        batches = _windows(elements.map(_counted), boundaries, sizes, padding_value)
        batches = batches.map(lambda *batch: weighed(batch, means))
    return batches if seed is None else batches.shuffle(NUM_MIXED, seed=seed + 1)


def _sizes_at(boundaries: Sequence[int], layout: Layout, tokens: int | None) -> list[int]:
    """Sizes of batches at boundaries; without `tokens`, known only where something was read."""
    if tokens is not None:
        return [batch_size_of(boundary, tokens) for boundary in boundaries]
    last = len(layout.boundaries) - 1
    return [layout.sizes[min(bisect_left(layout.boundaries, boundary), last)] for boundary in boundaries]


def _means(found: Found, weights: Any, boundaries: Sequence[int], sizes: Sequence[int], longer: str) -> Any:
    """What a batch counts for on average, by what was read: in steps for weights that have them."""
    most = boundaries[-1] if longer == "truncate" else max(found.counts)
    counts: Counter[int] = Counter()
    for length, num in found.counts.items():
        counts[min(length, most)] += num
    num_batches = num_windows(counts, boundaries, sizes, is_sample=found.is_sample)
    num_steps = sum(length * num for length, num in counts.items())
    means = {True: max(1, num_steps) / num_batches, False: counts.total() / num_batches}
    return tf.nest.map_structure(lambda leaf: means[_has_steps(leaf)], weights)


def _example(dataset: tf.data.Dataset, padding_value: Any, is_weighed: bool) -> Any:
    """A batch of the first elements, padded to the longest of them."""
    elements = (
        dataset.take(NUM_SHOWN)
        .enumerate()
        .map(lambda index, element: _checked(index, element, 0, "", is_weighed))
    )
    values = _padding_values(elements.element_spec, padding_value)
    return next(iter(elements.padded_batch(NUM_SHOWN, padding_values=values)))


def _windows(
    elements: tf.data.Dataset, boundaries: tuple[int, ...], most: Sequence[int], padding_value: Any
) -> tf.data.Dataset:
    # The last is for what is longer than all boundaries: one at a time, since nothing is known of it.
    sizes = tf.constant([*most, 1], tf.int64)
    limits = tf.constant([*boundaries, -1], tf.int64)
    spec = elements.element_spec
    values = _padding_values(spec, padding_value)

    def key(*element: Any) -> tf.Tensor:
        return tf.searchsorted(limits[:-1], _length(element[0])[tf.newaxis], out_type=tf.int64)[0]

    def reduce(key: tf.Tensor, window: tf.data.Dataset) -> tf.data.Dataset:
        shapes = tf.nest.map_structure(lambda leaf: _padded_shape(leaf, limits[key]), spec)
        return window.padded_batch(sizes[key], padded_shapes=shapes, padding_values=values)

    return elements.group_by_window(key_func=key, reduce_func=reduce, window_size_func=lambda key: sizes[key])


def _padded_shape(leaf: tf.TensorSpec, limit: tf.Tensor) -> Any:
    if not _has_steps(leaf):
        return tf.constant(leaf.shape.as_list(), tf.int64)
    return tf.concat([limit[tf.newaxis], tf.constant(leaf.shape[1:].as_list(), tf.int64)], 0)


def _padding_values(spec: Any, padding_value: Any) -> Any:
    def zero(leaf: tf.TensorSpec) -> tf.Tensor:
        return tf.constant("") if leaf.dtype == tf.string else tf.zeros([], leaf.dtype)

    x, *rest = spec
    if tf.nest.is_nested(padding_value):
        features = tf.nest.map_structure(lambda leaf, value: tf.cast(value, leaf.dtype), x, padding_value)
    else:
        features = tf.nest.map_structure(
            lambda leaf: zero(leaf) if leaf.dtype == tf.string else tf.cast(padding_value, leaf.dtype), x
        )
    return (features, *(tf.nest.map_structure(zero, part) for part in rest))


def _checked(index: tf.Tensor, element: Any, most: int, longer: str, is_weighed: bool) -> tuple[Any, ...]:
    """An element whose labels fit its inputs, cut if asked to, with weights if needed or asked for."""
    x, *rest = element if isinstance(element, tuple) else (element,)
    length = _length(x)
    lengths = [_steps_of(leaf) for leaf in tf.nest.flatten(x) if _has_steps(leaf)]
    checks = []
    if longer == "error":
        said = ["memfit: sample", index, "has", length, "steps, but the last boundary is", most]
        checks.append(tf.debugging.Assert(length <= most, said))
    for leaf in tf.nest.flatten(rest):
        if _has_steps(leaf):
            fits = tf.reduce_any([tf.equal(_steps_of(leaf), each) for each in lengths])
            said = [
                "memfit: sample",
                index,
                "has a label or weight of",
                _steps_of(leaf),
                "steps, but",
                length,
            ]
            checks.append(tf.debugging.Assert(fits, [*said, "steps of input. Make them equal."]))
    if len(rest) == 1:
        has_steps = [_has_steps(leaf) for leaf in tf.nest.flatten(rest[0])]
        rest += [tf.nest.map_structure(_weight, rest[0])] if is_weighed or any(has_steps) else []
    with tf.control_dependencies(checks):
        parts = tf.nest.map_structure(tf.identity, (x, *rest))
    if longer != "truncate":
        return tuple(parts)
    return tuple(tf.nest.map_structure(lambda leaf: leaf[:most] if _has_steps(leaf) else leaf, parts))


def _counted(x: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """An element with what it counts for, for each of its weights: 1, or its steps."""

    def count(leaf: tf.Tensor) -> tf.Tensor:
        return tf.cast(_steps_of(leaf), tf.float32) if _has_steps(leaf) else tf.ones([])

    return x, y, weights, tf.nest.map_structure(count, weights)


def _weight(label: tf.Tensor) -> tf.Tensor:
    return tf.ones(tf.shape(label)[:1] if _has_steps(label) else [], tf.float32)


def _length(x: Any) -> tf.Tensor:
    return tf.reduce_max([_steps_of(leaf) for leaf in tf.nest.flatten(x) if _has_steps(leaf)])


def _steps_of(leaf: tf.Tensor) -> tf.Tensor:
    return tf.shape(leaf, out_type=tf.int64)[0]


def _has_steps(leaf: Any) -> bool:
    shape = leaf.shape
    return bool(shape.rank) and shape[0] is None
