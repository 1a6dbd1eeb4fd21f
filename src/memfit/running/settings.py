"""How a script is run: what was asked for, in one value that goes into the script's process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memfit.records import Measurement, Outcome
from memfit.units import MIB, format_bytes

# On the CPU with oneDNN a failed request inside a matrix product is a crash, so the allocator's wall stands
# above the line that training is planned to keep.
WALL_OVER_BUDGET: Final = 1.25
# A script that died is started again with so much of what it had.
TIGHTER: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a script is run.

    Attributes:
        budget_bytes: What the device may use, or `None` if nobody said.
        host_limit_bytes: What the script and its children may have of the host, or `None`.
        allow: What may be done although it changes the mathematics.
        is_observed: Whether nothing is changed and memfit only watches.
        is_clean: Whether oneDNN is off.
        resume_folder: Where fits keep checkpoints for a restart, or `None`.
        first_budget_bytes: The budget of the first attempt, for a later one: only training is planned more
            tightly then, and what is not planned is to have what it had. `None` for the first attempt, and
            where there was no budget.
        is_restarted: Whether this is not the first attempt.
    """

    budget_bytes: int | None = None
    host_limit_bytes: int | None = None
    allow: tuple[str, ...] = ()
    is_observed: bool = False
    is_clean: bool = False
    resume_folder: str | None = None
    first_budget_bytes: int | None = None
    is_restarted: bool = False

    @property
    def wall_bytes(self) -> int | None:
        """The hard limit of the device's allocator, or `None`.

        Example:
        >>> Settings(budget_bytes=100 * MIB).wall_bytes == 125 * MIB
        True
        >>> Settings(budget_bytes=100 * MIB, is_observed=True).wall_bytes == 100 * MIB
        True
        """
        budget_bytes = self.first_budget_bytes if self.is_restarted else self.budget_bytes
        if budget_bytes is None or self.is_observed or self.is_clean:
            return budget_bytes
        return int(budget_bytes * WALL_OVER_BUDGET)


def tighten(settings: Settings, measurement: Measurement, *, has_fit: bool) -> tuple[Settings, str] | None:
    """How to start a script again that has died, and why, in words; `None` if that would not help.

    A device that ran out of memory gets a smaller budget, and so does a host, since on the CPU tensors are in
    host memory. A process that someone killed is started again as it was. Without a `fit` there is no plan to
    be tighter, and a device would run out of memory again.

    Args:
        settings: How it was run.
        measurement: How it ended.
        has_fit: Whether it came to train with `model.fit`.
    """
    is_out_of_memory = measurement.outcome.is_out_of_memory
    is_killed = measurement.outcome is Outcome.KILLED and measurement.exit_code == -9
    is_hopeless = measurement.outcome is Outcome.DEVICE_OUT_OF_MEMORY and (
        settings.is_observed or not has_fit
    )
    if (not is_out_of_memory and not is_killed) or is_hopeless:
        return None
    first_bytes = settings.first_budget_bytes if settings.is_restarted else settings.budget_bytes
    again = replace(settings, is_restarted=True, first_budget_bytes=first_bytes)
    used = [each for each in (settings.budget_bytes, measurement.peak_bytes) if each is not None]
    if is_killed or not used:
        return again, f"{measurement.outcome.value}: {measurement.reason} It is started again as it was."
    budget_bytes = max(MIB, int(min(used) * TIGHTER))
    before = "" if settings.budget_bytes is None else f" instead of {format_bytes(settings.budget_bytes)}"
    words = (
        f"{measurement.outcome.value}: {measurement.reason} It is started again with a budget of "
        f"{format_bytes(budget_bytes)}{before}."
    )
    return replace(again, budget_bytes=budget_bytes), words
