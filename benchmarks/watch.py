"""What watching costs, and whether released models leave anything behind.

    make bench TARGET=watch                     both
    make bench TARGET="watch cost"              only the cost
    make bench TARGET="watch release"           only 1,000 models
    make bench TARGET="watch release 50"        only 50 models

Cost: epochs of `model.fit` and turns of a loop of one's own, plain and watched in turn in one process, each
the least of several, without what is done once at the end. Released: models built, trained one step and
released in one process; the slope of device and host memory after the first fifth, with its interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import memfit
from benchmarks.fit import fresh, make_data, make_model
from memfit.guarding.slopes import trend

NUM_REPEATS, NUM_STEPS, BATCH, LENGTH = 9, 1000, 32, 20
NUM_MODELS, NUM_MODELS_READ = 1000, 100
KIBIBYTE = 2**10


def _fit(model: Any) -> Callable[[], None]:
    x, y = make_data(BATCH * NUM_STEPS, LENGTH)

    def run() -> None:
        model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)

    return run


def _loop(model: Any) -> Callable[[], None]:
    import tensorflow as tf

    x, y = map(tf.constant, make_data(BATCH, LENGTH))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def run() -> None:
        for _ in range(NUM_STEPS):
            step()

    return run


def measure_cost() -> dict[str, dict[str, float]]:
    """The least seconds of so many steps, plain and watched in turn, and what watching said about itself."""
    found: dict[str, dict[str, float]] = {}
    for name, make in (("model.fit", _fit), ("own loop", _loop)):
        run = make(make_model(32))
        run()
        seconds: dict[str, list[float]] = {"plain": [], "watched": []}
        for _ in range(NUM_REPEATS):
            for how in seconds:
                watcher = memfit.watch()
                if how == "watched":
                    watcher.__enter__()
                start = time.perf_counter()
                run()
                seconds[how].append(time.perf_counter() - start)
                if how == "watched":
                    watcher.__exit__()
        found[name] = {how: min(each) for how, each in seconds.items()}
    return found


def measure_release(num_models: int) -> dict[str, list[tuple[float, float]]]:
    """Device and host bytes after every so many models."""
    import keras
    import numpy as np
    import tensorflow as tf

    x = np.ones((BATCH, 8), "float32")
    found: dict[str, list[tuple[float, float]]] = {"device": [], "host": []}
    for number in range(num_models):
        layers = [keras.layers.Dense(64, "swish"), keras.layers.Dense(1)]  # Both swish and fit register.
        model = keras.Sequential([keras.Input((8,)), *layers])
        model.compile("adam", "mse")
        model.fit(x, x[:, :1], batch_size=BATCH, epochs=1, verbose=0)
        del model, layers
        memfit.release()
        if number % max(1, num_models // NUM_MODELS_READ) == 0:
            device = tf.config.experimental.get_memory_info("CPU:0")["current"]
            found["device"].append((number, device))
            found["host"].append((number, memfit.read_memory().host_bytes))
    return found


def show_cost() -> None:
    """Prints the cost of watching."""
    for name, seconds in fresh(measure_cost).items():
        ratio = seconds["watched"] / seconds["plain"]
        print(
            f"{name:>10}, LSTM(32), {NUM_STEPS} steps: plain {seconds['plain']:.3f} s, "
            f"watched {seconds['watched']:.3f} s, {ratio:.4f}x (<= 1.01) "
            f"{'met' if ratio <= 1.01 else 'NOT MET'}",
            flush=True,
        )


def show_release(num_models: int) -> None:
    """Prints the slopes of memory over models that were released."""
    for name, readings in fresh(measure_release, num_models).items():
        found = trend([(step, value) for step, value in readings])
        first, last = readings[len(readings) // 5][1], readings[-1][1]
        print(
            f"{num_models:,} models, {name}: {found.slope / KIBIBYTE:+.2f} KiB a model, interval "
            f"{found.low / KIBIBYTE:+.2f} to {found.high / KIBIBYTE:+.2f}, "
            f"in all {(last - first) / KIBIBYTE:+,.0f} KiB: "
            f"{'GROWS' if found.is_growing else 'flat'}",
            flush=True,
        )


def main(names: Sequence[str] = ()) -> None:
    """Prints the tables named, or both."""
    numbers = [int(name) for name in names if name.isdigit()]
    if not names or "cost" in names:
        show_cost()
    if not names or "release" in names:
        show_release(numbers[0] if numbers else NUM_MODELS)
