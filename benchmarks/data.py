"""Batches by length: how many steps an epoch has, padding included, and how soon the best lengths are found.

    make bench TARGET=data                       everything
    make bench TARGET="data padding"             one table: padding, search, epoch, peaks, text or stream

Padding: 20,000 sequences of three distributions, batches of 64, 16 lengths, against random batches that are
padded to their longest. Both sides are counted in the batches themselves, not computed. Search: 1,000,000
sequences, 16 lengths. Epoch: a pass over the batches of 20,000 sequences, against the same sequences padded
to the longest and cut into batches by `from_tensor_slices(...).shuffle(...).batch(...)`. Peaks: a training
step of an LSTM(128) on every shape of an epoch, under one number of steps a batch and by `budget=`; counted
are full batches, since one that holds what is left over of a length can only be smaller, each by the median
of the steps of its shape. Beside it stands what single steps do, and how far steps on one and the same batch
lie apart, which no size can change. Text: see `data_text`. Stream: see `data_stream`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import memfit
from benchmarks import data_stream, data_text
from memfit.data.buckets import best_boundaries

NUM_SEQUENCES, BATCH_SIZE, NUM_BUCKETS = 20_000, 64, 16
LONGEST, NUM_REPEATS = 512, 10
# As many batches as of 64 sequences; and about as many by bytes, for plain Keras and with time segments.
NUM_TOKENS = 4_940
BUDGETS = {False: "52MiB", True: "20MiB"}
MOST_SECONDS = 2.0
# How far the peaks of an epoch may be from one and the same number, by `budget=`.
MOST_APART = 0.10
# What is to be reached: steps of random batches over those of batches by length.
TARGETS = {"log-normal": 3.5, "uniform": 1.8, "exponential": 3.5}


def draw(name: str, num: int) -> Any:
    """Lengths of a distribution."""
    import numpy as np

    random = np.random.default_rng(0)
    ways: dict[str, Callable[[], Any]] = {
        "log-normal": lambda: np.minimum(random.lognormal(4, 0.7, num), LONGEST),
        "uniform": lambda: random.integers(1, 1001, num),
        "exponential": lambda: np.minimum(random.exponential(60, num), LONGEST),
    }
    return np.maximum(1, ways[name]().astype(int))


def count_random_steps(lengths: Any) -> int:
    """Steps of an epoch of random batches, each padded to its longest."""
    import numpy as np

    order = np.random.default_rng(1).permutation(lengths)
    batches = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
    return sum(len(batch) * int(batch.max()) for batch in batches)


def show_padding() -> None:
    """Steps of an epoch, and shapes, by distribution."""
    import numpy as np

    for name, target in TARGETS.items():
        lengths = draw(name, NUM_SEQUENCES)
        sequences = [np.ones(length, np.int32) for length in lengths]
        shapes: Counter[tuple[int, int]] = Counter()
        batches = memfit.batch_by_length(
            (sequences, np.arange(len(lengths))), batch_size=BATCH_SIZE, buckets=NUM_BUCKETS, tell=None
        )
        seen = []
        for x, y, _ in batches:
            shapes[tuple(x.shape)] += 1
            seen.append(y.numpy())
        assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(len(lengths)))
        real, before = int(lengths.sum()), count_random_steps(lengths)
        after = sum(size * length * num for (size, length), num in shapes.items())
        largest = max(size * length for size, length in shapes)
        print(
            f"{name:12} {before:>11,} steps, {1 - real / before:5.1%} padding; by length {after:>10,} steps, "
            f"{1 - real / after:5.1%} padding: {before / after:4.2f}x fewer of all, "
            f"{(before - real) / (after - real):5.1f}x fewer padded (asked for: {target}x); {len(shapes)} "
            f"shapes, {sum(shapes.values())} batches, the largest {largest:,} steps",
            flush=True,
        )


def show_search() -> None:
    """Seconds to find the best lengths for 1,000,000 sequences."""
    import numpy as np

    random = np.random.default_rng(0)
    many = {
        "log-normal": draw("log-normal", 1_000_000),
        "log-normal, up to 10,000": np.maximum(
            1, random.lognormal(6, 1, 1_000_000).astype(int).clip(max=10_000)
        ),
        "uniform to 100,000": random.integers(1, 100_001, 1_000_000),
        "uniform to 400,000": random.integers(1, 400_001, 1_000_000),
    }
    for name, lengths in many.items():
        start = time.perf_counter()
        values, counts = np.unique(lengths, return_counts=True)
        best_boundaries(dict(zip(values.tolist(), counts.tolist(), strict=True)), NUM_BUCKETS)
        seconds = time.perf_counter() - start
        print(
            f"{name:26} {len(values):>7,} different lengths of 1,000,000 sequences, {NUM_BUCKETS} buckets: "
            f"{seconds:5.2f} s (asked for: under {MOST_SECONDS} s)",
            flush=True,
        )


def show_epoch() -> None:
    """Seconds of a pass without a model."""
    import keras
    import numpy as np
    import tensorflow as tf

    lengths = draw("log-normal", NUM_SEQUENCES)
    sequences = [np.ones(length, np.int32) for length in lengths]
    labels = np.arange(len(lengths))
    padded = keras.utils.pad_sequences(sequences, padding="post")
    sets = {
        "padded to the longest": tf.data.Dataset.from_tensor_slices((padded, labels))
        .shuffle(len(labels), seed=1)
        .batch(BATCH_SIZE)
        .prefetch(tf.data.AUTOTUNE),
        "by length": memfit.batch_by_length((sequences, labels), batch_size=BATCH_SIZE, tell=None),
    }
    for name, batches in sets.items():
        for _ in batches:
            pass
        passes = []
        for _ in range(3):
            start = time.perf_counter()
            num = sum(1 for _ in batches)
            passes.append(time.perf_counter() - start)
        print(f"{name:22} {min(passes):5.2f} s a pass of {num} batches", flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Batches of one shape.

    Attributes:
        size: Sequences in each.
        length: The steps that they are padded to.
        is_full: Whether no more such sequences may be in a batch; if not, it holds what was left over.
        num: How many there are in an epoch.
        peak_bytes: The median over some training steps, above what is always there.
        step_bytes: What each of those steps took.
    """

    size: int
    length: int
    is_full: bool
    num: int
    peak_bytes: int
    step_bytes: list[int]


def measure_peaks(has_segments: bool, is_budgeted: bool) -> tuple[float, list[dict[str, Any]]]:
    """Seconds to make the batches, and the peaks of training steps by shape, in this (fresh) process."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    lengths = draw("log-normal", NUM_SEQUENCES)
    sequences = [np.ones(length, np.int32) for length in lengths]
    layers = [
        keras.layers.Embedding(1_000, 128, mask_zero=True),
        keras.layers.LSTM(128),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers)
    model.build((None, None))
    if has_segments:
        memfit.checkpoint_time(model)
    model.compile("adam", "mse")
    sizes: dict[str, Any] = {"tokens": NUM_TOKENS}
    if is_budgeted:
        sizes = {"budget": BUDGETS[has_segments], "model": model}
    start = time.perf_counter()
    batches = memfit.batch_by_length(
        (sequences, np.zeros(len(lengths), np.float32)), **sizes, buckets=NUM_BUCKETS, tell=None
    )
    seconds = time.perf_counter() - start
    examples = {tuple(batch[0].shape): batch for batch in batches}
    counts = Counter(tuple(x.shape) for x, *_ in batches)
    peaks: dict[Any, list[int]] = {shape: [] for shape in examples}
    for turn in range(NUM_REPEATS):
        # As in an epoch, each comes after another one.
        for place in np.random.default_rng(turn).permutation(len(examples)):
            shape, batch = list(examples.items())[place]
            before = memfit.read_memory().fullest_device()
            memfit.reset_peak()
            model.train_on_batch(*batch)
            after = memfit.read_memory().fullest_device()
            assert before is not None
            assert after is not None
            peaks[shape].append(after.peak_bytes - before.current_bytes)
    found = [
        Shape(
            size=size,
            length=length,
            is_full=is_full((size, length), counts),
            num=counts[size, length],
            # The first time, TensorFlow traces and builds.
            peak_bytes=sorted(each[1:])[(NUM_REPEATS - 1) // 2],
            step_bytes=each[1:],
        )
        for (size, length), each in peaks.items()
    ]
    return seconds, [asdict(shape) for shape in found]


def is_full(shape: tuple[int, int], counts: Mapping[tuple[int, int], int]) -> bool:
    """Whether batches of a shape are full.

    What is left over of a length is one batch, and smaller than another whose sequences are no shorter.

    Example:
    >>> counts = {(9, 10): 5, (2, 10): 1, (1, 15): 1, (4, 20): 3}
    >>> [shape for shape in counts if is_full(shape, counts)]
    [(9, 10), (4, 20)]
    """
    size, length = shape
    return counts[shape] > 1 or not any(other >= length and more > size for more, other in counts)


def show_peaks() -> None:
    """How far the peaks of an epoch's full batches lie apart, and what those with the rest take."""
    for has_segments, is_budgeted in ((False, False), (False, True), (True, False), (True, True)):
        way = "bytes" if is_budgeted else "steps"
        name = f"{'time segments' if has_segments else 'plain Keras'}, by {way}"
        found = memfit.measure(measure_peaks, has_segments, is_budgeted, timeout_seconds=900)
        seconds, rows = found.value
        shapes = [Shape(**each) for each in rows]
        usual = sorted(each.peak_bytes for each in shapes if each.is_full for _ in range(each.num))
        middle = usual[len(usual) // 2]
        for each in sorted(shapes, key=lambda each: (each.length, -each.size)):
            print(
                f"{name:23} {each.num:4} batches [{each.size:3}, {each.length:3}] "
                f"{each.size * each.length:6,} steps {each.peak_bytes:>12,} bytes "
                f"{each.peak_bytes / middle:5.2f}{'' if each.is_full else ' (what was left over)'}"
            )
        inside = sum(0.9 <= peak / middle <= 1.1 for peak in usual)
        rest = [each for each in shapes if not each.is_full]
        most = max((each.peak_bytes for each in rest), default=0) / middle
        print(
            f"{name:23} {inside} of {len(usual)} full batches within 10% of {middle:,} bytes, from "
            f"{usual[0] / middle:.2f} to {usual[-1] / middle:.2f}; {sum(each.num for each in rest)} batches "
            f"of what was left over, at most {most:.2f}; made in {seconds:.1f} s",
        )
        half = (usual[-1] - usual[0]) / (usual[-1] + usual[0])
        judged = f" (asked for: {MOST_APART:.0%}): {'met' if half <= MOST_APART else 'NOT MET'}"
        print(
            f"{name:23} all full batches within {half:.1%} of halfway between the lowest and the highest"
            f"{judged if is_budgeted else ''}"
        )
        full = [each for each in shapes if each.is_full]
        own = [each.peak_bytes for each in full]
        print(f"{name:23} single steps: {spread(full, [middle] * len(full))} of the middle one")
        print(f"{name:23} same batch:   {spread(full, own)} of its median", flush=True)


def spread(shapes: Sequence[Shape], middles: Sequence[int]) -> str:
    """The share of an epoch's steps that are within 10 % of a middle, and the least and most."""
    pairs = zip(shapes, middles, strict=True)
    steps = [(step / middle, each.num) for each, middle in pairs for step in each.step_bytes]
    inside = sum(num for ratio, num in steps if 0.9 <= ratio <= 1.1) / sum(num for _, num in steps)
    return f"{inside:.1%} within 10%, from {min(steps)[0]:.2f} to {max(steps)[0]:.2f}"


TABLES: dict[str, Callable[[], None]] = {
    "padding": show_padding,
    "search": show_search,
    "epoch": show_epoch,
    "peaks": show_peaks,
    "text": data_text.show_text,
    "stream": data_stream.show_stream,
}


def main(names: Sequence[str] = ()) -> None:
    """Prints all tables, or those named."""
    for name in names or TABLES:
        TABLES[name]()
