"""`memfit.estimate` against the truth: the peak of the real step in a fresh process.

    make bench TARGET=estimate                      everything (about 20 minutes on two cores)
    make bench TARGET="estimate lstm unet"          some models
    BENCH_CACHE=truth.json make bench ...           truth that was measured before is not measured again

The largest batch that an estimate measures has 4 examples; those here have 4 to 1,024 times as many. The
truth of a case is the median over the peaks of some steps of Keras's own `train_on_batch`. As a cap: the same
steps under a hard limit of the estimate's upper bound.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import memfit
from benchmarks.estimate_models import CASES

NUM_STEPS = 5
SKIPPED_STEPS = 1  # The first one also traces.


def take_steps(name: str, batch_size: int) -> dict[str, Any]:
    """The peaks and the seconds of some real steps of `model.fit`, in this (fresh) process."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model, make = CASES[name].make()
    peaks, seconds = [], []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            tf.config.experimental.reset_memory_stats("CPU:0")
            self.start = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            seconds.append(time.perf_counter() - self.start)
            peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])

    batch = tf.nest.map_structure(tf.constant, make(batch_size))
    # One batch, held once, that is traced as a batch of any size, as most data sets are.
    data = tf.data.Dataset.from_tensors(batch).repeat(NUM_STEPS).map(_of_any_size)
    model.fit(data, verbose=0, callbacks=[Watch()])
    return {"peaks": peaks, "seconds": min(seconds[SKIPPED_STEPS:])}


def _of_any_size(*batch: Any) -> Any:
    import tensorflow as tf

    def relax(leaf: Any) -> Any:
        return tf.compat.v1.placeholder_with_default(leaf, [None, *leaf.shape[1:]])

    return tf.nest.map_structure(relax, batch)


def make_estimates(name: str, batches: Sequence[int]) -> dict[str, Any]:
    """The estimates of a model at some batches, and the seconds that the first one took."""
    import keras

    keras.utils.set_random_seed(0)
    model, make = CASES[name].make()
    found = []
    seconds = []
    for batch in batches:
        start = time.perf_counter()
        estimate = memfit.estimate(model, make(8), batch_size=batch)
        seconds.append(time.perf_counter() - start)
        found.append([estimate.low_bytes, estimate.peak_bytes, estimate.high_bytes])
    return {"found": found, "seconds": seconds[0]}
