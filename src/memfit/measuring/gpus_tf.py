"""Limit and growth of GPU memory, by TensorFlow's public API. No GPU has run this code here."""

from __future__ import annotations

import tensorflow as tf

from memfit.units import MIB


def set_up(limit_bytes: int | None, *, growth: bool) -> None:
    """A limit for every GPU that has none yet or, where `limit_bytes` is `None`, growth.

    Both must come before TensorFlow starts, which the caller has checked.
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        if limit_bytes is None:
            tf.config.experimental.set_memory_growth(gpu, growth)
        elif not tf.config.get_logical_device_configuration(gpu):
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=limit_bytes // MIB)
            tf.config.set_logical_device_configuration(gpu, [limit])
