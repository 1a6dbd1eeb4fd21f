"""Training on two replicas, in a process of its own: devices are set up before TensorFlow starts."""

from __future__ import annotations

from typing import Any


def compare_replicas() -> float:
    """How far weights differ after three steps of `fit` on two replicas, plain and segmented."""
    import keras
    import numpy as np
    import tensorflow as tf

    import memfit

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    x = np.random.default_rng(0).normal(size=(8, 40, 3)).astype("float32")
    y = x.sum(axis=(1, 2))[:, None]

    def trained(is_segmented: bool) -> list[Any]:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            keras.utils.set_random_seed(1)
            layers = [keras.layers.LSTM(4, return_sequences=True), keras.layers.GRU(4), keras.layers.Dense(1)]
            model = keras.Sequential([keras.Input((None, 3)), *layers])
            model.compile(keras.optimizers.SGD(0.1), "mse")
            if is_segmented:
                memfit.checkpoint_time(model, 7)
        model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
        return list(model.get_weights())

    plain, segmented = trained(False), trained(True)
    return max(float(np.abs(one - other).max()) for one, other in zip(plain, segmented, strict=True))
