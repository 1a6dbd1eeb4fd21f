"""Models whose losses Keras weighs in every way it knows: three steps each, the last on a ragged tail.

A case costs a trace, so those that differ in one line are together in a case: each loss has an output with
layers of its own, and what layers add has a branch of its own, so that a wrong weight of one shows in its own
variables; the options of an optimizer that do not hide each other are those of one optimizer. Of every kind
(no weights, a weight an example, a weight a step) there is a case with one output, too, which Keras treats
otherwise.
"""

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
    hidden: Callable[[], Any] = lambda: layers.Dense(4, "tanh"),
) -> Callable[[], Any]:
    def make() -> Any:
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                layers.Embedding(10, 4, mask_zero=True),
                hidden(),
                layers.Dense(3),
            ]
        )
        model.compile(optimizer(), loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
        return model

    return make


def _entropy(**options: Any) -> Any:
    return losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def _listed(*given: Any) -> Callable[[], Any]:
    """Outputs in a list, each with a loss and with layers of its own."""

    def make() -> Any:
        inputs = keras.Input((4,))
        hidden = [layers.Dense(5, "tanh")(inputs) for _ in given]
        outputs = [layers.Dense(3, name=f"output_{place}")(each) for place, each in enumerate(hidden)]
        model = keras.Model(inputs, outputs)
        model.compile(
            _sgd(),
            loss=list(given),
            metrics=[["mae"] for _ in given],
            weighted_metrics=[["mse"] for _ in given],
        )
        return model

    return make


def _named(**tags: Any) -> Callable[[], Any]:
    """Inputs and outputs in dicts; `tags` are losses of sequences, `unmasked` of one without a mask."""

    def make() -> Any:
        words, vectors = keras.Input((6,), dtype="int32", name="words"), keras.Input((4,), name="vectors")
        read = layers.Dense(4, "tanh")(layers.Embedding(10, 4, mask_zero=True)(words))
        joint = layers.Concatenate()([layers.GlobalAveragePooling1D()(read), layers.Dense(3)(vectors)])
        outputs = {"size": layers.Dense(3, name="size")(joint)}
        for name in tags:
            hidden = layers.Embedding(10, 4)(words) if name == "unmasked" else read
            outputs[name] = layers.Dense(3, name=name)(hidden)
        model = keras.Model({"words": words, "vectors": vectors}, outputs)
        model.compile(
            _sgd(),
            loss={"size": losses.MeanAbsoluteError(reduction="sum"), **tags},
            loss_weights={"size": 0.1, **dict.fromkeys(tags, 0.7)},
            metrics={"size": ["mae"], **{name: ["accuracy"] for name in tags}},
        )
        return model

    return make


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


def _adding() -> Any:
    inputs = keras.Input((4,))
    branches = [
        layers.Dense(5, kernel_regularizer="l2")(inputs),
        AddsLoss(is_mean=True)(layers.Dense(5, "tanh")(inputs)),
        layers.Dense(5, activity_regularizer="l1l2")(inputs),
    ]
    model = keras.Model(inputs, layers.Dense(3)(layers.Concatenate()(branches)))
    model.compile(_sgd(), "mse", metrics=["mae"], weighted_metrics=["mse"])
    return model


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


def _everything(make: Callable[[], Any], *tags: str, **weights: Any) -> Case:
    y = {"size": TARGETS, **dict.fromkeys(tags, TAGS)}
    return Case(make=make, x={"words": WORDS, "vectors": VECTORS}, y=y, arguments=weights)


SQUARED = losses.MeanSquaredError
CASES: dict[str, Case] = {
    "mean": _vectors(_dense()),
    "none": _vectors(_dense(SQUARED(reduction="none"))),
    "mean, sum and function": Case(
        make=_listed(
            "mse", SQUARED(reduction="sum"), lambda y, y_pred: keras.ops.mean((y - y_pred) ** 4, axis=-1)
        ),
        x=VECTORS,
        y=[TARGETS] * 3,
    ),
    "sample weight, also as divisor": Case(
        make=_listed("mse", SQUARED(reduction="mean_with_sample_weight")),
        x=VECTORS,
        y=[TARGETS] * 2,
        arguments={"sample_weight": [EXAMPLE_WEIGHTS] * 2},
    ),
    "class weight": Case(
        make=_dense(_entropy(), metrics=["accuracy"], weighted_metrics=["accuracy"]),
        x=VECTORS,
        y=LABELS,
        arguments={"class_weight": {0: 0.5, 1: 2.0, 2: 1.0}},
    ),
    "masked LSTM": _words(_tagger(_entropy(), hidden=lambda: layers.LSTM(4, return_sequences=True))),
    "masked mean and sum, ignored class": _everything(
        _named(tags=_entropy(), total=_entropy(reduction="sum"), unmasked=_entropy(ignore_class=0)),
        *("tags", "total", "unmasked"),
    ),
    "outputs with weights": _everything(
        _named(tags=_entropy(), by_weight=_entropy(reduction="mean_with_sample_weight")),
        *("tags", "by_weight"),
        sample_weight={"size": EXAMPLE_WEIGHTS, "tags": STEP_WEIGHTS, "by_weight": STEP_WEIGHTS},
    ),
    "regularizers and add_loss": _vectors(_adding),
    "add_loss per example": _vectors(
        _dense(hidden=lambda: [layers.Dense(5, "tanh"), AddsLoss(is_mean=False)])
    ),
    "global norm, schedule and average": _vectors(
        _dense(
            optimizer=lambda: optimizers.SGD(
                optimizers.schedules.ExponentialDecay(0.1, 1, 0.5),
                global_clipnorm=0.1,
                use_ema=True,
                ema_momentum=0.5,
            )
        )
    ),
    "norm of each and weight decay": _vectors(_dense(optimizer=lambda: _sgd(clipnorm=0.1, weight_decay=0.1))),
    "accumulation": _vectors(_dense(optimizer=lambda: _sgd(gradient_accumulation_steps=2))),
    "rows under Adam, their norm, weight per step": _words(
        _tagger(_entropy(), lambda: optimizers.Adam(0.05, epsilon=0.01, global_clipnorm=0.1)),
        sample_weight=STEP_WEIGHTS,
    ),
    "float16": Case(make=_half("mixed_float16"), x=VECTORS, y=TARGETS, tolerance=5e-3),
    "bfloat16": Case(make=_half("mixed_bfloat16"), x=VECTORS, y=TARGETS, tolerance=5e-2),
    "eager": _words(_eager),
}
