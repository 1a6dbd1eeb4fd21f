"""One region for the whole limit of the CPU's allocator, as a GPU has, so that the meter is exact.

Left alone, the allocator takes regions of 2, 4, 8, ... MiB as it grows. A tensor that does not fit the last
one gets a region of its own and, since a chunk is only split if half of it or 128 MiB would be left, holds
all of it: 50 MiB count as 64, and what is wasted is missed under a tight limit. One untouched region from
the start costs no memory but its index (8 bytes for every 256) and has neither flaw.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from memfit.budgeting import allocator, machine
from memfit.units import MIB


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


def take_one_region_when_started(limit_bytes: int) -> None:
    """Makes the meter exact under a limit, if the limit is one for which that is worth its price."""
    if limit_bytes <= min(allocator.ONE_REGION_LIMIT_BYTES, machine.total_bytes()):
        when_started(lambda: take_one_region(limit_bytes))


def take_one_region(limit_bytes: int) -> None:
    """Makes the allocator of `CPU:0` take all that its limit leaves it, at once.

    It must be untouched, and its limit `allocator.FIRST_REGION_BYTES` above `limit_bytes`: this call's own
    small tensors, and TensorFlow's later, live in that first region.
    """
    with tf.device("CPU:0"):
        # Uninitialised: nothing is written, so the kernel gives no pages for it. The allocator takes
        # regions in powers of two, so a little less than all makes it take all.
        tf.raw_ops.Empty(shape=[limit_bytes // MIB, MIB], dtype=tf.uint8, init=False)
    tf.config.experimental.reset_memory_stats("CPU:0")
