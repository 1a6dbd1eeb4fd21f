"""The autopsy: from all that is known of a script that ran out of memory, why, and what would help. Pure.

What the script's process said itself comes first (an exception leaves it alive to count what it holds), then
what it wrote down while it was alive, then what TensorFlow's allocator listed in its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memfit.guarding.first_epoch import TRAINING, Batches, Verdict, find_cause
from memfit.guarding.fragments import why_fragmented
from memfit.guarding.ways_out import Situation, find_ways_out
from memfit.measuring.allocator_log import Dump
from memfit.records import (
    Autopsy,
    DeviceReading,
    Forecast,
    Held,
    HostReading,
    Inventory,
    Measurement,
    Moment,
    Neighbour,
    Outcome,
    Plan,
)
from memfit.units import format_bytes

MOST_CHUNKS: Final = 5
MOST_LAYERS: Final = 8
MOST_SHARES: Final = 6
LEAST_SHARE: Final = 0.01
REST: Final = "activations, inputs and the rest"
OTHERS: Final = "the rest"
MOST_READINGS: Final = 12
# A process that others leave no more than this share of the memory was ended by them, not by itself.
CROWDED_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of a script that has ended.

    Attributes:
        measurement: What it took, and how it ended.
        place: The user's line where it ended, or `None`.
        is_observed: Whether memfit only watched.
        dump: The allocator's chunks when a request failed last, or `None`.
        inventory: What the process said that it held, or `None`.
        moments: The story of the script.
        host_readings: Host memory over time.
        neighbours: Other processes with much of the same memory.
        plan: The plan that memfit trained by last, or `None`.
        is_cell: Whether it is a cell of a notebook, which can be run again, rather than a script.
    """

    measurement: Measurement
    place: str | None = None
    is_observed: bool = False
    dump: Dump | None = None
    inventory: Inventory | None = None
    moments: Sequence[Moment] = ()
    host_readings: tuple[HostReading, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    plan: Plan | None = None
    is_cell: bool = False


def needs_autopsy(measurement: Measurement) -> bool:
    """Whether memory ran out, or may have: nobody says why a process was killed."""
    is_killed = measurement.outcome is Outcome.KILLED and measurement.exit_code == -9
    return measurement.outcome.is_out_of_memory or is_killed or measurement.num_failed_requests > 0


def perform(evidence: Evidence) -> Autopsy:
    """The autopsy of a script that ran out of memory; a shorter one if it survived."""
    measurement = evidence.measurement
    if measurement.outcome in (Outcome.OK, Outcome.ERROR, Outcome.TIMEOUT):
        return _survived(evidence)  # Something else may have ended it; memory did not.
    is_host = measurement.outcome is not Outcome.DEVICE_OUT_OF_MEMORY
    request = measurement.request
    inventory = evidence.inventory or Inventory()
    verdict = find_cause(evidence.moments, is_host=is_host, request=request, batches=_batches(inventory))
    pieces = "" if is_host else why_fragmented(evidence.dump, request.num_bytes if request else None)
    in_use = _in_use(evidence)
    situation = Situation(
        script=measurement.target,
        is_cell=evidence.is_cell,
        is_host=is_host,
        is_observed=evidence.is_observed,
        is_gpu=bool(request and request.device and request.device.startswith("GPU")),
        is_fragmented=bool(pieces),
        limit_bytes=measurement.device_limit_bytes or _limit(evidence),
        in_use_bytes=in_use,
        fixed_bytes=sum(each.num_bytes for each in inventory.held),
        request=request,
        batch_size=_batch_size(evidence, inventory),
        place=evidence.place,
        cause=verdict.cause if verdict else None,
        plan=evidence.plan,
        has_fit=bool(evidence.moments),
        has_batch_norm=inventory.has_batch_norm,
        forecast=inventory.forecast,
    )
    cause, reasons = _explain(evidence, verdict, pieces, is_host=is_host)
    return Autopsy(
        outcome=measurement.outcome,
        what=measurement.reason,
        request=request,
        place=evidence.place,
        phase=_phase(evidence.moments),
        cause=cause,
        evidence=reasons,
        limit_bytes=_limit(evidence),
        in_use_bytes=in_use,
        free_bytes=evidence.dump.free_bytes if evidence.dump else None,
        largest_free_bytes=evidence.dump.largest_free_bytes if evidence.dump else None,
        held=_held(inventory, in_use),
        layers=inventory.layers[:MOST_LAYERS],
        chunks=_chunks(evidence.dump),
        epoch_peak_bytes=_epoch_peaks(evidence.moments),
        host_readings=_last(evidence.host_readings) if is_host else (),
        neighbours=evidence.neighbours,
        ways_out=find_ways_out(situation),
    )


def _survived(evidence: Evidence) -> Autopsy:
    """In short: what failed, and what was in use."""
    measurement = evidence.measurement
    return Autopsy(
        outcome=Outcome.DEVICE_OUT_OF_MEMORY,
        is_survived=True,
        what=measurement.reason,
        request=measurement.request,
        limit_bytes=_limit(evidence),
        in_use_bytes=_in_use(evidence),
        free_bytes=evidence.dump.free_bytes if evidence.dump else None,
        largest_free_bytes=evidence.dump.largest_free_bytes if evidence.dump else None,
    )


def _explain(
    evidence: Evidence, verdict: Verdict | None, pieces: str, *, is_host: bool
) -> tuple[str, tuple[str, ...]]:
    """The cause in a sentence, and what it rests on. Fragmentation is blamed last."""
    if verdict is not None:
        return f"{verdict.cause.value}.", verdict.evidence
    crowd = _crowd(evidence) if is_host else ""
    if crowd:
        return "other processes took the memory.", (crowd,)
    if pieces:
        return "the memory was in pieces (fragmentation).", (pieces,)
    return "", ()


def _crowd(evidence: Evidence) -> str:
    """Whether others have more of the memory than the script ever had."""
    if evidence.measurement.host_limit_bytes is not None:
        return ""  # The script went over a limit of its own, whatever others had.
    own = max((each.host_bytes for each in evidence.host_readings), default=None)
    others = sum(each.num_bytes for each in evidence.neighbours if each.memory == "host")
    if own is None or own > CROWDED_SHARE * (own + others):
        return ""
    names = ", ".join(f"{each.name} ({format_bytes(each.num_bytes)})" for each in evidence.neighbours)
    return f"The script never had more than {format_bytes(own)}; beside it ran {names}."


def _phase(moments: Sequence[Moment]) -> str:
    if not moments:
        return ""
    last = moments[-1]
    if last.phase == "between":
        return f"after epoch {last.epoch}" if last.step else ""
    model = f" of model {last.model + 1}" if last.model else ""
    # After the first, batches are told of five times a second at most.
    more = " or some more" if last.step else ""
    return f"{last.phase}{model}, epoch {last.epoch}, after {last.step:,} batches{more}"


def _batch_size(evidence: Evidence, inventory: Inventory) -> int | None:
    """The examples of a training batch, or, in validation, what the tensor that was asked for tells."""
    if not evidence.moments or evidence.moments[-1].phase == TRAINING:
        return inventory.batch_size
    request = evidence.measurement.request
    return request.shape[0] if request is not None and request.shape else None


def _batches(inventory: Inventory) -> Batches | None:
    if not inventory.batch_shapes or not inventory.largest_shapes:
        return None
    return Batches(died=inventory.batch_shapes, largest=inventory.largest_shapes)


def _limit(evidence: Evidence) -> int | None:
    if evidence.dump is not None and evidence.dump.limit_bytes is not None:
        return evidence.dump.limit_bytes
    return evidence.measurement.device_limit_bytes


def _in_use(evidence: Evidence) -> int | None:
    if evidence.dump is not None and evidence.dump.in_use:
        return evidence.dump.in_use_bytes
    device = _fullest(evidence.measurement)
    return device.current_bytes if device else None


def _fullest(measurement: Measurement) -> DeviceReading | None:
    return measurement.reading.fullest_device() if measurement.reading is not None else None


def _held(inventory: Inventory, in_use: int | None) -> tuple[Held, ...]:
    """What is known by kind, and the rest of what was in use."""
    known = sum(each.num_bytes for each in inventory.held)
    if in_use is None or not inventory.held or in_use <= known:
        return inventory.held
    rest = _rest(in_use - known, inventory.forecast)
    return tuple(sorted((*inventory.held, *rest), key=lambda each: each.num_bytes, reverse=True))


def _rest(num_bytes: int, forecast: Forecast | None) -> tuple[Held, ...]:
    """What is neither weights, slots nor kept; by layer, in the shares that the step has at its peak."""
    whole = Held(name=REST, num_bytes=num_bytes)
    if forecast is None or not forecast.activations:
        return (whole,)
    all_bytes = sum(each.num_bytes for each in forecast.activations)
    shown = [each for each in forecast.activations if each.num_bytes >= LEAST_SHARE * all_bytes][:MOST_SHARES]
    parts = tuple(
        Held(name=f"{each.name}, by estimate", num_bytes=num_bytes * each.num_bytes // all_bytes)
        for each in shown
    )
    left = num_bytes - sum(each.num_bytes for each in parts)
    return (*parts, Held(name=OTHERS, num_bytes=left)) if left else parts


def _chunks(dump: Dump | None) -> tuple[Held, ...]:
    if dump is None:
        return ()
    return tuple(
        Held(name=f"chunks of {format_bytes(size)}", num_bytes=size * num, num=num)
        for size, num in dump.largest_in_use(MOST_CHUNKS)
    )


def _epoch_peaks(moments: Sequence[Moment]) -> tuple[int | None, ...]:
    """The peak of each epoch of the last model, so far."""
    last = moments[-1].model if moments else 0
    peaks: dict[int, int | None] = {}
    for each in moments:
        if each.model == last and each.phase != "between":
            known = [peak for peak in (peaks.get(each.epoch), each.peak_bytes) if peak is not None]
            peaks[each.epoch] = max(known, default=None)
    return tuple(peaks[epoch] for epoch in sorted(peaks))


def _last(readings: tuple[HostReading, ...]) -> tuple[HostReading, ...]:
    """A few readings, evenly over time, the last among them."""
    if len(readings) <= MOST_READINGS:
        return readings
    step = len(readings) / MOST_READINGS
    chosen = [readings[int(place * step)] for place in range(MOST_READINGS - 1)]
    return (*chosen, readings[-1])
