"""Real text for the benchmark of data: which topic of Python's own help a paragraph belongs to.

An embedding and an LSTM(64) are trained on 4 of 5 paragraphs and judged by the rest, in a fresh process, in
three ways: all paragraphs padded to the longest, random batches each padded to its longest, and batches by
length.
"""

from __future__ import annotations

import re
import time
from typing import Any

import memfit

NUM_TOPICS, NUM_WORDS, NUM_EPOCHS, BATCH_SIZE = 6, 2_000, 6, 32
WORD = r"\w+|[^\w\s]"
# How often each is run: the last takes minutes.
WAYS = {"by length": 3, "random batches": 3, "padded to the longest": 1}


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
    if way == "by length":
        batches = memfit.batch_by_length(
            (x[:cut], y[:cut]), batch_size=BATCH_SIZE, seed=seed, model=model, tell=None
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
    judged = memfit.batch_by_length((x[cut:], y[cut:]), shuffle=False, tell=None)
    return {
        "seconds": sorted(timer.seconds[1:])[len(timer.seconds[1:]) // 2],
        "peak_bytes": device.peak_bytes if device is not None else 0,
        "accuracy": float(model.evaluate(judged, verbose=0, return_dict=True)["accuracy"]),
    }


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
