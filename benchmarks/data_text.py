"""Real text for the benchmark of data: which topic of Python's own help a paragraph belongs to.

An embedding and an LSTM(64) are trained on 4 of 5 paragraphs and judged by the rest, in a fresh process, in
four ways: all paragraphs padded to the longest, random batches each padded to its longest, batches by length,
and those without the weights by which each paragraph counts alike. The ways take turns, a seed after the
other. Accuracies differ from seed to seed by more than ways do, so ways are compared seed by seed.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import memfit
from memfit.units import format_bytes

NUM_TOPICS, NUM_WORDS, NUM_EPOCHS, BATCH_SIZE = 6, 2_000, 6, 32
WORD = r"\w+|[^\w\s]"
# How many seeds each is run with: the last takes minutes.
WAYS = {"by length": 9, "random batches": 9, "by length, not weighed": 9, "padded to the longest": 1}
# Two ways are called the same if their mean difference is within so many of its standard errors.
MOST_ERRORS = 2.0


def paragraphs() -> tuple[list[list[int]], list[int]]:
    """Ids of words and signs, 0 left free for padding, and topics; both in one random order."""
    import zlib
    from pydoc_data.topics import topics

    import numpy as np

    largest = sorted(topics, key=lambda name: -topics[name].count("\n\n"))[:NUM_TOPICS]
    found = [
        (place, [1 + zlib.crc32(word.encode()) % (NUM_WORDS - 1) for word in re.findall(WORD, text)])
        for place, name in enumerate(largest)
        for text in topics[name].split("\n\n")
        if text.strip()
    ]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[place][1] for place in order], [found[place][0] for place in order]


def train(way: str, seed: int) -> dict[str, Any]:
    """Trains in this (fresh) process, and says how long an epoch took, what it held and how good it is."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(seed)
    x, y = paragraphs()
    cut = len(x) * 4 // 5
    model = keras.Sequential(
        [
            keras.layers.Embedding(NUM_WORDS, 64, mask_zero=True),
            keras.layers.LSTM(64),
            keras.layers.Dense(NUM_TOPICS, "softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.build((None, None))
    timer = Timer()
    if way.startswith("by length"):
        batches = memfit.batch_by_length(
            (x[:cut], y[:cut]),
            batch_size=BATCH_SIZE,
            seed=seed,
            weigh_alike=way == "by length",
            model=model,
            tell=None,
        )
        fit = {"x": batches, "shuffle": False}
    elif way == "random batches":
        fit = {"x": random_batches(x[:cut], y[:cut], seed), "shuffle": False}
    else:
        padded = keras.utils.pad_sequences(x[:cut], padding="post")
        fit = {"x": padded, "y": np.array(y[:cut]), "batch_size": BATCH_SIZE}
    memfit.reset_peak()
    model.fit(**fit, epochs=NUM_EPOCHS, verbose=0, callbacks=[timer.callback()])
    device = memfit.read_memory().fullest_device()
    judged, learnt = (
        memfit.batch_by_length((x[part], y[part]), shuffle=False, tell=None)
        for part in (slice(cut, None), slice(cut))
    )
    return {
        "seconds": sorted(timer.seconds[1:])[len(timer.seconds[1:]) // 2],
        "peak_bytes": device.peak_bytes if device is not None else 0,
        "accuracy": float(model.evaluate(judged, verbose=0, return_dict=True)["accuracy"]),
        "loss": float(model.evaluate(learnt, verbose=0, return_dict=True)["loss"]),
    }


def show_text() -> None:
    """Time of an epoch, peak and accuracy of each way, and whether ways are equally accurate."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for seed in range(max(WAYS.values())):
        for way in (way for way, num_seeds in WAYS.items() if seed < num_seeds):
            measured = memfit.measure(train, way, seed, timeout_seconds=1800)
            assert measured.outcome is memfit.Outcome.OK, measured.reason
            runs[way].append(measured.value)
    for way, found in runs.items():
        seconds = sorted(run["seconds"] for run in found)[len(found) // 2]
        peak = format_bytes(max(run["peak_bytes"] for run in found))
        accuracies = ", ".join(f"{run['accuracy']:.3f}" for run in found)
        print(f"{way:22} {seconds:6.2f} s an epoch, peak {peak:>9}, accuracies {accuracies}")
        print(f"{way:22} {_in_words(found, 'accuracy')}; {_in_words(found, 'loss')} in training", flush=True)
    for way in ("by length", "by length, not weighed"):
        for name in ("accuracy", "loss"):
            pairs = zip(runs[way], runs["random batches"], strict=True)
            verdict = compare([one[name] - other[name] for one, other in pairs])
            print(f"{way} less random batches, by seed, {name}: {verdict}", flush=True)


def compare(differences: Sequence[float]) -> str:
    """The mean of paired differences with its standard error, and whether it is noise by `MOST_ERRORS`.

    Example:
    >>> compare([0.02, -0.01, 0.0, 0.01])
    '+0.005 (standard error 0.006): same within noise'
    """
    middle, error = mean(differences), _error(differences)
    is_noise = abs(middle) <= MOST_ERRORS * error
    return (
        f"{middle:+.3f} (standard error {error:.3f}): {'same within noise' if is_noise else 'not the same'}"
    )


def _in_words(runs: Sequence[dict[str, Any]], name: str) -> str:
    values = [run[name] for run in runs]
    error = f" (standard error {_error(values):.3f})" if len(values) > 1 else ""
    return f"{name} {mean(values):.3f}{error}"


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))


class Timer:
    """Seconds of every epoch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def callback(self) -> Any:
        """What Keras calls."""
        import keras

        def begin(*_: Any) -> None:
            self._start = time.perf_counter()

        def end(*_: Any) -> None:
            self.seconds.append(time.perf_counter() - self._start)

        return keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)


def random_batches(x: list[list[int]], y: list[int], seed: int) -> Any:
    """What is usually written: a shuffled set, each batch padded to its longest."""
    import tensorflow as tf

    sequences = tf.data.Dataset.from_tensor_slices((tf.ragged.constant(x, tf.int32), tf.constant(y)))
    shuffled = sequences.shuffle(len(x), seed=seed).map(lambda row, label: (tf.convert_to_tensor(row), label))
    return shuffled.padded_batch(BATCH_SIZE, padded_shapes=([None], [])).prefetch(tf.data.AUTOTUNE)
