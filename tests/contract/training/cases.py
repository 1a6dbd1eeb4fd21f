"""Models whose losses Keras weighs in every way it knows: three steps each, the last on a ragged tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import layers, losses, optimizers

NUM_EXAMPLES, BATCH_SIZE = 24, 10  # batches of 10, 10 and 4: three optimizer steps


@dataclass(frozen=True, kw_only=True)
class Case:
    """A compiled model and its data.

    Args:
        make: Makes the compiled model.
        x: Inputs.
        y: Targets.
        arguments: Further arguments of `fit`.
        tolerance: Of updates, relative to the largest.
    """

    make: Callable[[], Any]
    x: Any
    y: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-5


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=(NUM_EXAMPLES, *shape)).astype("float32")


VECTORS, TARGETS = _random(4), _random(3)
LABELS = np.arange(NUM_EXAMPLES) % 3
LENGTHS = np.arange(NUM_EXAMPLES) % 6 + 1
WORDS = (np.arange(NUM_EXAMPLES * 6).reshape(NUM_EXAMPLES, 6) * 7 % 9 + 1) * (np.arange(6) < LENGTHS[:, None])
TAGS = np.arange(NUM_EXAMPLES * 6).reshape(NUM_EXAMPLES, 6) * 5 % 3
EXAMPLE_WEIGHTS = np.linspace(0.1, 3, NUM_EXAMPLES).astype("float32")
STEP_WEIGHTS = np.abs(_random(6))


def _sgd(**options: Any) -> Any:
    # Not Adam: it divides by the size of the gradient, and makes much of the rounding of tiny ones.
    return optimizers.SGD(0.05, momentum=0.9, **options)


def _dense(
    loss: Any = "mse",
    optimizer: Callable[[], Any] = _sgd,
    hidden: Callable[[], list[Any]] = lambda: [layers.Dense(5, "tanh")],
    **options: Any,
) -> Callable[[], Any]:
    def make() -> Any:
        model = keras.Sequential([keras.Input((4,)), *hidden(), layers.Dense(3)])
        metrics = {"metrics": ["mae"], "weighted_metrics": ["mse"]} | options
        model.compile(optimizer(), loss, **metrics)
        return model

    return make


def _tagger(
    loss: Any,
    optimizer: Callable[[], Any] = _sgd,
    *,
    has_mask: bool = True,
    hidden: Callable[[], Any] = lambda: layers.Dense(4, "tanh"),
) -> Callable[[], Any]:
    def make() -> Any:
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                layers.Embedding(10, 4, mask_zero=has_mask),
                hidden(),
                layers.Dense(3),
            ]
        )
        model.compile(optimizer(), loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
        return model

    return make


def _entropy(**options: Any) -> Any:
    return losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def _two_outputs() -> Any:
    words, vectors = keras.Input((6,), dtype="int32", name="words"), keras.Input((4,), name="vectors")
    read = layers.Dense(4, "tanh")(layers.Embedding(10, 4, mask_zero=True)(words))
    joint = layers.Concatenate()([layers.GlobalAveragePooling1D()(read), layers.Dense(3)(vectors)])
    outputs = {"tags": layers.Dense(3, name="tags")(read), "size": layers.Dense(3, name="size")(joint)}
    model = keras.Model({"words": words, "vectors": vectors}, outputs)
    model.compile(
        _sgd(),
        loss={"tags": _entropy(), "size": losses.MeanAbsoluteError(reduction="sum")},
        loss_weights={"tags": 0.7, "size": 0.1},
        metrics={"tags": ["accuracy"], "size": ["mae"]},
    )
    return model


@keras.saving.register_keras_serializable("memfit_tests")
class AddsLoss(layers.Layer):
    """Adds the mean or the examples' values of something."""

    def __init__(self, is_mean: bool) -> None:
        super().__init__()
        self.is_mean = is_mean

    def call(self, inputs: Any) -> Any:
        values = 0.1 * keras.ops.sum(inputs**2, axis=-1)
        self.add_loss(keras.ops.mean(values) if self.is_mean else values)
        return inputs


def _with_layer(layer: Callable[[], Any]) -> Callable[[], list[Any]]:
    return lambda: [layers.Dense(5, "tanh"), layer()]


def _half(policy: str) -> Callable[[], Any]:
    def make() -> Any:
        hidden = layers.Dense(5, "tanh", dtype=policy)
        model = keras.Sequential([keras.Input((4,)), hidden, layers.Dense(3, dtype="float32")])
        model.compile(
            optimizers.LossScaleOptimizer(_sgd(), initial_scale=128.0, dynamic_growth_steps=2), "mse"
        )
        return model

    return make


def _eager() -> Any:
    model = _tagger(_entropy())()
    model.compile(_sgd(), _entropy(), run_eagerly=True)
    return model


def _vectors(make: Callable[[], Any], **arguments: Any) -> Case:
    return Case(make=make, x=VECTORS, y=TARGETS, arguments=arguments)


def _words(make: Callable[[], Any], **arguments: Any) -> Case:
    return Case(make=make, x=WORDS, y=TAGS, arguments=arguments)


CASES: dict[str, Case] = {
    "mean": _vectors(_dense()),
    "sum": _vectors(_dense(losses.MeanSquaredError(reduction="sum"))),
    "none": _vectors(_dense(losses.MeanSquaredError(reduction="none"))),
    "mean with sample weight": _vectors(
        _dense(losses.MeanSquaredError(reduction="mean_with_sample_weight")), sample_weight=EXAMPLE_WEIGHTS
    ),
    "function": _vectors(_dense(lambda y, y_pred: keras.ops.mean((y - y_pred) ** 4, axis=-1))),
    "masked sequences": _words(_tagger(_entropy())),
    "masked LSTM": _words(_tagger(_entropy(), hidden=lambda: layers.LSTM(4, return_sequences=True))),
    "masked sum": _words(_tagger(_entropy(reduction="sum"))),
    "ignored class": _words(_tagger(_entropy(ignore_class=0), has_mask=False)),
    "sample weight": _vectors(_dense(), sample_weight=EXAMPLE_WEIGHTS),
    "class weight": Case(
        make=_dense(_entropy(), metrics=["accuracy"], weighted_metrics=["accuracy"]),
        x=VECTORS,
        y=LABELS,
        arguments={"class_weight": {0: 0.5, 1: 2.0, 2: 1.0}},
    ),
    "weight per step": _words(_tagger(_entropy()), sample_weight=STEP_WEIGHTS),
    "weight per step, mean by weight": _words(
        _tagger(_entropy(reduction="mean_with_sample_weight")), sample_weight=STEP_WEIGHTS
    ),
    "inputs and outputs": Case(
        make=_two_outputs, x={"words": WORDS, "vectors": VECTORS}, y={"tags": TAGS, "size": TARGETS}
    ),
    "outputs with weights": Case(
        make=_two_outputs,
        x={"words": WORDS, "vectors": VECTORS},
        y={"tags": TAGS, "size": TARGETS},
        arguments={"sample_weight": {"tags": STEP_WEIGHTS, "size": EXAMPLE_WEIGHTS}},
    ),
    "regularizer": _vectors(_dense(hidden=lambda: [layers.Dense(5, kernel_regularizer="l2")])),
    "add_loss": _vectors(_dense(hidden=_with_layer(lambda: AddsLoss(is_mean=True)))),
    "add_loss per example": _vectors(_dense(hidden=_with_layer(lambda: AddsLoss(is_mean=False)))),
    "activity regularizer": _vectors(_dense(hidden=lambda: [layers.Dense(5, activity_regularizer="l1l2")])),
    "global norm": _vectors(_dense(optimizer=lambda: _sgd(global_clipnorm=0.1))),
    "global norm of rows": _words(_tagger(_entropy(), lambda: _sgd(global_clipnorm=0.1))),
    "rows under Adam": _words(_tagger(_entropy(), lambda: optimizers.Adam(0.05, epsilon=0.01))),
    "norm of each": _vectors(_dense(optimizer=lambda: _sgd(clipnorm=0.1))),
    "schedule": _vectors(
        _dense(optimizer=lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)))
    ),
    "accumulation": _vectors(_dense(optimizer=lambda: _sgd(gradient_accumulation_steps=2))),
    "average": _vectors(_dense(optimizer=lambda: _sgd(use_ema=True, ema_momentum=0.5))),
    "weight decay": _vectors(_dense(optimizer=lambda: _sgd(weight_decay=0.1))),
    "float16": Case(make=_half("mixed_float16"), x=VECTORS, y=TARGETS, tolerance=5e-3),
    "bfloat16": Case(make=_half("mixed_bfloat16"), x=VECTORS, y=TARGETS, tolerance=5e-2),
    "eager": _words(_eager),
}
