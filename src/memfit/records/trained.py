"""What happened in a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from memfit.records.base import Record
from memfit.records.guarded import Leak
from memfit.records.measured import Outcome, Request
from memfit.records.planned import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(Record):
    """Something that went wrong in a run, and what was done about it.

    Attributes:
        step: The step of the run, from 0; that batch was run again if the step was rolled back.
        epoch: The epoch, from 0.
        where: `"training"`, `"evaluation"` or `"prediction"`.
        what: What happened, in a sentence.
        action: What was done, in a sentence.
        request: The allocation that failed, as far as TensorFlow told; `None` where none failed.
        peak_bytes: The peak that crossed the budget, or `None` where that was not it.
    """

    step: int
    epoch: int
    where: str
    what: str
    action: str
    request: Request | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange(Record):
    """From which step on another plan held.

    Attributes:
        step: The first step under the plan, from 0.
        plan: The plan.
    """

    step: int
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Record):
    """What `memfit.fit` did.

    Attributes:
        plan: The plan at the end.
        outcome: How it ended.
        num_steps: Optimizer steps that were made. A step that was rolled back and run again counts once.
        num_samples: Examples that those steps saw.
        seconds: Wall-clock time.
        peak_bytes: The peak of the fullest device in each epoch; `None` where no true meter tells.
        incidents: What went wrong, in order.
        plan_changes: Which plans followed the first, in order.
        leaks: What made memory grow, the largest first.
        history: Keras's `History`; in a file, its dict.
    """

    plan: Plan
    outcome: Outcome
    num_steps: int
    num_samples: int
    seconds: float
    peak_bytes: tuple[int | None, ...] = ()
    incidents: tuple[Incident, ...] = ()
    plan_changes: tuple[PlanChange, ...] = ()
    leaks: tuple[Leak, ...] = ()
    history: Any = None

    def to_dict(self) -> dict[str, Any]:
        """This record as JSON values; the history as numbers by name."""
        logs = getattr(self.history, "history", self.history)
        if isinstance(logs, dict):
            logs = {name: [_number(value) for value in values] for name, values in logs.items()}
        return Record.to_dict(replace(self, history=logs))


def _number(value: Any) -> Any:
    """A number of Keras's or numpy's as a Python number; anything else as text."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
