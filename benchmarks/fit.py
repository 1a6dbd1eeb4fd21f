"""`memfit.fit` against `model.fit`: what a plan that does nothing costs, and what micro-batches save.

    make bench TARGET=fit                       both tables
    make bench TARGET="fit nothing"             only the cost of a plan that does nothing
    make bench TARGET="fit micro"               only micro-batches

Seconds are of whole epochs after a first one that traces, in turn in one process, each the least of several.
Bytes are the peak of a step less what is alive between steps, each in a fresh process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import memfit

MEBIBYTE = 2**20
NUM_STEPS, NUM_REPEATS = 1000, 7
BATCH, LENGTH, FEATURES = 32, 20, 8
MICRO_BATCH, MICRO_LENGTH, MICRO_UNITS = 64, 200, 128


class _Timed:
    """Made a Keras callback when Keras is there: the seconds of each epoch."""

    @staticmethod
    def make() -> Any:
        import keras

        class Timed(keras.callbacks.Callback):
            seconds: list[float]

            def __init__(self) -> None:
                super().__init__()
                self.seconds = []

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
                self.start = time.perf_counter()

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
                self.seconds.append(time.perf_counter() - self.start)

        return Timed()


def make_model(units: int) -> Any:
    """A small LSTM."""
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((None, FEATURES)), keras.layers.LSTM(units), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def make_data(num_examples: int, length: int) -> tuple[Any, Any]:
    """Random sequences and numbers."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(num_examples, length, FEATURES)).astype("float32")
    return x, x[:, :5].sum(axis=(1, 2))[:, None]


def measure_nothing() -> dict[str, float]:
    """Seconds of 1,000 steps under `model.fit` and under `memfit.fit` with an empty plan, in turn."""
    x, y = make_data(BATCH * NUM_STEPS, LENGTH)
    found: dict[str, list[float]] = {"plain": [], "memfit": []}
    models = {name: make_model(32) for name in found}
    options: dict[str, Any] = {"batch_size": BATCH, "epochs": 2, "verbose": 0}
    for _ in range(NUM_REPEATS):
        for name, model in models.items():
            timed = _Timed.make()
            if name == "plain":
                model.fit(x, y, callbacks=[timed], **options)
            else:
                memfit.fit(model, x, y, plan=memfit.Plan(), callbacks=[timed], **options)
            found[name].append(timed.seconds[-1])
    return {name: min(seconds) for name, seconds in found.items()}


def measure_micro(micro_batch: int | None) -> list[float]:
    """Activation bytes and the least seconds of a step, in this (fresh) process."""
    import tensorflow as tf

    x, y = make_data(MICRO_BATCH, MICRO_LENGTH)
    model = make_model(MICRO_UNITS)
    step = memfit.train_step(model, "mse", "adam", memfit.Plan(micro_batch=micro_batch))
    x, y = tf.constant(x), tf.constant(y)
    for _ in range(2):
        step(x, y)
    tf.config.experimental.reset_memory_stats("CPU:0")
    between = tf.config.experimental.get_memory_info("CPU:0")["current"]
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        step(x, y)
        seconds.append(time.perf_counter() - start)
    return [tf.config.experimental.get_memory_info("CPU:0")["peak"] - between, min(seconds)]


def fresh(function: Any, *arguments: Any) -> Any:
    """What a function returns in a fresh process."""
    measured = memfit.measure(function, *arguments, timeout_seconds=1800)
    if measured.outcome is not memfit.Outcome.OK:
        raise SystemExit(f"{function.__name__}: {measured.reason}\n{measured.output}")
    return measured.value


def show_nothing() -> None:
    """Prints what a plan that does nothing costs."""
    seconds = fresh(measure_nothing)
    ratio = seconds["memfit"] / seconds["plain"]
    print(
        f"a plan that does nothing, LSTM(32), {NUM_STEPS:,} steps: model.fit {seconds['plain']:.2f} s, "
        f"memfit.fit {seconds['memfit']:.2f} s, {ratio:.3f}x (<= 1.03) "
        f"{'met' if ratio <= 1.03 else 'NOT MET'}",
        flush=True,
    )


def show_micro() -> None:
    """Prints bytes and time of micro-batches against the whole batch."""
    whole_bytes, whole_seconds = fresh(measure_micro, None)
    print(f"LSTM({MICRO_UNITS}), T={MICRO_LENGTH}, effective batch {MICRO_BATCH}")
    print(f"{'whole':>8} {whole_bytes / MEBIBYTE:7.1f} MiB {'':8} {whole_seconds:6.3f} s", flush=True)
    for parts in (2, 4, 8):
        found_bytes, seconds = fresh(measure_micro, MICRO_BATCH // parts)
        print(
            f"{f'1/{parts}':>8} {found_bytes / MEBIBYTE:7.1f} MiB {100 * found_bytes / whole_bytes:6.1f} % "
            f"{seconds:6.3f} s {seconds / whole_seconds:5.2f}x",
            flush=True,
        )


def main(names: Sequence[str] = ()) -> None:
    """Prints the tables named, or both."""
    if not names or "nothing" in names:
        show_nothing()
    if not names or "micro" in names:
        show_micro()
