"""memfit trains any Keras model in the memory you have.

Import it before the first TensorFlow op: the CPU then has a true meter of its memory.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memfit.budgeting import allocator

if TYPE_CHECKING:
    from memfit.budgeting.budget import budget
    from memfit.data.lengths import lengths
    from memfit.depth.model_tf import checkpoint_depth
    from memfit.errors import (
        BudgetError,
        LossError,
        MemfitError,
        MemfitWarning,
        OutOfMemoryError,
        RecordError,
        ResumeError,
        SetupError,
        TrialError,
        UnitError,
        UsageError,
    )
    from memfit.estimating.estimate_tf import estimate
    from memfit.guarding.release_tf import release
    from memfit.guarding.watch import watch
    from memfit.measuring.reading import read_memory, reset_peak
    from memfit.measuring.setup import setup
    from memfit.measuring.trial import measure
    from memfit.planning.bucketing_tf import batch_by_length
    from memfit.planning.plan_tf import plan
    from memfit.records import (
        Autopsy,
        Budget,
        Considered,
        DeviceReading,
        Estimate,
        EstimatedPart,
        Facts,
        Growth,
        Incident,
        Leak,
        Lengths,
        Measurement,
        Meter,
        Outcome,
        Plan,
        PlanChange,
        Reading,
        Request,
        Run,
        Session,
        Source,
        Watched,
    )
    from memfit.rnn.dynamic_tf import dynamic_rnn
    from memfit.rnn.everywhere_tf import checkpoint_time_everywhere
    from memfit.rnn.model_tf import checkpoint_time
    from memfit.streaming.stream_tf import stream
    from memfit.training.applying_tf import applied
    from memfit.training.fit_tf import fit
    from memfit.training.resuming import Resume
    from memfit.training.stepping_tf import train_step

__version__ = "0.1.0"

__all__ = [
    "Autopsy",
    "Budget",
    "BudgetError",
    "Considered",
    "DeviceReading",
    "Estimate",
    "EstimatedPart",
    "Facts",
    "Growth",
    "Incident",
    "Leak",
    "Lengths",
    "LossError",
    "Measurement",
    "MemfitError",
    "MemfitWarning",
    "Meter",
    "OutOfMemoryError",
    "Outcome",
    "Plan",
    "PlanChange",
    "Reading",
    "RecordError",
    "Request",
    "Resume",
    "ResumeError",
    "Run",
    "Session",
    "SetupError",
    "Source",
    "TrialError",
    "UnitError",
    "UsageError",
    "Watched",
    "applied",
    "batch_by_length",
    "budget",
    "checkpoint_depth",
    "checkpoint_time",
    "checkpoint_time_everywhere",
    "dynamic_rnn",
    "estimate",
    "fit",
    "lengths",
    "measure",
    "plan",
    "read_memory",
    "release",
    "reset_peak",
    "setup",
    "stream",
    "train_step",
    "watch",
]

_HOMES = {
    "Resume": "memfit.training.resuming",
    "applied": "memfit.training.applying_tf",
    "batch_by_length": "memfit.planning.bucketing_tf",
    "budget": "memfit.budgeting.budget",
    "checkpoint_depth": "memfit.depth.model_tf",
    "checkpoint_time": "memfit.rnn.model_tf",
    "checkpoint_time_everywhere": "memfit.rnn.everywhere_tf",
    "dynamic_rnn": "memfit.rnn.dynamic_tf",
    "estimate": "memfit.estimating.estimate_tf",
    "fit": "memfit.training.fit_tf",
    "lengths": "memfit.data.lengths",
    "measure": "memfit.measuring.trial",
    "plan": "memfit.planning.plan_tf",
    "read_memory": "memfit.measuring.reading",
    "release": "memfit.guarding.release_tf",
    "reset_peak": "memfit.measuring.reading",
    "setup": "memfit.measuring.setup",
    "stream": "memfit.streaming.stream_tf",
    "train_step": "memfit.training.stepping_tf",
    "watch": "memfit.guarding.watch",
}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used, so that importing memfit stays quick."""
    if name not in __all__:
        raise AttributeError(f"module 'memfit' has no attribute {name!r}")
    home = _HOMES.get(name)
    if home is None:
        home = "memfit.errors" if name.endswith(("Error", "Warning")) else "memfit.records"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


allocator.turn_on(os.environ)
