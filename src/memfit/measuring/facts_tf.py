"""What TensorFlow itself says of its devices. It starts TensorFlow, so it belongs in a fresh process."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from memfit.budgeting import allocator, gpu_tf
from memfit.decoding import encode
from memfit.measuring import device_tf
from memfit.records import DeviceFacts, Meter


def describe_devices() -> list[dict[str, Any]]:
    """One `DeviceFacts` a physical device, as JSON values."""
    limits = gpu_tf.limits_bytes()
    devices = []
    for index, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        details = tf.config.experimental.get_device_details(gpu)
        devices.append(
            DeviceFacts(
                device=f"GPU:{index}",
                description=str(details.get("device_name", "")),
                limit_bytes=limits[index] if index < len(limits) else None,
                meter=Meter.ALLOCATOR,
            )
        )
    meter = Meter.ALLOCATOR if device_tf.has_true_meter() else Meter.PROCESS
    cpu = DeviceFacts(
        device="CPU:0",
        description="host memory",
        limit_bytes=allocator.limit_bytes(os.environ),
        meter=meter,
    )
    return [encode(device) for device in (cpu, *devices)]
