"""Batches by length: how many steps an epoch has, padding included, and how soon the best lengths are found.

    make bench TARGET=data                       everything
    make bench TARGET="data padding"             one table: padding, search, epoch, peaks, text or stream

Padding: 20,000 sequences of three distributions, batches of 64, 16 lengths, against random batches that are
padded to their longest. Both sides are counted in the batches themselves, not computed. Search: 1,000,000
lengths. Epoch: a pass over the batches of 20,000 sequences, against the same sequences padded to the longest
and cut into batches by `from_tensor_slices(...).shuffle(...).batch(...)`. Peaks: a training step of an
LSTM(128) on every shape of an epoch, under one number of steps a batch and by `budget=`. Text: see
`data_text`. Stream: see `data_stream`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import memfit
from benchmarks import data_stream, data_text
from memfit.data.buckets import best_boundaries
from memfit.units import format_bytes

NUM_SEQUENCES, BATCH_SIZE, NUM_BUCKETS = 20_000, 64, 16
LONGEST, NUM_REPEATS = 512, 6
# About as many batches as by steps, for plain Keras and with time segments.
BUDGETS = {False: "52MiB", True: "20MiB"}
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
        for x, y in batches:
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
    }
    for name, lengths in many.items():
        start = time.perf_counter()
        values, counts = np.unique(lengths, return_counts=True)
        best_boundaries(dict(zip(values.tolist(), counts.tolist(), strict=True)), NUM_BUCKETS)
        seconds = time.perf_counter() - start
        print(f"{name:26} {len(values):>7,} different lengths, {seconds:5.2f} s", flush=True)


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


def measure_peaks(has_segments: bool, is_budgeted: bool) -> list[tuple[int, int, int, int]]:
    """Batches of each shape, and the peak of a training step on it, in this (fresh) process."""
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
    size: dict[str, Any] = {"batch_size": BATCH_SIZE}
    if is_budgeted:
        size = {"budget": BUDGETS[has_segments], "model": model}
    batches = memfit.batch_by_length(
        (sequences, np.zeros(len(lengths), np.float32)), **size, buckets=NUM_BUCKETS, tell=None
    )
    examples = {tuple(x.shape): (x, y) for x, y in batches}
    counts = Counter(tuple(x.shape) for x, _ in batches)
    peaks: dict[Any, list[int]] = {shape: [] for shape in examples}
    for _ in range(NUM_REPEATS):
        for shape, (x, y) in examples.items():
            before = memfit.read_memory().fullest_device()
            memfit.reset_peak()
            model.train_on_batch(x, y)
            after = memfit.read_memory().fullest_device()
            assert before is not None
            assert after is not None
            peaks[shape].append(after.peak_bytes - before.current_bytes)
    # The first time, TensorFlow traces and builds.
    return [(*shape, counts[shape], sorted(each[1:])[NUM_REPEATS // 2 - 1]) for shape, each in peaks.items()]


def show_peaks() -> None:
    """How far the peaks of an epoch's batches lie apart, beside what is always there."""
    for has_segments, is_budgeted in ((False, False), (False, True), (True, False), (True, True)):
        way = "bytes" if is_budgeted else "steps"
        name = f"{'time segments' if has_segments else 'plain Keras'}, by {way}"
        rows = memfit.measure(measure_peaks, has_segments, is_budgeted, timeout_seconds=900).value
        usual = sorted(peak for _, _, num, peak in rows for _ in range(num))
        middle = usual[len(usual) // 2]
        for size, length, num, peak in sorted(rows, key=lambda row: row[1]):
            shape = f"[{size:3}, {length:3}] {size * length:6,} steps"
            print(f"{name:23} {num:4} batches {shape} {peak:>12,} bytes {peak / middle:5.2f}")
        inside = sum(0.9 <= peak / middle <= 1.1 for peak in usual)
        print(f"{name:23} {inside} of {len(usual)} batches within 10% of {middle:,} bytes", flush=True)


def show_text() -> None:
    """An LSTM classifier of real text: time of an epoch, peak, accuracy."""
    for way, num_seeds in data_text.WAYS.items():
        runs = []
        for seed in range(num_seeds):
            measured = memfit.measure(data_text.train, way, seed, timeout_seconds=1800)
            assert measured.outcome is memfit.Outcome.OK, measured.reason
            runs.append(measured.value)
        seconds = sorted(run["seconds"] for run in runs)[num_seeds // 2]
        peak = format_bytes(max(run["peak_bytes"] for run in runs))
        accuracies = ", ".join(f"{run['accuracy']:.3f}" for run in runs)
        print(f"{way:22} {seconds:6.2f} s an epoch, peak {peak:>9}, accuracies {accuracies}", flush=True)


TABLES: dict[str, Callable[[], None]] = {
    "padding": show_padding,
    "search": show_search,
    "epoch": show_epoch,
    "peaks": show_peaks,
    "text": show_text,
    "stream": data_stream.show_stream,
}


def main(names: Sequence[str] = ()) -> None:
    """Prints all tables, or those named."""
    for name in names or TABLES:
        TABLES[name]()
