"""The records that cross folders: read this first.

Frozen values, each with JSON both ways. A record says what was measured or decided and, where it
matters, who said so. It decides nothing itself.

| record | says |
|---|---|
| `Budget` | bytes allowed on the device and on the host, and who said so |
| `DeviceReading` | what one device's meter said |
| `Reading` | what all meters said at one moment: devices, process, container |
| `Request` | an allocation that failed: how much, by which op |
| `Measurement` | what one function or script took in a fresh process, and how it ended |
| `Facts` | this machine: devices, allocator, limits, versions |
| `Profile` | what one training step is made of: recurrent parts; parts in depth with bytes and seconds |
| `Setting`, `Effect` | one way to use a strategy, and what that does in bytes and work |
| `Plan`, `Considered` | how a model is trained in less memory, and what else could be done |
| `Incident`, `PlanChange` | what went wrong in a run and what was done; which plan held from when on |
| `Run` | what `memfit.fit` did: steps, samples, incidents, peaks, history |
| `Estimate`, `EstimatedPart` | what a training step will take, of what it is made, and who said so |
| `Lengths`, `LengthBin`, `LengthCut`, `Padding` | how long sequences are, and what padding them costs |

In a file, a record carries its name and the version of its form: `{"memfit": "Budget", "version":
1, ...}`. Fields that this version does not know are passed over, so that an older memfit reads what a
newer one wrote; a missing or malformed field is an error that names it.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from memfit.decoding import FieldError, decode, encode
from memfit.errors import RecordError
from memfit.units import format_bytes, format_seconds

RECORD_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The base of all records: JSON both ways, and files that are never half-written."""

    def to_dict(self) -> dict[str, Any]:
        """This record as JSON values, its name and version first."""
        head = {"memfit": type(self).__name__, "version": RECORD_VERSION}
        return head | {f.name: encode(getattr(self, f.name)) for f in fields(self)}

    def to_json(self) -> str:
        """This record as indented JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, values: Any, *, source: str = "the record") -> Self:
        """The record that `values` describe.

        Args:
            values: What `to_dict` returned. On `Record` itself any kind of record is accepted, on
                a kind only that one.
            source: What to call the values in an error, such as the file's name.

        Raises:
            RecordError: If `values` are no record, another one, or have a broken field.
        """
        name = values.get("memfit") if isinstance(values, dict) else None
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise RecordError(
                f'{source} is not a memfit record: the field "memfit" must be one of '
                f"{', '.join(sorted(_KINDS))}. Received: {name!r}."
            )
        if not issubclass(kind, cls):
            raise RecordError(f"{source} holds a {name}, but a {cls.__name__} is needed.")
        try:
            return decode(kind, values)
        except FieldError as fault:
            raise RecordError(f"{source}: {fault}{_version_hint(values)}") from None

    @classmethod
    def from_json(cls, text: str, *, source: str = "the record") -> Self:
        """The record in a JSON text; errors name the line and column of a fault."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as fault:
            raise RecordError(f"{source} is not JSON: {fault}.") from None
        return cls.from_dict(values, source=source)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes this record to `path`, whole or not at all."""
        target = Path(path)
        try:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            scratch = Path(name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(self.to_json() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                scratch.replace(target)
            finally:
                scratch.unlink(missing_ok=True)
        except OSError as fault:
            raise RecordError(f"cannot write {target}: {fault.strerror or fault}.") from None
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The record in the file at `path`.

        Example:
        >>> Budget.load("missing.json")
        Traceback (most recent call last):
        ...
        memfit.errors.RecordError: cannot read missing.json: No such file or directory.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as fault:
            raise RecordError(f"cannot read {path}: {fault.strerror}.") from None
        except UnicodeDecodeError:
            raise RecordError(f"{path} is not JSON: it is not even text.") from None
        return cls.from_json(text, source=str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Record):
    """How many bytes may be used, and who said so.

    Attributes:
        device_bytes: Bytes allowed on the device that trains. On the CPU that is host memory, too.
        device_source: Who said so, in words: `"the argument '2GiB'"`, `"MEMFIT_BUDGET=2GiB"`.
        host_bytes: Bytes allowed in host memory for all processes of the run.
        host_source: Who said so.
    """

    device_bytes: int
    device_source: str
    host_bytes: int
    host_source: str


class Meter(StrEnum):
    """Where a figure of device memory comes from."""

    ALLOCATOR = "allocator"
    """The device's own allocator counted every byte: true."""
    PROCESS = "process"
    """The memory of the process stands in for it: an upper bound that never falls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading(Record):
    """What one device's meter said.

    Attributes:
        device: The device, such as `"CPU:0"` or `"GPU:1"`.
        current_bytes: Bytes in use now.
        peak_bytes: The most bytes that were in use since the start, or since the last reset.
        meter: Where the two figures come from.
    """

    device: str
    current_bytes: int
    peak_bytes: int
    meter: Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Record):
    """What all meters said at one moment.

    Attributes:
        at_seconds: When, in seconds since the epoch.
        devices: One reading a device; empty while TensorFlow has not started.
        host_bytes: Resident memory of this process.
        host_peak_bytes: The most resident memory this process ever had.
        children_bytes: Resident memory of all its descendants together.
        container_bytes: What the container is charged with, or `None` outside of one.
    """

    at_seconds: float
    devices: tuple[DeviceReading, ...]
    host_bytes: int
    host_peak_bytes: int
    children_bytes: int
    container_bytes: int | None

    def fullest_device(self) -> DeviceReading | None:
        """The device with the highest peak, or `None` where no device was read."""
        return max(self.devices, key=lambda device: device.peak_bytes, default=None)


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    DEVICE_OUT_OF_MEMORY = "device out of memory"
    HOST_OUT_OF_MEMORY = "host out of memory"
    KILLED = "killed"
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory was what ran out."""
        return self in (Outcome.DEVICE_OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """An allocation that failed.

    Attributes:
        num_bytes: How much was asked for, or `None` where TensorFlow did not say.
        op: The op that asked, such as `"MatMul"`, or `None`.
        shape: The shape of the tensor asked for, or `None`.
        device: The device that had no room, or `None`.
    """

    num_bytes: int | None = None
    op: str | None = None
    shape: tuple[int, ...] | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Record):
    """What one function or script took in a fresh process, and how it ended.

    Attributes:
        target: The function or the command line that ran.
        outcome: How it ended.
        reason: The outcome in a sentence; for an error, its text.
        seconds: Wall-clock time of the whole process, its start included.
        exit_code: What the process returned, or minus the signal that ended it.
        peak_bytes: Peak of the fullest device, or `None` where no device was used.
        is_peak_exact: Whether `peak_bytes` was read at the end; otherwise the process died and the
            figure is the last one it wrote, at most a tenth of a second old.
        reading: All meters at the end, or the last they said, or `None` if they never spoke.
        device_limit_bytes: The limit on the device, or `None`.
        host_limit_bytes: The limit on the host, or `None`.
        request: The last allocation that failed, or `None`.
        num_failed_requests: How many allocations failed; a script may survive some.
        value: What the function returned; `None` for a script.
        output: The end of what the process printed, both streams; empty where it was passed through.
    """

    target: str
    outcome: Outcome
    reason: str
    seconds: float
    exit_code: int
    peak_bytes: int | None = None
    is_peak_exact: bool = False
    reading: Reading | None = None
    device_limit_bytes: int | None = None
    host_limit_bytes: int | None = None
    request: Request | None = None
    num_failed_requests: int = 0
    value: Any = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts(Record):
    """A device as TensorFlow sees it.

    Attributes:
        device: Its name, such as `"CPU:0"`.
        description: What it is, such as a GPU's product name; empty where TensorFlow does not say.
        limit_bytes: What its allocator may use, or `None` where nothing limits it.
        meter: Where figures of its memory come from.
    """

    device: str
    description: str
    limit_bytes: int | None
    meter: Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Record):
    """This machine: devices, allocator, limits, versions.

    Attributes:
        versions: Package (and `"python"`, `"linux"`) to version; `"not installed"` where it is missing.
        is_supported: Package to whether memfit supports that version.
        devices: What TensorFlow can train on; empty if it did not start.
        tensorflow_error: Why TensorFlow did not start, or `None`.
        allocator: The CPU allocator in words.
        onednn: Whether oneDNN serves the CPU's ops, in words.
        num_cores: CPU cores this process may use.
        host_total_bytes: The machine's memory.
        host_available_bytes: What could be had now without swapping.
        container_limit_bytes: The container's limit, or `None`.
        container_bytes: What the container is charged with now, or `None` outside of one.
        budget: What memfit may use when it is told nothing more.
    """

    versions: dict[str, str]
    is_supported: dict[str, bool]
    devices: tuple[DeviceFacts, ...]
    tensorflow_error: str | None
    allocator: str
    onednn: str
    num_cores: int
    host_total_bytes: int
    host_available_bytes: int
    container_limit_bytes: int | None
    container_bytes: int | None
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentPart(Record):
    """Layers of a model that run over time together.

    Attributes:
        layers: Their names, from the inputs to the outputs.
        length: Time steps.
        state_bytes: What is kept of a step at a border: the states of all layers for the whole batch.
        tape_bytes: What the backward pass of a step needs, for the whole batch.
        is_closed_form: Whether the backward pass is written out; otherwise a tape records it, and what a
            step holds is taken for that of an LSTM of the same state.
    """

    layers: tuple[str, ...]
    length: int
    state_bytes: int
    tape_bytes: int
    is_closed_form: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthPart(Record):
    """What runs between two cuts through the depth of a model that follow each other.

    Attributes:
        layer: The layer that most of it belongs to.
        cut_bytes: All that crosses the cut behind it.
        new_bytes: What of that it has made itself.
        tape_bytes: What the backward pass needs of what it made.
        work_bytes: What comes and goes while it is walked back.
        seconds: How long it runs forward.
        again_seconds: How long it runs to make again what the backward pass needs, with both cuts kept.
    """

    layer: str
    cut_bytes: int
    new_bytes: int
    tape_bytes: int
    work_bytes: int
    seconds: float
    again_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Record):
    """What one training step is made of, as far as it is known.

    Attributes:
        batch_size: Examples in the step.
        recurrent: The parts that run over time.
        depth: The parts between cuts through the depth, from the inputs to the outputs.
    """

    batch_size: int
    recurrent: tuple[RecurrentPart, ...]
    depth: tuple[DepthPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Record):
    """One way to use a strategy.

    Attributes:
        strategy: The strategy's name.
        value: What it is set to, such as the steps of a segment; `None` leaves the choice to the strategy.
    """

    strategy: str
    value: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Record):
    """What a setting does to a step, by arithmetic from a profile.

    Attributes:
        held_bytes: Activation bytes that the parts concerned hold at their peak.
        kept_bytes: What they would hold if everything were kept.
        num_recomputed_steps: Time steps that are computed again.
        num_steps: Time steps in all.
        recomputed_seconds: How long it takes to compute them, or parts in depth, again; `None` if unknown.
    """

    held_bytes: int
    kept_bytes: int
    num_recomputed_steps: int
    num_steps: int
    recomputed_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """How a model is trained in less memory. Every field may be left out; an empty plan changes nothing.

    Attributes:
        micro_batch: The most examples under way at once; the optimizer still sees whole batches. `None`: all.
        time_segment: Steps of a time segment of RNNs (`memfit.checkpoint_time`); `None`: no segments.
        depth_limit: What activations may hold with depth checkpointing (`memfit.checkpoint_depth`):
            `"least"`, a share of plain Keras's such as `"40%"`, or bytes such as `"64MiB"`; `None`: none.
        evaluation_micro_batch: The most examples under way in validation, `evaluate` and `predict`; `None`:
            all.
        batch_size: The batch that the plan was made for, which is then checked; `None` for any.
        num_parameters: The parameters of the model that it was made for, which is then checked; `None` for
            any.
        allow: What may be done although it changes the mathematics: `"split_batch_norm"`.
        fallbacks: What to do when memory runs out, one after the other. After the last, micro-batches are
            halved.
        budget_bytes: What it was made to fit; `None` for a plan that was written by hand, and so on below.
        predicted_bytes: The peak of the device that was predicted from small batches.
        predicted_seconds: The time of a step that was predicted from small batches.
        rehearsed_bytes: The peak of a rehearsal: the largest batch, with nothing applied to the model.
        rehearsed_seconds: The time of that rehearsal.
        considered: What else could be done, and why it is not.
        notes: What to know about it, a sentence each.

    Example:
    >>> Plan(micro_batch=8, time_segment=32).micro_batch
    8
    """

    micro_batch: int | None = None
    time_segment: int | None = None
    depth_limit: str | None = None
    evaluation_micro_batch: int | None = None
    batch_size: int | None = None
    num_parameters: int | None = None
    allow: tuple[str, ...] = ()
    fallbacks: tuple[Plan, ...] = ()
    budget_bytes: int | None = None
    predicted_bytes: int | None = None
    predicted_seconds: float | None = None
    rehearsed_bytes: int | None = None
    rehearsed_seconds: float | None = None
    considered: tuple[Considered, ...] = ()
    notes: tuple[str, ...] = ()

    def in_words(self, *, is_training: bool = True) -> str:
        """What is done, in a few words; with `is_training=False` in validation, `evaluate` and `predict`.

        Example:
        >>> Plan(micro_batch=8, time_segment=32).in_words()
        'micro-batches of 8, time segments of 32'
        """
        micro_batch = self.micro_batch if is_training else self.evaluation_micro_batch
        words = ["whole batches" if micro_batch is None else f"micro-batches of {micro_batch}"]
        if self.time_segment is not None:
            words.append(f"time segments of {self.time_segment}")
        if self.depth_limit is not None:
            words.append(f"depth limit {self.depth_limit}")
        return ", ".join(words)

    def __str__(self) -> str:
        """A table of what is done, what it takes, and what else was considered."""
        rows = [("plan", self.in_words())]
        if self.evaluation_micro_batch is not None:
            rows.append(("in validation", self.in_words(is_training=False)))
        if self.batch_size is not None:
            rows.append(("batch", f"{self.batch_size} examples, as given"))
        rows.append(("mathematics", f"changed: {', '.join(self.allow)}" if self.allow else "unchanged"))
        if self.budget_bytes is not None:
            rows.append(("budget", format_bytes(self.budget_bytes)))
        rows += [
            (name, f"{format_bytes(num_bytes)}, {format_seconds(seconds)} a step")
            for name, num_bytes, seconds in (
                ("predicted", self.predicted_bytes, self.predicted_seconds),
                ("rehearsed", self.rehearsed_bytes, self.rehearsed_seconds),
            )
            if num_bytes is not None and seconds is not None
        ]
        if self.fallbacks:
            rows.append(("if memory runs out", "; then ".join(each.in_words() for each in self.fallbacks)))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {text}" for name, text in rows]
        return "\n".join([*lines, *_considered_lines(self.considered), *(f"- {note}" for note in self.notes)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered(Record):
    """Something that a plan could have done.

    Attributes:
        what: In a few words, such as `"micro-batches of 8"`.
        peak_bytes: What it takes; `None` where that was not worth finding out.
        seconds: Its time a step, or `None`.
        verdict: Why it was taken or not.
    """

    what: str
    peak_bytes: int | None
    seconds: float | None
    verdict: str


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
    history: Any = None

    def to_dict(self) -> dict[str, Any]:
        """This record as JSON values; the history as numbers by name."""
        logs = getattr(self.history, "history", self.history)
        if isinstance(logs, dict):
            logs = {name: [_number(value) for value in values] for name, values in logs.items()}
        return Record.to_dict(replace(self, history=logs))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin(Record):
    """A bar of a histogram of lengths.

    Attributes:
        shortest: The least length that it counts, in steps.
        longest: The greatest.
        num_sequences: How many sequences it counts.
    """

    shortest: int
    longest: int
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthCut(Record):
    """What a maximum length would cost and save, if all sequences were padded to it.

    Attributes:
        percent: The share of sequences that are no longer.
        length: The maximum length, in steps.
        num_longer: Sequences that would lose steps.
        num_lost_steps: The steps that they would lose.
        saved_bytes: What the inputs would take less than padded to the longest.
    """

    percent: int
    length: int
    num_longer: int
    num_lost_steps: int
    saved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding(Record):
    """One way to make batches, and the steps that an epoch then has, padding included.

    Attributes:
        how: The way, in a few words.
        num_steps: Steps, padding included.
    """

    how: str
    num_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(Record):
    """How long sequences are, and what padding them costs.

    Attributes:
        source: What was read, in a few words.
        is_sample: Whether reading stopped at the limit, so that there may be more and longer ones.
        num_sequences: Sequences that were read, empty ones included.
        num_empty: Sequences without a step.
        num_steps: Their steps in all, without padding.
        shortest: The least length, in steps.
        longest: The greatest.
        step_bytes: The inputs of a step.
        bins: The histogram.
        cuts: What a maximum length would cost and save.
        boundaries: The lengths to pad to that leave the least padding, for the number of buckets asked for.
        paddings: What ways to make batches make of `num_steps`.
        notes: What to know about these numbers, a sentence each.
    """

    source: str
    is_sample: bool
    num_sequences: int
    num_empty: int
    num_steps: int
    shortest: int
    longest: int
    step_bytes: int
    bins: tuple[LengthBin, ...]
    cuts: tuple[LengthCut, ...]
    boundaries: tuple[int, ...]
    paddings: tuple[Padding, ...]
    notes: tuple[str, ...] = ()


_KINDS: Final[dict[str, type[Record]]] = {
    kind.__name__: kind
    for kind in (
        Budget,
        Considered,
        DepthPart,
        DeviceFacts,
        DeviceReading,
        Effect,
        Estimate,
        EstimatedPart,
        Facts,
        Incident,
        LengthBin,
        LengthCut,
        Lengths,
        Measurement,
        Padding,
        Plan,
        PlanChange,
        Profile,
        Reading,
        RecurrentPart,
        Request,
        Run,
        Setting,
    )
}


def _considered_lines(considered: tuple[Considered, ...]) -> list[str]:
    """What was considered, as an aligned table with a line above."""
    cells = [
        (
            each.what,
            "" if each.peak_bytes is None else format_bytes(each.peak_bytes),
            "" if each.seconds is None else format_seconds(each.seconds),
            each.verdict,
        )
        for each in considered
    ]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [
        f"  {row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}" for row in cells
    ]
    return ["considered:", *lines]


def _number(value: Any) -> Any:
    """A number of Keras's or numpy's as a Python number; anything else as text."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _version_hint(values: dict[str, Any]) -> str:
    version = values.get("version")
    if isinstance(version, int) and version > RECORD_VERSION:
        return (
            f" It was written in version {version} of the form; this memfit reads version "
            f"{RECORD_VERSION}: pip install --upgrade memfit."
        )
    return ""
