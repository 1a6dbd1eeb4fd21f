"""Tiny models of every kind, with data, and what three steps make of them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from memfit.depth.model_tf import checkpoint_depth

BATCH = 12


def sequential() -> keras.Model:
    """Normalization, random layers and activations with gradients of their own."""
    return keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(32, activation="gelu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(32, activation="silu"),
            layers.Dropout(0.2),
            layers.BatchNormalization(),
            layers.Dense(3),
        ]
    )


def branching() -> keras.Model:
    """Two inputs, two outputs, a shared layer, a skip connection, and a model that is called twice."""
    first, second = keras.Input((8,)), keras.Input((8,))
    shared = layers.Dense(16, activation="tanh")
    joined = layers.Add()([shared(first), shared(second)])
    wide = layers.Concatenate()([joined, layers.Dropout(0.2)(joined), first])
    inner = keras.Sequential(
        [
            layers.Input((40,)),
            layers.Dense(16, activation="gelu"),
            layers.Dropout(0.1),
            layers.LayerNormalization(),
        ]
    )
    once = inner(wide)
    twice = inner(layers.Concatenate()([once, once, first]))
    outputs = [
        layers.Dense(3)(twice),
        layers.Dense(3, activation="softplus")(layers.Multiply()([once, joined])),
    ]
    return keras.Model([first, second], outputs)


class Block(layers.Layer):
    """Adds a loss, updates a metric, keeps a tensor, takes an argument of its own."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.dense = layers.Dense(units, activation="relu")
        self.norm = layers.BatchNormalization()
        self.dropout = layers.Dropout(0.3)
        self.seen = keras.metrics.Mean()

    def call(self, inputs: Any, scale: float = 1.0, training: bool | None = None) -> Any:
        """A residual block."""
        found = self.dropout(self.norm(self.dense(inputs), training=training), training=training)
        self.add_loss(0.01 * keras.ops.mean(found**2))
        self.seen.update_state(keras.ops.mean(found))
        self.last = found
        return inputs + scale * found


class Subclassed(keras.Model):
    """Layers in a list, regularizers, a dict that comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = layers.Dense(16, kernel_regularizer="l2")
        self.blocks = [Block(16) for _ in range(3)]
        self.final = layers.Dense(3, activity_regularizer="l2")

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Through all blocks."""
        values = self.first(inputs)
        for index, block in enumerate(self.blocks):
            values = block(values, scale=0.5 + index, training=training)
        return {"y": self.final(values)}


def encoder() -> keras.Model:
    """Masks from an embedding through attention into a loop, and out."""
    words = keras.Input((6,), dtype="int32")
    values = layers.Embedding(20, 16, mask_zero=True)(words)
    attended = layers.MultiHeadAttention(2, 8, dropout=0.2)(values, values)
    values = layers.LayerNormalization()(layers.Add()([values, attended]))
    values = layers.Dense(16, activation="gelu")(values)
    return keras.Model(words, layers.Dense(3)(layers.LSTM(8, return_sequences=True, dropout=0.2)(values)))


def application() -> keras.Model:
    """A network of `keras.applications`: convolutions by channel, normalization, dropout."""
    return keras.applications.MobileNet(
        (32, 32, 3), alpha=0.25, weights=None, classes=3, classifier_activation=None
    )


MODELS = {
    "application": application,
    "branching": branching,
    "encoder": encoder,
    "sequential": sequential,
    "subclassed": Subclassed,
}


def data_for(name: str) -> tuple[Any, Any]:
    """Three batches."""
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> Any:
        return random.normal(size=(3 * BATCH, *shape)).astype("float32")

    if name == "branching":
        return [numbers(8), numbers(8)], [numbers(3), numbers(3)]
    if name == "subclassed":
        return numbers(8), {"y": numbers(3)}
    if name == "encoder":
        words = random.integers(1, 20, (3 * BATCH, 6))
        return np.where(np.arange(6) < random.integers(2, 6, (3 * BATCH, 1)), words, 0), numbers(6, 3)
    return numbers(*((32, 32, 3) if name == "application" else (8,))), numbers(3)


def train(name: str, limit: str | None, *, how: str, policy: str = "float32") -> list[np.ndarray]:
    """The losses of three steps and everything that the model holds after them; no limit is plain Keras.

    Args:
        name: The model.
        limit: As in `checkpoint_depth`, or `None` for plain Keras.
        how: `"fit"`, `"eager"`, or `"loop"`: a loop of one's own, not traced.
        policy: The dtype policy.
    """
    keras.utils.set_random_seed(3)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    model: Any = MODELS[name]()
    keras.config.set_dtype_policy(before)
    x, y = data_for(name)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(optimizer, "mse" if name != "branching" else ["mse", "mse"], run_eagerly=how == "eager")
    # A step that makes its variables, as those of the others do, is traced twice.
    if model.built and name != "sequential":
        optimizer.build(model.trainable_variables)
    handle = None if limit is None else checkpoint_depth(model, limit)
    if how == "loop":
        losses = _loop(model, x, y)
    else:
        losses = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history["loss"]
    if handle is not None:
        assert handle.decisions[0].num_segments > 0
        handle.undo()
    return [np.asarray(losses), *(np.asarray(value, np.float64) for value in state_of(model))]


def _loop(model: Any, x: Any, y: Any) -> list[float]:
    losses = []
    for begin in range(0, 3 * BATCH, BATCH):
        inputs, wanted = keras.tree.map_structure(
            lambda each, at=begin: tf.constant(each[at : at + BATCH]), (x, y)
        )
        with tf.GradientTape() as tape:
            found = keras.tree.flatten(model(inputs, training=True))
            errors = zip(found, keras.tree.flatten(wanted), strict=True)
            loss = sum(tf.reduce_mean((one - other) ** 2) for one, other in errors) + sum(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    return losses


def state_of(model: Any) -> list[np.ndarray]:
    """Weights, moving statistics, seeds, and the metrics of layers."""
    metrics = [metric for layer in model._flatten_layers() for metric in layer._metrics]
    return [each.numpy() for each in (*model.variables, *(v for m in metrics for v in m.variables))]
