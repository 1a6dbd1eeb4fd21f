"""Current and peak bytes of each device, and whether the CPU's figures can be trusted.

On a GPU, TensorFlow's allocator counts every byte. On the CPU it does so only if the allocator with the
true meter was asked for before the first op (`import memfit` asks for it). Otherwise the same call still
answers, with figures that leave out every tensor under 256 KiB: wrong, not absent. So this file tests
the meter by weighing tensors that the default allocator does not count, before it believes a word.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Final

import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from memfit.budgeting import allocator
from memfit.errors import MemfitWarning
from memfit.measuring import process
from memfit.records import DeviceReading, Meter

# All below 256 KiB, where the default allocator stops counting, and in no simple ratio to each other.
PROBE_SIZES: Final = (1_024, 25_600, 101_376, 204_800)
PROBE_ATTEMPTS: Final = 20


def has_started() -> bool:
    """Whether TensorFlow has set up its devices, so that its memory can no longer be configured.

    TensorFlow has no public way to ask this without starting: the private name is used here only.
    """
    context = tf_context._context
    return context is not None and context._context_handle is not None


def forget_kernels() -> None:
    """Drops what TensorFlow prepared for operations and functions that ran; it is made again when needed.

    Keras's `clear_session` does the same. Dead functions leave hundreds of KiB there, each; and a function
    that is made ready again may run its operations in another order.
    """
    tf_context.context().clear_kernel_cache()


@cache
def has_true_meter() -> bool:
    """Whether the figures of `CPU:0` count every byte. Starts TensorFlow if it has not started."""
    return weighs_truly(_weigh_on_cpu)


def weighs_truly(weigh: Callable[[int], tuple[int, int] | None]) -> bool:
    """Whether a meter sees small tensors come and go.

    Other threads may allocate in the same moment and spoil a weighing, so each size has several tries.
    They cannot make a meter look true that does not count small tensors: whatever it does count is larger
    than the smaller sizes.

    Args:
        weigh: Makes and drops a tensor of so many bytes, and returns how far the meter rose and fell;
            `None` if the meter does not answer.
    """
    return all(_sees(weigh, size) for size in PROBE_SIZES)


def _sees(weigh: Callable[[int], tuple[int, int] | None], size: int) -> bool:
    for _ in range(PROBE_ATTEMPTS):
        weights = weigh(size)
        if weights is None:
            return False
        # The allocator rounds up to 256 bytes, and may use a free chunk of up to twice the size.
        if all(size <= weight <= 2 * size for weight in weights):
            return True
    return False


def read_figures() -> tuple[DeviceReading, ...]:
    """What each device's allocator says, untested: for the moments in which a test would disturb."""
    return tuple(_read_allocator(name) for name in _device_names())


def read_devices() -> tuple[DeviceReading, ...]:
    """What each device's meter says. Starts TensorFlow if it has not started.

    Where the CPU has no true meter, the process's memory stands in, with a warning, once.
    """
    return tuple(map(_read_device, _device_names()))


def reset_peaks() -> None:
    """Makes each device's peak what is in use now. A stand-in for a meter cannot be reset."""
    for device in _device_names():
        if _meter_of(device) is Meter.ALLOCATOR:
            tf.config.experimental.reset_memory_stats(device)


def _device_names() -> list[str]:
    devices = tf.config.list_logical_devices()
    return [device.name.split("device:")[-1] for device in devices if device.device_type in ("CPU", "GPU")]


def _meter_of(device: str) -> Meter:
    # Logical CPUs share one allocator.
    return Meter.ALLOCATOR if device.startswith("GPU") or has_true_meter() else Meter.PROCESS


def _read_device(device: str) -> DeviceReading:
    if _meter_of(device) is Meter.ALLOCATOR:
        return _read_allocator(device)
    _warn_once()
    return process_stands_in(device)


def process_stands_in(device: str) -> DeviceReading:
    """The process's memory in the place of a device's that has no true meter."""
    return DeviceReading(
        device=device,
        current_bytes=process.resident_bytes(),
        peak_bytes=process.peak_resident_bytes(),
        meter=Meter.PROCESS,
    )


def _read_allocator(device: str) -> DeviceReading:
    figures = tf.config.experimental.get_memory_info(device)
    return DeviceReading(
        device=device,
        current_bytes=figures["current"],
        peak_bytes=figures["peak"],
        meter=Meter.ALLOCATOR,
    )


def _weigh_on_cpu(num_bytes: int) -> tuple[int, int] | None:
    try:
        with tf.device("CPU:0"):
            before = tf.config.experimental.get_memory_info("CPU:0")["current"]
            tensor = tf.fill([num_bytes], tf.constant(1, tf.uint8))
            during = tf.config.experimental.get_memory_info("CPU:0")["current"]
            del tensor
            after = tf.config.experimental.get_memory_info("CPU:0")["current"]
    except ValueError:  # "Allocator stats not available"
        return None
    return during - before, during - after


@cache
def _warn_once() -> None:
    warnings.warn(
        "TensorFlow's default CPU allocator does not count small tensors, so memfit reads the memory of "
        "the process instead, which never falls. For true figures import memfit before the first "
        f"TensorFlow op, and leave {allocator.CHOICE} and {allocator.USE_BFC} unset.",
        MemfitWarning,
        stacklevel=2,
    )
