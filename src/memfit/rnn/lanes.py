"""Into how many lanes a batch is cut, and whether loops are compiled. The machine comes in as arguments."""

from __future__ import annotations

import os

ROWS_OF_A_LANE = 8
"""With fewer rows a product of a step reads weights more than it computes."""

LANES_OF_AN_UNKNOWN_BATCH = 4
"""A batch size that is not known while tracing is taken for a usual one."""


COMPILED_FROM = 64
"""Steps from which on loops are compiled. An assumption: nobody measured where compiling begins to pay."""


def is_worth_compiling(length: int | None) -> bool:
    """Whether the loops over a sequence should be compiled; one of unknown length is taken for a long one.

    Example:
    >>> is_worth_compiling(20), is_worth_compiling(400), is_worth_compiling(None)
    (False, True, True)
    """
    return length is None or length >= COMPILED_FROM


def num_lanes_for(batch_size: int | None, num_cores: int) -> int:
    """One lane a core, as long as every lane has enough rows.

    Example:
    >>> num_lanes_for(32, num_cores=2), num_lanes_for(9, num_cores=8), num_lanes_for(None, num_cores=64)
    (2, 1, 4)
    """
    if batch_size is None:
        return max(1, min(num_cores, LANES_OF_AN_UNKNOWN_BATCH))
    return max(1, min(num_cores, batch_size // ROWS_OF_A_LANE))


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))
