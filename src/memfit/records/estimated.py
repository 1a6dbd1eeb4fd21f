"""What a step will take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memfit.records.base import Record


class Source(StrEnum):
    """Where an estimated number comes from."""

    MEASURED = "measured"
    """Measured at small shapes, and extrapolated."""
    DERIVED = "derived"
    """Computed from shapes and types."""
    ASSUMED = "assumed"
    """Neither: what is usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedPart(Record):
    """A part of what will be needed.

    Attributes:
        name: What it is, such as `"gradients"`, or a layer's name.
        num_bytes: Its bytes.
        source: Where the number comes from.
    """

    name: str
    num_bytes: int
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Record):
    """What a training step will take, whether or not it fits.

    Attributes:
        batch_size: Examples in the step.
        length: Time steps of its inputs, or `None` where they have no free length.
        device: The device, such as `"CPU:0"`.
        peak_bytes: The most bytes of device memory that the step will hold, weights and all.
        low_bytes: The peak is hardly below this.
        high_bytes: The peak is hardly above this: a limit to run under.
        parts: What is held at the peak. The parts add up to `peak_bytes`.
        layers: The activations among them by layer, largest first. They add up to that part.
        validation_peak_bytes: The same peak for a validation step, or `None` where it was not asked for.
        validation_high_bytes: Its upper bound, or `None`.
        host_bytes: What the data pipeline will hold in host memory beside the step.
        host_parts: Of what that is made.
        step_seconds: What the step will take, roughly: extrapolated from small steps; `None` if unknown.
        num_parameters: The parameters of the model.
        probes: The shapes that were measured, in words.
        notes: What to know about these numbers, a sentence each.
    """

    batch_size: int
    length: int | None
    device: str
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    parts: tuple[EstimatedPart, ...]
    layers: tuple[EstimatedPart, ...] = ()
    validation_peak_bytes: int | None = None
    validation_high_bytes: int | None = None
    host_bytes: int = 0
    host_parts: tuple[EstimatedPart, ...] = ()
    step_seconds: float | None = None
    num_parameters: int
    probes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
