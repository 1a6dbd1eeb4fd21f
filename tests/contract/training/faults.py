"""An out-of-memory at a chosen place of a training step: TensorFlow's own error, raised by a real op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

MESSAGE = "OOM when allocating tensor with shape[64,64] and type float on /job:localhost/device:CPU:0"


@dataclass
class Fault:
    """Raises once at a place, at its `countdown`-th op from when it was armed on."""

    place: str = ""
    countdown: int = 0
    num_raised: int = 0

    def arm(self, place: str, countdown: int = 1) -> None:
        self.place, self.countdown, self.num_raised = place, countdown, 0

    def pass_through(self, place: str, values: Any) -> Any:
        """`values`, by way of an op that may fail; TensorFlow makes ResourceExhaustedError of it."""

        def check(array: Any) -> Any:
            if place == self.place and self.countdown > 0:
                self.countdown -= 1
                if self.countdown == 0:
                    self.num_raised += 1
                    raise MemoryError(MESSAGE)
            return array

        result = tf.numpy_function(check, [values], values.dtype)
        result.set_shape(values.shape)
        return result


FAULT = Fault()


class Fragile(layers.Layer):
    """Lets everything through, forward and backward, in training, evaluation and prediction."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return FAULT.pass_through("evaluation", FAULT.pass_through("prediction", inputs))

        @tf.custom_gradient
        def both_ways(values: Any) -> Any:
            return FAULT.pass_through("forward", values), lambda up: FAULT.pass_through("backward", up)

        return both_ways(inputs)


class FragileAdam(keras.optimizers.Adam):
    """Fails after the slots of a variable were written and before the variable is."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        before = tf.identity(variable)
        super().update_step(gradient, variable, learning_rate)
        with tf.control_dependencies([tf.convert_to_tensor(variable)]):
            FAULT.pass_through("optimizer", tf.reduce_sum(before))


class FragileMean(keras.metrics.MeanMetricWrapper):
    def __init__(self) -> None:
        super().__init__(keras.losses.mean_absolute_error, name="fragile")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        super().update_state(y_true, y_pred, sample_weight)
        FAULT.pass_through("metrics", tf.convert_to_tensor(self.total.value))


def make_model() -> Any:
    """A model with all that a step may touch: slots, loss scale, seeds, metrics, statistics."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8, "tanh"),
            layers.BatchNormalization(),
            layers.Dropout(0.4),
            Fragile(),
            layers.GaussianNoise(0.1),
            layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(FragileAdam(0.01), dynamic_growth_steps=3)
    model.compile(optimizer, "mse", metrics=[FragileMean()])
    return model


def make_data() -> tuple[Any, Any]:
    random = np.random.default_rng(4)
    return random.normal(size=(24, 4)).astype("float32"), random.normal(size=(24, 1)).astype("float32")


def everything(model: Any) -> list[Any]:
    """All variables that training may change."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [variable.numpy() for variable in variables]
