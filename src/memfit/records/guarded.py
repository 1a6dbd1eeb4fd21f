"""What was watched: how memory grew, and what makes it grow."""

from __future__ import annotations

from dataclasses import dataclass

from memfit.records.base import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(Record):
    """How one series of readings went on after its warm-up.

    Attributes:
        series: What was read: `"CPU:0"` or another device, `"host"`, `"traces"`, `"graphs"`, `"gradients"`,
            `"python"`.
        slope: The growth per step: bytes for devices and the host, a number for the rest; 0 where it is too
            small to speak of.
        low: The lower end of the slope's interval, 99% on one side.
        high: The upper end.
        confidence: How sure it is that the series rises at all, from 0 to 1.
        is_growing: Whether this is a leak: sure, larger than the noise, and still going on.
        num_readings: Readings after the warm-up.
        last: The last reading.
        room: What is left until memory runs out, in bytes, or `None` where bytes are not counted.
    """

    series: str
    slope: float
    low: float
    high: float
    confidence: float
    is_growing: bool
    num_readings: int
    last: int
    room: int | None = None

    def num_left(self) -> int | None:
        """In how many steps memory runs out at this rate, or `None` if it does not.

        Example:
        >>> Growth(series="host", slope=10.0, low=9.0, high=11.0, confidence=1.0, is_growing=True,
        ...        num_readings=20, last=100, room=2_300).num_left()
        230
        """
        if self.room is None or not self.is_growing or self.slope <= 0:
            return None
        return int(self.room / self.slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak(Record):
    """Something that makes memory grow, by name and place, with what to do about it.

    Attributes:
        kind: `"kept"`, `"retraced"`, `"rebuilt_function"`, `"rebuilt_model"`, `"rebuilt_dataset"`,
            `"lengths"`, `"eager_call"`, `"pipeline"`, `"objects"` or `"native"`.
        name: The variable, attribute, function or type to look at; empty where there is none.
        file: The source file, as short as it can be; `None` where no line is to blame.
        line: The line in it.
        num: How many there are now: tensors, traces, models.
        num_bytes: What they hold, or `None` where nobody can tell.
        growth: How many more come with each step.
        growth_per_epoch: How many more come with each epoch, or `None` where no epochs were seen.
        sentence: What happens, for a reader.
        fix: What to change.
    """

    kind: str
    name: str
    file: str | None
    line: int | None
    num: int
    num_bytes: int | None
    growth: float | None
    growth_per_epoch: float | None
    sentence: str
    fix: str

    def __str__(self) -> str:
        """The sentence and the fix."""
        return f"{self.sentence} {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Record):
    """What `memfit.watch` saw.

    Attributes:
        num_steps: Steps that were seen.
        num_epochs: Epochs that were seen, 0 without Keras's `fit`.
        num_readings: How often the meters were read.
        unit: What the slopes are per: `"step"`, or `"second"` where no steps could be seen.
        seconds: What watching itself took.
        growths: How each series went on.
        leaks: What is to blame, the largest first.
        notes: What could not be watched, and what else to know, a sentence each.
    """

    num_steps: int
    num_epochs: int
    num_readings: int
    unit: str
    seconds: float
    growths: tuple[Growth, ...] = ()
    leaks: tuple[Leak, ...] = ()
    notes: tuple[str, ...] = ()
