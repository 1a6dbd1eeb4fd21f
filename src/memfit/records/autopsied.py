"""Why memory ran out: what was asked for, what was alive, how it came to that, and the ways out."""

from __future__ import annotations

from dataclasses import dataclass

from memfit.records.base import Record
from memfit.records.estimated import Source
from memfit.records.guarded import Watched
from memfit.records.measured import Measurement, Outcome, Request
from memfit.records.trained import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Record):
    """Something that was in memory when it ran out.

    Attributes:
        name: What it is: a kind, such as `"weights"`, a layer, or chunks of one size.
        num_bytes: Its bytes.
        num: How many there are of it, or `None` where that was not counted.
    """

    name: str
    num_bytes: int
    num: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPeak(Record):
    """What a step takes with so many examples under way.

    Attributes:
        num_examples: How many.
        peak_bytes: The most bytes of device memory that it will hold, weights and all.
        high_bytes: It will hardly be above this: a limit to run under.
    """

    num_examples: int
    peak_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Record):
    """What a step that ran out of memory takes, whole and in parts: measured at tiny batches, extrapolated.

    Attributes:
        is_training: Whether it was a step of training rather than of validation.
        batch_size: Its examples.
        peak_bytes: What it takes as it is.
        high_bytes: It will hardly be above this.
        smaller: Smaller batches, halves of halves.
        split: The same batch in micro-batches.
        activations: What it holds at its peak beside weights and slots: activations by layer, and the rest.
    """

    is_training: bool
    batch_size: int
    peak_bytes: int
    high_bytes: int
    smaller: tuple[BatchPeak, ...] = ()
    split: tuple[BatchPeak, ...] = ()
    activations: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory(Record):
    """What a script's process held, as far as it could tell itself.

    Attributes:
        held: By kind: weights, slots, kept tensors.
        layers: Weights by layer, largest first.
        batch_size: Examples of a batch, as given to `fit`, or `None`.
        has_batch_norm: Whether batches must not be split for the sake of BatchNormalization.
        batch_shapes: The shapes of the inputs of the batch that was being trained on; empty if unknown.
        largest_shapes: The same of the largest batch that went well.
        forecast: What the step that ran out of memory takes, whole and in parts; `None` if unknown.
    """

    held: tuple[Held, ...] = ()
    layers: tuple[Held, ...] = ()
    batch_size: int | None = None
    has_batch_norm: bool = False
    batch_shapes: tuple[tuple[int, ...], ...] = ()
    largest_shapes: tuple[tuple[int, ...], ...] = ()
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading(Record):
    """What a script and its children had of the host's memory.

    Attributes:
        at_seconds: When, in seconds since the script started.
        host_bytes: Their resident memory.
    """

    at_seconds: float
    host_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour(Record):
    """Another process that has a share of the same memory.

    Attributes:
        name: Its name.
        pid: Its process id.
        num_bytes: What it has.
        memory: Which memory: `"host"` or `"GPU"`.
    """

    name: str
    pid: int
    num_bytes: int
    memory: str = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut(Record):
    """Something that would help, as a command or a change to type.

    Attributes:
        what: What it does, in a few words.
        command: What to type.
        predicted_bytes: What the script would then take, or `None` where nobody knows.
        source: Where that number comes from, or `None`.
    """

    what: str
    command: str
    predicted_bytes: int | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment(Record):
    """One line of the story of a script: what it was doing, and what its meters said.

    Attributes:
        at_seconds: When, in seconds since the epoch.
        phase: `"training"`, `"validation"`, `"evaluation"`, `"prediction"`, or `"between"` for none of them.
        model: Which model of the script it is about, from 0.
        epoch: The epoch of its training, from 0.
        step: Batches of the phase that have ended.
        device_bytes: What the fullest device held, or `None` without a true meter.
        peak_bytes: The peak of that device so far, or since its meter was last reset.
        host_bytes: Resident memory of the process.
        num_tensors: Eager tensors that Python kept, or `None` where they were not counted, and so below.
        tensor_bytes: Their bytes.
        num_graphs: Graphs that were alive: one a trace of a `tf.function`.
    """

    at_seconds: float
    phase: str
    model: int
    epoch: int
    step: int
    device_bytes: int | None
    peak_bytes: int | None
    host_bytes: int
    num_tensors: int | None = None
    tensor_bytes: int | None = None
    num_graphs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy(Record):
    """Why memory ran out. What is not known is `None` or empty, never guessed.

    Attributes:
        outcome: Which memory ran out.
        is_survived: Whether the script went on.
        what: What was asked for, by whom and where, in a sentence.
        request: The allocation that failed, or `None`.
        place: The user's line, or `None`.
        phase: What the script was doing, in words; empty if unknown.
        cause: Why it came to that, in a sentence; empty where nothing explains it.
        evidence: What the cause rests on, and what was ruled out, a sentence each.
        limit_bytes: What the device could have, or `None`.
        in_use_bytes: What was in use on the device when the request failed, or `None`.
        free_bytes: What was free there in total.
        largest_free_bytes: The largest piece of that.
        held: What was in use, by kind.
        layers: The weights among it by layer, largest first.
        chunks: What was in use by size, largest first.
        epoch_peak_bytes: The device's peak in each epoch before.
        host_readings: Host memory up to the end, oldest first.
        neighbours: Other processes that have much of the same memory.
        ways_out: What would help, cheapest first.
    """

    outcome: Outcome
    is_survived: bool = False
    what: str
    request: Request | None = None
    place: str | None = None
    phase: str = ""
    cause: str = ""
    evidence: tuple[str, ...] = ()
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    free_bytes: int | None = None
    largest_free_bytes: int | None = None
    held: tuple[Held, ...] = ()
    layers: tuple[Held, ...] = ()
    chunks: tuple[Held, ...] = ()
    epoch_peak_bytes: tuple[int | None, ...] = ()
    host_readings: tuple[HostReading, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    ways_out: tuple[WayOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Record):
    """What `memfit run` saw of a script.

    Attributes:
        measurement: What it took, and how it ended; of the last attempt, if it was started more than once.
        runs: What memfit did in the place of `model.fit`, one record a call.
        autopsy: Why memory ran out, or `None` where it did not.
        watched: How its memory grew, and what made it; `None` where Keras and TensorFlow were not there.
        host_readings: Host memory over time.
        restarts: Why and how it was started again, a sentence each.
        notes: What memfit did, and what it could not do or watch, a sentence each.
    """

    measurement: Measurement
    runs: tuple[Run, ...] = ()
    autopsy: Autopsy | None = None
    watched: Watched | None = None
    host_readings: tuple[HostReading, ...] = ()
    restarts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
