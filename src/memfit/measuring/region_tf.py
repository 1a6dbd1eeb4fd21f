"""One large region for the CPU's allocator from the start, as a GPU has, so that the meter is exact.

Left alone, the allocator takes regions of 2, 4, 8, ... MiB as it grows. A tensor that does not fit the last
one gets a region of its own and, since a chunk is only split if half of it or 128 MiB would be left, holds
all of it: 150 MiB count as 256, and what is wasted is missed under a tight limit. One untouched region from
the start costs no memory but its index (8 bytes for every 256) and has neither flaw.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from memfit.budgeting import allocator, machine
from memfit.units import GIB, MIB

# Without a limit: large enough for most measurements, its index is 32 MiB. Whatever comes after is larger.
UNLIMITED_REGION_BYTES: Final = GIB
# Under a limit above this the index would weigh more than the 128 MiB that a chunk may waste.
LARGEST_REGION_BYTES: Final = 4 * GIB


def when_started(callback: Callable[[], None]) -> None:
    """Calls `callback` as soon as TensorFlow has set up its devices, before the first op.

    TensorFlow has no public way to be told: the private name is used here only.
    """
    plain = tf_context.Context.ensure_initialized

    def ensure_initialized(self: tf_context.Context) -> None:
        plain(self)
        if tf_context.Context.ensure_initialized is ensure_initialized:
            tf_context.Context.ensure_initialized = plain
            callback()

    tf_context.Context.ensure_initialized = ensure_initialized


def take_region_when_started(limit_bytes: int | None, *, unseen: AbstractContextManager[object]) -> None:
    """Makes the meter exact from the start.

    Args:
        limit_bytes: The limit that was set with `allocator.set_limit`, or `None` for no limit.
        unseen: Entered meanwhile, to keep other threads from reading the meter: it shows the whole region.
    """
    num_bytes = UNLIMITED_REGION_BYTES if limit_bytes is None else limit_bytes

    def take() -> None:
        # Asked only now, since a script may have set a limit of its own.
        allowed_bytes = allocator.limit_bytes(os.environ)
        if allowed_bytes is None:
            region_bytes = num_bytes
        else:
            region_bytes = min(num_bytes, allowed_bytes - allocator.FIRST_REGION_BYTES)
        if region_bytes < MIB or not allocator.is_on(os.environ) or not tf.executing_eagerly():
            return
        with unseen:
            take_region(region_bytes)

    if num_bytes <= min(LARGEST_REGION_BYTES, machine.total_bytes()):
        when_started(take)


def take_region(num_bytes: int) -> None:
    """Makes the allocator of `CPU:0`, which must be untouched, take a region of `num_bytes` at once.

    Under a limit that must leave `allocator.FIRST_REGION_BYTES` beside it: this call's own small tensors,
    and TensorFlow's later, live in the first region.
    """
    with tf.device("CPU:0"):
        # Uninitialised: nothing is written, so the kernel gives no pages for it.
        tf.raw_ops.Empty(shape=[num_bytes // MIB, MIB], dtype=tf.uint8, init=False)
    tf.config.experimental.reset_memory_stats("CPU:0")
