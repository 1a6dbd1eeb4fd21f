"""The counters of a run while it lasts. What was done counts once: a step that was undone is not a step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from memfit.records import Incident, Leak, Outcome, Plan, PlanChange, Request, Run


@dataclass(slots=True, kw_only=True)
class Journal:
    """What a run has done so far.

    Attributes:
        epoch: The epoch that is under way, from 0.
        num_steps: Steps that were made.
        num_samples: Examples that they saw.
        peak_bytes: The peak of each epoch that has ended.
        incidents: What went wrong.
        plan_changes: Which plans followed the first.
        started_seconds: When it began, on the clock of `time.perf_counter`.
    """

    epoch: int = 0
    num_steps: int = 0
    num_samples: int = 0
    peak_bytes: list[int | None] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    plan_changes: list[PlanChange] = field(default_factory=list)
    started_seconds: float = field(default_factory=time.perf_counter)

    def note(
        self,
        *,
        where: str,
        what: str,
        action: str,
        request: Request | None = None,
        peak_bytes: int | None = None,
    ) -> Incident:
        """Records an incident at the step that is under way."""
        incident = Incident(
            step=self.num_steps,
            epoch=self.epoch,
            where=where,
            what=what,
            action=action,
            request=request,
            peak_bytes=peak_bytes,
        )
        self.incidents.append(incident)
        return incident

    def change(self, plan: Plan) -> None:
        """Records that another plan holds from the next step to be made on."""
        self.plan_changes.append(PlanChange(step=self.num_steps, plan=plan))

    def go_on_from(self, run: Run) -> None:
        """Counts on from a run that was cut off."""
        self.num_steps = run.num_steps
        self.num_samples = run.num_samples
        self.peak_bytes = list(run.peak_bytes)
        self.incidents = list(run.incidents)
        self.plan_changes = list(run.plan_changes)
        self.started_seconds = time.perf_counter() - run.seconds

    def close(
        self, plan: Plan, outcome: Outcome, history: Any = None, *, leaks: tuple[Leak, ...] = ()
    ) -> Run:
        """The record of the run."""
        return Run(
            plan=plan,
            outcome=outcome,
            num_steps=self.num_steps,
            num_samples=self.num_samples,
            seconds=time.perf_counter() - self.started_seconds,
            peak_bytes=tuple(self.peak_bytes),
            incidents=tuple(self.incidents),
            plan_changes=tuple(self.plan_changes),
            leaks=leaks,
            history=history,
        )
