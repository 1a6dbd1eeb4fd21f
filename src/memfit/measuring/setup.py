"""`memfit.setup`: the limit and the growth of device memory, before TensorFlow starts.

The CPU is set up through the environment, which needs no TensorFlow; GPUs are left to `gpus_tf`.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

from memfit.budgeting import allocator
from memfit.budgeting.budget import budget as find_budget
from memfit.errors import SetupError
from memfit.measuring import notebook
from memfit.records import Budget


def setup(budget: str | int | None = None, *, growth: bool = True, clean: bool = False) -> Budget:
    """Limits device memory and makes the CPU's meter exact, before TensorFlow starts.

    Args:
        budget: The limit on each device, as in `memfit.budget`. `None` sets no limit.
        growth: Without a limit, whether GPUs take memory as it is needed rather than all at once.
        clean: On the CPU, whether an out-of-memory is always an exception and never a segmentation
            fault. That turns oneDNN off, which makes training slower, and must come before
            TensorFlow is imported.

    Returns:
        The `Budget` that now holds.

    Raises:
        SetupError: If TensorFlow has started: its memory cannot be changed any more.

    Example:
    >>> import memfit
    >>> memfit.setup("2GiB").device_bytes  # doctest: +SKIP
    2147483648
    """
    found = find_budget(budget)
    _refuse_if_late(budget, clean=clean)
    if budget is not None:
        allocator.set_limit(os.environ, found.device_bytes)
    if clean:
        os.environ[allocator.ONEDNN] = "0"
    from memfit.measuring import gpus_tf, region_tf

    limit_bytes = None if budget is None else found.device_bytes
    if limit_bytes is not None or allocator.limit_bytes(os.environ) is None:
        region_tf.take_region_when_started(limit_bytes, unseen=nullcontext())
    gpus_tf.set_up(limit_bytes, growth=growth)
    return found


def _refuse_if_late(budget: str | int | None, *, clean: bool) -> None:
    if "tensorflow" not in sys.modules:
        return
    from memfit.measuring import device_tf

    script = sys.argv[0] or "script.py"
    if device_tf.has_started():
        instead = f", or type: memfit run --budget {budget or '2GiB'} {script}"
        if notebook.shell() is not None:
            instead = ": restart the kernel, and call it in the first cell."
        raise SetupError(
            "TensorFlow has already started, so its memory cannot be set up any more. Call memfit.setup() "
            f"before the first TensorFlow op (building a Keras model is one){instead}"
        )
    if clean and os.environ.get(allocator.ONEDNN) != "0":
        raise SetupError(
            "clean=True turns oneDNN off, and TensorFlow has already been imported with it on. Call "
            f"memfit.setup() before importing TensorFlow, or type: memfit run --clean {script}"
        )
