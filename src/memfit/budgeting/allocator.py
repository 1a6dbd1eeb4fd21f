"""TensorFlow's CPU allocator, as the environment tells it: which one, and up to where.

On the CPU, TensorFlow can use the same best-fit allocator that GPUs have. It counts every byte and
has a hard limit, so that the CPU has a true meter and a real out-of-memory. TensorFlow reads some
variables when its first op runs; this file is the only one that knows their names. It never loads
TensorFlow.
"""

from __future__ import annotations

import warnings
from collections.abc import MutableMapping
from typing import Final

from memfit.budgeting import machine
from memfit.errors import MemfitWarning, UnitError
from memfit.units import MIB, format_bytes

BUDGET: Final = "MEMFIT_BUDGET"
CHOICE: Final = "MEMFIT_CPU_ALLOCATOR"
USE_BFC: Final = "TF_CPU_ALLOCATOR_USE_BFC"
LIMIT_MIB: Final = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
ONEDNN: Final = "TF_ENABLE_ONEDNN_OPTS"
THREADS: Final = "TF_NUM_INTEROP_THREADS"

# The allocator takes regions that double in size and are only touched when used. A wall this far above the
# machine's memory lets it grow as freely as malloc would; TensorFlow's own wall stands at 64 GiB.
WALL_OVER_MEMORY: Final = 4

# The allocator's first region is this large and takes in TensorFlow's many small tensors.
FIRST_REGION_BYTES: Final = 2 * MIB

# An op that waits for memory keeps its thread. TensorFlow has as many threads for ops as there are cores:
# when all of them wait, none is left to run the op that would give memory back, and 10 s later they fail.
# One to spare helps most; with these few, half as many runs near their limit failed as with one.
SPARE_THREADS: Final = 4

Environment = MutableMapping[str, str]


def turn_on(environment: Environment) -> None:
    """Asks for the true meter, without a limit that was not there, unless the user chose otherwise.

    Takes effect if TensorFlow has not run an op yet. `MEMFIT_CPU_ALLOCATOR=default` leaves TensorFlow
    as it is, and whatever the user set for TensorFlow itself is kept.
    """
    choice = environment.get(CHOICE, "bfc")
    if choice not in ("bfc", "default"):
        warnings.warn(
            f"{CHOICE} is bfc or default. Received: {choice!r}, taken as bfc.", MemfitWarning, stacklevel=2
        )
    if choice == "default":
        return
    environment.setdefault(USE_BFC, "true")
    wall_bytes = WALL_OVER_MEMORY * machine.total_bytes()
    environment.setdefault(LIMIT_MIB, str(wall_bytes // MIB))


def set_limit(environment: Environment, limit_bytes: int) -> None:
    """Makes `limit_bytes`, in whole MiB, the hard limit of the CPU's allocator, beside its first region.

    Under a limit, ops wait for memory; so there are some threads more than cores, unless the user said how
    many.

    Args:
        environment: The environment to write to, of this process or of a child.
        limit_bytes: The limit in bytes.
    """
    if limit_bytes < MIB:
        raise UnitError(
            f"a device limit of {format_bytes(limit_bytes)} is too small: TensorFlow's CPU allocator "
            "takes whole MiB. The smallest limit is 1MiB."
        )
    environment[BUDGET] = str(limit_bytes)
    environment[USE_BFC] = "true"
    environment[LIMIT_MIB] = str((limit_bytes + FIRST_REGION_BYTES) // MIB)
    environment.setdefault(THREADS, str(machine.num_cores() + SPARE_THREADS))


def is_on(environment: Environment) -> bool:
    """Whether the environment asks for the allocator with the true meter."""
    return environment.get(USE_BFC, "").lower() in ("true", "1")


def limit_bytes(environment: Environment) -> int | None:
    """The allocator's limit, or `None` where it limits nothing that the machine does not."""
    if not is_on(environment):
        return None
    try:
        limit = int(environment[LIMIT_MIB]) * MIB
    except (KeyError, ValueError):
        return None  # TensorFlow then takes its own wall.
    return limit if 0 < limit < machine.total_bytes() else None
