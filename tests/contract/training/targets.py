"""Runs under real limits, for fresh processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BUDGET_BYTES = 24 * 2**20
BATCH_SIZE, UNITS, FEATURES = 32, 64, 8


def _model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.Input((None, FEATURES)), keras.layers.LSTM(UNITS), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    return model


def _batches(lengths: list[int]) -> Any:
    import numpy as np
    import tensorflow as tf

    def generate() -> Iterator[Any]:
        for number, length in enumerate(lengths):
            random = np.random.default_rng(number)
            x = random.normal(size=(BATCH_SIZE, length, FEATURES)).astype("float32")
            yield x, x[:, :5].sum(axis=(1, 2))[:, None]

    spec = (tf.TensorSpec([None, None, FEATURES]), tf.TensorSpec([None, 1]))
    return tf.data.Dataset.from_generator(generate, output_signature=spec)


def meet_the_longest_batch() -> dict[str, Any]:
    """Six steps in two epochs; the fifth batch is the longest, and does not fit whole."""
    import warnings

    import numpy as np

    import memfit

    lengths = [20, 30, 20, 20, 700, 30]
    weights = []
    warnings.simplefilter("ignore", memfit.MemfitWarning)
    small = memfit.Plan(micro_batch=8)
    for plan in (small, memfit.Plan(fallbacks=(small,))):
        model = _model()
        run = memfit.fit(model, _batches(lengths), plan=plan, epochs=2, steps_per_epoch=3, verbose=0)
        weights.append(model.get_weights())
    differences = [np.abs(one - two).max() / np.abs(two).max() for one, two in zip(*weights, strict=True)]
    return {
        "incidents": [[each.step, each.epoch, each.where] for each in run.incidents],
        "num_steps": run.num_steps,
        "difference": float(max(differences)),
    }


def cross_the_budget() -> list[Any]:
    """Two epochs under a soft line that whole batches cross."""
    import warnings

    import memfit

    warnings.simplefilter("ignore", memfit.MemfitWarning)
    run = memfit.fit(
        _model(),
        _batches([500] * 4),
        plan=memfit.Plan(fallbacks=(memfit.Plan(micro_batch=8),)),
        budget=BUDGET_BYTES,
        epochs=2,
        steps_per_epoch=2,
        verbose=0,
    )
    return [
        [[each.step, each.plan.micro_batch] for each in run.plan_changes],
        run.num_steps,
        [max(each.peak_bytes or 0 for each in run.incidents), run.peak_bytes[1]],
    ]


def train_many_weights() -> list[Any]:
    """Two epochs of a model of 46 MiB with as much for slots and for gradients."""
    import keras
    import numpy as np

    import memfit

    layers = [keras.layers.Dense(2000) for _ in range(3)]
    model = keras.Sequential([keras.Input((2000,)), *layers])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    x = np.ones((8, 2000), "float32")
    run = memfit.fit(model, x, x, plan=memfit.Plan(), batch_size=4, epochs=2, verbose=0)
    return [list(run.incidents), run.num_steps]
