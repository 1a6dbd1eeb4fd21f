"""What watching costs, and whether released models leave anything behind.

    make bench TARGET=watch                     both
    make bench TARGET="watch cost"              only the cost
    make bench TARGET="watch release"           only 1,000 models
    make bench TARGET="watch release 50"        only 50 models

Cost: short blocks of steps of `model.fit` and of a loop of one's own, plain and watched in turn in one
process, and the median of their ratios: what a machine does beside it hits both of a pair, or few pairs.
What is done once, at the beginning and at the end, is not in the blocks. Released: models built, trained one
step and released in one process; the slope of device memory, of host memory and of what `malloc` has given
out, after the first fifth, with its interval. Trained by `train_on_batch`, which takes the arrays as they
are, and by `fit`, for which Keras makes a `tf.data` set of them. Beside the first the same with one model
that is made once, whose functions are released and traced anew; beside the second, without memfit and without
a model, only such data sets, made and read as often. "flat" is what does not grow by the test that
`memfit.watch` makes. Where models grow, it says whether what stands beside them does so no less: whether the
intervals of the two slopes meet. The sets are read op by op, which leaves some more than `fit` does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import memfit
from benchmarks import heap
from benchmarks.fit import fresh, make_data, make_model
from memfit.guarding.slopes import Trend, trend

NUM_PAIRS, BLOCK_STEPS, EPOCH_STEPS, BATCH, LENGTH = 480, 50, 1000, 32, 20
NUM_MODELS, NUM_READINGS = 1000, 100
KIBIBYTE = 2**10
METERS = ("device", "host", "malloc")


class Turns:
    """Switches watching on and off after each block of steps, and keeps the seconds of the blocks.

    One watcher for all of them, so that what it does once, at the beginning, is not in the blocks. Which of a
    pair comes first changes from pair to pair, so that a machine that becomes slower favours neither.
    """

    def __init__(self) -> None:
        self.watcher = memfit.watch()
        self.seconds: dict[bool, list[float]] = {False: [], True: []}
        self._is_watched = False
        self._start = 0.0

    def begin(self) -> None:
        """A block begins."""
        self._start = time.perf_counter()

    def turn(self) -> None:
        """A block has ended, and the next begins: plain, watched, watched, plain, and so on."""
        self.seconds[self._is_watched].append(time.perf_counter() - self._start)
        self.switch(is_on=sum(map(len, self.seconds.values())) % 4 in (1, 2))
        self.begin()

    def switch(self, *, is_on: bool) -> None:
        """Begins or ends watching, if it is not so already."""
        if is_on and not self._is_watched:
            self.watcher.__enter__()
        elif self._is_watched and not is_on:
            self.watcher.__exit__()
        self._is_watched = is_on

    def ratios(self) -> list[float]:
        """Watched over plain, pair by pair, sorted; without the first few, which warm up."""
        pairs = list(zip(self.seconds[True], self.seconds[False], strict=False))[NUM_PAIRS // 10 :]
        return sorted(watched / plain for watched, plain in pairs)


def _fit(turns: Turns) -> None:
    """Turns at the ends of batches of `model.fit`."""
    import keras

    class Turning(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            turns.begin()  # What goes on between two epochs is in no block.

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if (batch + 1) % BLOCK_STEPS == 0:
                turns.turn()

    x, y = make_data(BATCH * EPOCH_STEPS, LENGTH)
    model = make_model(32)
    model.fit(x[:BATCH], y[:BATCH], batch_size=BATCH, verbose=0)
    num_epochs = 2 * NUM_PAIRS * BLOCK_STEPS // EPOCH_STEPS
    model.fit(x, y, batch_size=BATCH, epochs=num_epochs, verbose=0, callbacks=[Turning()])


def _loop(turns: Turns) -> None:
    """Turns in a loop of one's own."""
    import tensorflow as tf

    model = make_model(32)
    x, y = map(tf.constant, make_data(BATCH, LENGTH))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step()
    turns.begin()
    for _ in range(2 * NUM_PAIRS):
        for _ in range(BLOCK_STEPS):
            step()
        turns.turn()


def measure_cost() -> dict[str, dict[str, float]]:
    """The median of watched over plain, its interval, the seconds of a step, and what watching did."""
    found: dict[str, dict[str, float]] = {}
    for name, run in (("model.fit", _fit), ("own loop", _loop)):
        turns = Turns()
        run(turns)
        turns.switch(is_on=False)
        ratios, result = turns.ratios(), turns.watcher.result()
        # The ranks between which the median is with 95% confidence.
        reach = round(0.98 * len(ratios) ** 0.5)
        found[name] = {
            "ratio": median(ratios),
            "low": ratios[len(ratios) // 2 - reach],
            "high": ratios[len(ratios) // 2 + reach],
            "step_seconds": median(turns.seconds[False]) / BLOCK_STEPS,
            "num_readings": result.num_readings,
            "reading_seconds": result.seconds,
        }
    return found


Readings = dict[str, list[tuple[float, float]]]


def measure_release(num_models: int, is_by_fit: bool) -> Readings:
    """What is held after every so many models, trained by `fit` or by `train_on_batch`."""
    import numpy as np

    x = np.ones((BATCH, 8), "float32")

    def train() -> None:
        model = _made()
        if is_by_fit:
            model.fit(x, x[:, :1], batch_size=BATCH, epochs=1, verbose=0)
        else:
            model.train_on_batch(x, x[:, :1])

    def round_() -> None:
        train()
        memfit.release()

    return _read(round_, num_models)


def measure_same(num_rounds: int) -> Readings:
    """What is held after every so many steps of one model, whose functions are traced anew for each."""
    import numpy as np

    x = np.ones((BATCH, 8), "float32")
    model = _made()

    def round_() -> None:
        model.train_on_batch(x, x[:, :1])
        memfit.release(model)

    return _read(round_, num_rounds)


def _made() -> Any:
    import keras

    layers = [keras.layers.Dense(64, "swish"), keras.layers.Dense(1)]  # Both swish and fit register.
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile("adam", "mse")
    return model


def measure_data(num_sets: int) -> Readings:
    """What is held after every so many data sets as `model.fit` makes them, without a model."""
    import numpy as np
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
    from tensorflow.core.config import flags

    from memfit.measuring import device_tf

    x = np.ones((BATCH, 8), "float32")
    flags.config().publish_function_graphs.reset(False)  # As `memfit.release` does: what is left beside it.

    def round_() -> None:
        for _ in ArrayDataAdapter(x, x[:, :1], batch_size=BATCH).get_tf_dataset():
            pass
        gc.collect()
        gc.collect()
        device_tf.forget_kernels()

    return _read(round_, num_sets)


def _read(round_: Callable[[], None], num_rounds: int) -> Readings:
    import numpy as np
    import tensorflow as tf

    places = range(0, num_rounds, max(1, num_rounds // NUM_READINGS))
    # Made before, so that what is read is not what reading leaves.
    found = np.zeros((len(METERS), len(places)))
    for number in range(num_rounds):
        round_()
        if number in places:
            device = tf.config.experimental.get_memory_info("CPU:0")["current"]
            held = device, memfit.read_memory().host_bytes, heap.held_bytes()
            found[:, places.index(number)] = held
    return {
        name: list(zip(places, row, strict=True)) for name, row in zip(METERS, found.tolist(), strict=True)
    }


def show_cost() -> None:
    """Prints the cost of watching."""
    for name, found in fresh(measure_cost).items():
        print(
            f"{name:>10}, LSTM(32), steps of {1e3 * found['step_seconds']:.2f} ms, {NUM_PAIRS} pairs of "
            f"{BLOCK_STEPS} steps: watched over plain {found['ratio']:.4f} "
            f"({found['low']:.4f} to {found['high']:.4f}; <= 1.01) "
            f"{'met' if found['ratio'] <= 1.01 else 'NOT MET'}; {found['num_readings']:,.0f} readings took "
            f"{1e3 * found['reading_seconds']:.1f} ms",
            flush=True,
        )


def show_release(num_models: int) -> None:
    """Prints the slopes of memory over models that were released, each beside what no new model leaves."""
    for way, is_by_fit in (("train_on_batch", False), ("fit", True)):
        control = "data sets alone" if is_by_fit else "steps of one model, traced anew"
        beside = fresh(measure_data if is_by_fit else measure_same, num_models)
        for name, readings in beside.items():
            print(f"{num_models:,} {control}, {name}: {_told(trend(readings), readings)}", flush=True)
        for name, readings in fresh(measure_release, num_models, is_by_fit).items():
            found = trend(readings)
            told = f"{_told(found, readings)}: {_judged(found, trend(beside[name]), control)}"
            print(f"{num_models:,} models by {way}, {name}: {told}", flush=True)


def _told(found: Trend, readings: list[tuple[float, float]]) -> str:
    slope, low, high = (f"{each / KIBIBYTE:+.2f}" for each in (found.slope, found.low, found.high))
    growth = (readings[-1][1] - readings[len(readings) // 5][1]) / KIBIBYTE
    return f"{slope} KiB each, interval {low} to {high}, in all {growth:+,.0f} KiB"


def _judged(found: Trend, beside: Trend, control: str) -> str:
    if not found.is_growing:
        return "flat"
    return f"GROWS, no more than {control}" if found.low <= beside.high else "GROWS"


def main(names: Sequence[str] = ()) -> None:
    """Prints the tables named, or both."""
    numbers = [int(name) for name in names if name.isdigit()]
    if not names or "cost" in names:
        show_cost()
    if not names or "release" in names:
        show_release(numbers[0] if numbers else NUM_MODELS)
