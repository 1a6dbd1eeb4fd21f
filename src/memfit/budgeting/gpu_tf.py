"""The limits that a user gave TensorFlow's GPUs, by TensorFlow's public API.

No GPU has run this code here.
"""

from __future__ import annotations

import tensorflow as tf

from memfit.units import MIB


def limits_bytes() -> tuple[int, ...]:
    """The memory limit of each logical GPU that was given one, in bytes."""
    return tuple(
        int(logical.memory_limit) * MIB
        for gpu in tf.config.list_physical_devices("GPU")
        for logical in tf.config.get_logical_device_configuration(gpu) or ()
        if logical.memory_limit is not None
    )
