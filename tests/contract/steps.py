"""Tiny models, and what a strategy makes of their training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LENGTH, FEATURES, BATCH_SIZE = 480, 8, 16
# Enough for several segments of seven, where results and not bytes are compared.
SHORT_LENGTH = 15


@dataclass(frozen=True)
class ModelStep:
    """The least that a strategy can be applied to."""

    model: Any


def make_model(name: str, *, run_eagerly: bool = False) -> Any:
    """A compiled model by its name in `MODELS`."""
    import keras

    keras.utils.set_random_seed(7)
    model = MODELS[name](keras.layers, keras)
    # Not Adam: it divides by the size of the gradient, and makes much of the rounding of tiny ones.
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse", run_eagerly=run_eagerly)
    return model


def _lstm(layers: Any, keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            layers.LSTM(32, return_sequences=True),
            layers.LSTM(32),
            layers.Dense(1),
        ]
    )


def _bidirectional(layers: Any, keras: Any) -> Any:
    return keras.Sequential(
        [keras.Input((None, FEATURES)), layers.Bidirectional(layers.GRU(24)), layers.Dense(1)]
    )


def _cells(layers: Any, keras: Any) -> Any:
    cells = layers.StackedRNNCells([layers.GRUCell(16), layers.LSTMCell(16, activation="relu")])
    return keras.Sequential([keras.Input((None, FEATURES)), layers.RNN(cells), layers.Dense(1)])


def _encoder_decoder(layers: Any, keras: Any) -> Any:
    source = keras.Input((None, FEATURES))
    encoded, *state = layers.LSTM(24, return_sequences=True, return_state=True)(source)
    decoded = layers.LSTM(24, return_sequences=True)(encoded, initial_state=state)
    return keras.Model(source, layers.Dense(1)(layers.GlobalAveragePooling1D()(decoded)))


def _residual(layers: Any, keras: Any) -> Any:
    # Not of convolutions: on a CPU without oneDNN, one of them takes more in passing than all that is held.
    source = keras.Input((None, FEATURES))
    values = layers.Dense(32)(source)
    for _ in range(12):
        inner = layers.Dense(32)(layers.Activation("silu")(values))
        values = layers.Add()([values, layers.Dropout(0.1)(layers.BatchNormalization()(inner))])
    return keras.Model(source, layers.Dense(1)(layers.GlobalAveragePooling1D()(values)))


MODELS: dict[str, Callable[..., Any]] = {
    "residual": _residual,
    "lstm": _lstm,
    "bidirectional": _bidirectional,
    "cells": _cells,
    "encoder_decoder": _encoder_decoder,
}


RECURRENT = ("lstm", "bidirectional", "cells", "encoder_decoder")
MODELS_FOR = {
    "micro_batch": RECURRENT,
    "time_checkpoint": RECURRENT,
    "depth_checkpoint": ("residual",),
    "stream_inputs": ("lstm",),
    "truncate": ("lstm",),
    "bucketing": (),
}
"""The models that a strategy has something to offer for."""


@dataclass(frozen=True)
class Trained:
    """Three steps of `model.fit`, under a strategy or without.

    Attributes:
        losses: After each step.
        weights: In the end.
        attributes: The names of all that its layers had afterwards; `fit` itself leaves some.
        is_as_before: Whether its config was as before, and what was saved is what it computes.
    """

    losses: list[float]
    weights: list[Any]
    attributes: list[list[str]]
    is_as_before: bool


def train(model_name: str, strategy_name: str | None, value: int | None = None) -> Trained:
    """Three steps under a setting of a strategy, or without one: eagerly, as tracing takes longer."""
    import numpy as np

    model = make_model(model_name, run_eagerly=strategy_name is None)
    model.optimizer.build(model.trainable_variables)  # A step that makes its variables is traced twice.
    x, y = _data(SHORT_LENGTH)
    few = x[:2, :9]
    config, outputs = model.to_json(), model(few)
    with _applied(model, strategy_name, value):
        assert np.allclose(outputs, model(few), atol=1e-6)
        history = model.fit(x, y, batch_size=BATCH_SIZE, epochs=3, shuffle=False, verbose=0)
    attributes = [sorted(vars(layer)) for layer in model._flatten_layers()]
    is_as_before = model.to_json() == config and np.array_equal(_saved_and_loaded(model)(few), model(few))
    return Trained(history.history["loss"], model.get_weights(), attributes, is_as_before)


def _saved_and_loaded(model: Any) -> Any:
    import tempfile
    from pathlib import Path

    import keras

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.keras"))
        return keras.models.load_model(Path(folder, "model.keras"))


def activation_bytes(model_name: str, strategy_names: list[str]) -> dict[str, list[int]]:
    """What each strategy holds in a step, and what it says of it; under `""`, without one.

    The one that is expected to hold the most comes last: it cannot leave holes for the others.
    """
    found = {name: _activation_bytes(model_name, name) for name in strategy_names}
    return {**found, "": _activation_bytes(model_name, None)}


def _activation_bytes(model_name: str, strategy_name: str | None) -> list[int]:
    """The usual peak of a step above what is alive between steps, and what the strategy says of it."""
    from statistics import median

    import memfit

    model = make_model(model_name)
    x, y = _data()
    predicted = 0 if strategy_name is None else _predicted_bytes(model, strategy_name)
    peaks = []
    with _applied(model, strategy_name, None):
        model.train_on_batch(x, y)
        for _ in range(5):
            memfit.reset_peak()
            before = memfit.read_memory().devices[0].current_bytes
            model.train_on_batch(x, y)
            peaks.append(memfit.read_memory().devices[0].peak_bytes - before)
    return [int(median(peaks)), predicted]


def _predicted_bytes(model: Any, strategy_name: str) -> int:
    from memfit.depth.profiling_tf import profile_depth
    from memfit.records import Setting
    from memfit.rnn.costs_tf import profile_time
    from memfit.strategies import ALL

    is_deep = strategy_name == "depth_checkpoint"
    profile = profile_depth(model, _data()[0]) if is_deep else profile_time(model, BATCH_SIZE, LENGTH)
    (strategy,) = (each for each in ALL if each.name == strategy_name)
    return strategy.effect(Setting(strategy=strategy_name, value=None), profile).held_bytes


def _applied(model: Any, strategy_name: str | None, value: int | None) -> Any:
    from contextlib import nullcontext

    from memfit.records import Setting
    from memfit.strategies import ALL

    if strategy_name is None:
        return nullcontext()
    (strategy,) = (each for each in ALL if each.name == strategy_name)
    return strategy.apply(Setting(strategy=strategy_name, value=value), ModelStep(model))


def _data(length: int = LENGTH) -> tuple[Any, Any]:
    import numpy as np

    random = np.random.default_rng(3)
    x = random.normal(size=(BATCH_SIZE, length, FEATURES)).astype("float32")
    return x, x[:, :20].sum(axis=(1, 2), keepdims=False)[:, None]
