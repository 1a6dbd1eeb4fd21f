"""What a resumed run must know, decided without TensorFlow.

How often a checkpoint is due (`Resume`, `Pace`), which batch comes next (`Position`, `Lengths`), and whether
the checkpoint in a folder belongs to this run (`Identity`, `check_identity`). Files are left to `store`, the
model and the data to `resuming_tf`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Final

from memfit.errors import ResumeError, UsageError

DEFAULT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a run keeps its checkpoints, and how often it writes one.

    A checkpoint is due as soon as one of the two has passed since the last; with neither, once a minute. One
    more is written before the first step and one after the last.

    Args:
        folder: Of this run alone; made if it is missing.
        every_steps: Training steps from one checkpoint to the next.
        every_seconds: Seconds from the end of one checkpoint to the beginning of the next.

    Example:
    >>> Resume("runs/first", every_steps=500).every_steps
    500
    """

    folder: str | Path
    _: KW_ONLY
    every_steps: int | None = None
    every_seconds: float | None = None

    def __post_init__(self) -> None:
        if not str(self.folder):
            raise UsageError("resume= is an empty text, but it must name a folder: resume='runs/first'.")
        for name, value in (("every_steps", self.every_steps), ("every_seconds", self.every_seconds)):
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be above zero. Received: {name}={value!r}.")

    @classmethod
    def of(cls, resume: str | Path | Resume) -> Resume:
        """`resume=` as the user gave it: a folder, or a folder with how often."""
        return resume if isinstance(resume, Resume) else cls(resume)


class Pace:
    """When the next checkpoint is due."""

    def __init__(self, resume: Resume, now_seconds: float) -> None:
        self._every_steps = resume.every_steps
        self._every_seconds = resume.every_seconds
        if self._every_steps is None and self._every_seconds is None:
            self._every_seconds = DEFAULT_SECONDS
        self.written(0, now_seconds)

    def written(self, num_steps: int, now_seconds: float) -> None:
        """Says that a checkpoint was written (or tried) after `num_steps` of the run, until `now_seconds`."""
        self._last_steps, self._last_seconds = num_steps, now_seconds

    def is_due(self, num_steps: int, now_seconds: float) -> bool:
        """Whether a checkpoint is due after `num_steps` of the run, at `now_seconds`."""
        is_due_by_steps = self._every_steps is not None and num_steps - self._last_steps >= self._every_steps
        is_due_by_time = (
            self._every_seconds is not None and now_seconds - self._last_seconds >= self._every_seconds
        )
        return is_due_by_steps or is_due_by_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Which batch comes next.

    A pass is one way through the data. It is an epoch, unless `steps_per_epoch` cuts passes into epochs.

    Attributes:
        epoch: The epoch under way, from 0.
        step: Steps done in it.
        pass_index: The pass under way, from 0.
        offset: Batches of this pass that were used.
        num_steps: Steps done in the whole run.
        num_samples: Samples seen in the whole run, or `None` where the data does not say.
    """

    epoch: int
    step: int = 0
    pass_index: int = 0
    offset: int = 0
    num_steps: int = 0
    num_samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many batches there are, and how they make epochs.

    Attributes:
        num_batches: In a pass; `None` where it is endless or not known.
        steps_per_epoch: As given to `fit`, or `None`.
        steps_per_execution: As given to `compile`.
        batch_size: Samples in a full batch, or `None` where only the data knows.
        num_samples: Samples in a pass, or `None` where only the data knows.
    """

    num_batches: int | None
    steps_per_epoch: int | None = None
    steps_per_execution: int = 1
    batch_size: int | None = None
    num_samples: int | None = None

    def epoch_steps(self, position: Position) -> int | None:
        """Steps of the epoch under way, or `None` where only the end of the data will tell.

        As in Keras, an epoch of `steps_per_epoch` ends early where a pass ends.
        """
        if self.steps_per_epoch is None or self.num_batches is None:
            return self.steps_per_epoch or self.num_batches
        return min(self.steps_per_epoch, self.num_batches - (position.offset - position.step))

    def after_call(self, position: Position) -> Position:
        """The position after one call of the train function."""
        num_used = self.steps_per_execution
        if self.num_batches is not None:
            num_used = min(num_used, self.num_batches - position.offset)
        offset = position.offset + num_used
        num_samples = position.num_samples
        if num_samples is not None:
            num_samples += self._samples_until(offset) - self._samples_until(position.offset)
        return replace(
            position,
            step=position.step + num_used,
            offset=offset,
            num_steps=position.num_steps + num_used,
            num_samples=num_samples,
        )

    def after_epoch(self, position: Position) -> Position:
        """The position at the beginning of the next epoch."""
        is_at_end = self.num_batches is not None and position.offset >= self.num_batches
        is_pass_over = self.steps_per_epoch is None or is_at_end
        following = replace(position, epoch=position.epoch + 1, step=0)
        return replace(following, pass_index=position.pass_index + 1, offset=0) if is_pass_over else following

    def _samples_until(self, offset: int) -> int:
        assert self.batch_size is not None
        assert self.num_samples is not None
        return min(offset * self.batch_size, self.num_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableNote:
    """A variable in a checkpoint: its name without Keras's running numbers, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, path: str, shape: tuple[int, ...], dtype: str) -> VariableNote:
        """The note of the variable at `path`, such as `"sequential_1/dense_3/kernel"`.

        Example:
        >>> VariableNote.of("sequential_1/dense_3/kernel", (2, 4), "float32").name
        'sequential/dense/kernel'
        """
        return cls(name=re.sub(r"_\d+(?=[_/]|$)", "", path), shape=shape, dtype=dtype)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What must be the same for a run to go on exactly.

    Attributes:
        version: Of memfit.
        variables: Of the model, its metrics and its optimizer, in Keras's order.
        arguments: Of `fit` and `compile`, those that decide which samples a step gets.
        data: What is known of the data without reading all of it.
    """

    version: str
    variables: tuple[VariableNote, ...]
    arguments: dict[str, Any]
    data: dict[str, Any]


def check_run(
    kept: Identity, arguments: Mapping[str, Any], data: Mapping[str, Any], version: str, folder: Path
) -> None:
    """Raises a `ResumeError` where a checkpoint is of another memfit, or of other arguments or data."""
    if kept.version != version:
        raise ResumeError(
            f"{folder} was written by memfit {kept.version}, and this is memfit {version}: the rest of the "
            f"run might differ from its beginning. To finish it: pip install memfit=={kept.version}. To "
            "begin anew: another folder in resume=."
        )
    for name, before in kept.arguments.items():
        if arguments.get(name) != before:
            raise ResumeError(
                f"{folder} holds a run with {name}={before!r}, but received {name}={arguments.get(name)!r}. "
                f"Pass {name}={before!r} to go on with it, or another folder in resume= to begin anew."
            )
    for name, before in kept.data.items():
        if data.get(name) != before:
            raise ResumeError(
                f"{folder} holds a run on other data: {name} was {before!r} and is now {data.get(name)!r}. "
                "Pass the same data to go on with it, or another folder in resume= to begin anew."
            )


def check_complete(at_first: tuple[VariableNote, ...], now: tuple[VariableNote, ...]) -> None:
    """Raises a `UsageError` where a training step has made variables that a resumed run would not know of."""
    if at_first == now:
        return
    late = [str(each) for each in now if each not in at_first] or ["some"]
    raise UsageError(
        f"the training step made variables that were not there before it ({late[0]}), and a resumed run "
        "could not put them back in time. Build all layers, metrics and optimizers before the run: "
        "model.build(...), optimizer.build(model.trainable_variables)."
    )


def check_variables(kept: tuple[VariableNote, ...], found: tuple[VariableNote, ...], folder: Path) -> None:
    """Raises a `ResumeError` that names the first variable that differs."""
    if kept == found:
        return
    pairs = zip(kept, found, strict=False)
    differing = next((f"{a} there, {b} here" for a, b in pairs if a != b), None)
    what = differing or f"{len(kept)} variables there, {len(found)} here"
    raise ResumeError(
        f"{folder} holds a run of another model or optimizer: {what}. Nothing was changed. Build and compile "
        "the model as it was to go on with it, or pass another folder in resume= to begin anew."
    )
