"""Records as text and tables for the terminal. It computes nothing: what is shown is in the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memfit.records import (
    Autopsy,
    Budget,
    DeviceReading,
    Estimate,
    EstimatedPart,
    Facts,
    Growth,
    Held,
    Leak,
    Lengths,
    Measurement,
    Meter,
    Plan,
    Reading,
    Record,
    Run,
    Session,
    Watched,
    WayOut,
)
from memfit.units import format_bytes, format_place, format_seconds

Row = tuple[str, str]
NUM_PARTS_SHOWN: Final = 12
BAR_WIDTH: Final = 40


@singledispatch
def render(record: Record) -> RenderableType:
    """A record as something that rich can print."""
    return _table((name, str(value)) for name, value in record.to_dict().items())


@render.register
def _(budget: Budget) -> RenderableType:
    return _table(_budget_rows(budget))


@render.register
def _(reading: Reading) -> RenderableType:
    return _table(_reading_rows(reading))


@render.register
def _(measurement: Measurement) -> RenderableType:
    rows = [
        ("target", measurement.target),
        ("outcome", measurement.outcome.value),
        ("why", measurement.reason),
        ("time", format_seconds(measurement.seconds)),
        ("exit code", str(measurement.exit_code)),
        ("device limit", _bytes_or(measurement.device_limit_bytes, "none")),
        ("host limit", _bytes_or(measurement.host_limit_bytes, "none")),
    ]
    if measurement.reading is not None:
        rows += _reading_rows(measurement.reading)
    return _table(rows)


@render.register
def _(facts: Facts) -> RenderableType:
    rows = [(name, _version(facts, name)) for name in facts.versions]
    if facts.tensorflow_error is not None:
        rows.append(("TensorFlow", facts.tensorflow_error))
    rows += [
        (device.device, ", ".join(filter(None, (device.description, _limit(device.limit_bytes)))))
        for device in facts.devices
    ]
    rows += [
        ("CPU allocator", facts.allocator),
        ("oneDNN", facts.onednn),
        ("CPU cores", str(facts.num_cores)),
        (
            "host memory",
            f"{_bytes(facts.host_available_bytes)} available of {_bytes(facts.host_total_bytes)}",
        ),
        ("container", _container(facts)),
        *_budget_rows(facts.budget),
    ]
    return _table(rows)


@render.register
def _(estimate: Estimate) -> RenderableType:
    shape = f"batch {estimate.batch_size}"
    if estimate.length is not None:
        shape += f", length {estimate.length}"
    rows = [
        ("training step", f"{shape}, {estimate.num_parameters:,} parameters"),
        ("peak", f"{_bytes(estimate.peak_bytes)} on {estimate.device}"),
        ("between", f"{_bytes(estimate.low_bytes)} and {_bytes(estimate.high_bytes)}"),
    ]
    if estimate.validation_peak_bytes is not None and estimate.validation_high_bytes is not None:
        high = _bytes(estimate.validation_high_bytes)
        rows.append(("validation", f"{_bytes(estimate.validation_peak_bytes)}, at most {high}"))
    if estimate.step_seconds is not None:
        rows.append(("time", f"roughly {format_seconds(estimate.step_seconds)} a step"))
    notes = [("measured at", "; ".join(estimate.probes))]
    notes += [("note", note) for note in estimate.notes]
    tables: list[RenderableType] = [
        _table(rows),
        Text(),
        _parts("at the peak", estimate.parts, estimate.peak_bytes),
    ]
    if estimate.layers:
        tables += [Text(), _parts("activations by layer", estimate.layers, estimate.peak_bytes)]
    if estimate.host_parts:
        tables += [Text(), _parts("host memory of the data", estimate.host_parts, estimate.host_bytes)]
    return Group(*tables, Text(), _table(notes))


def _parts(title: str, parts: Sequence[EstimatedPart], whole_bytes: int) -> Table:
    table = Table(title, "bytes", "share", "source", box=None, pad_edge=False, header_style="bold")
    for column in (1, 2):
        table.columns[column].justify = "right"
    shown, rest = parts[:NUM_PARTS_SHOWN], parts[NUM_PARTS_SHOWN:]
    for part in shown:
        table.add_row(
            Text(part.name), _bytes(part.num_bytes), _share(part.num_bytes, whole_bytes), part.source.value
        )
    if rest:
        others = sum(part.num_bytes for part in rest)
        table.add_row(f"{len(rest)} more", _bytes(others), _share(others, whole_bytes), "")
    return table


def _share(num_bytes: int, whole_bytes: int) -> str:
    return f"{num_bytes / whole_bytes:.0%}" if whole_bytes else ""


@render.register
def _(plan: Plan) -> RenderableType:
    return Text(str(plan))


@render.register
def _(run: Run) -> RenderableType:
    peaks = [_bytes(peak) for peak in run.peak_bytes if peak is not None]
    rows = [
        ("outcome", run.outcome.value),
        ("plan at the end", run.plan.in_words()),
        ("steps", f"{run.num_steps:,}, {run.num_samples:,} samples"),
        ("time", format_seconds(run.seconds)),
        ("peak of each epoch", ", ".join(peaks) or "not known: no true meter"),
    ]
    rows += [(name, f"{values[0]:.4g} to {values[-1]:.4g}") for name, values in _curves(run) if values]
    rows += [(f"step {each.step}", f"{each.what} {each.action}") for each in run.incidents]
    rows += [("leak", str(leak)) for leak in run.leaks]
    return _table(rows)


@render.register
def _(leak: Leak) -> RenderableType:
    place = "" if leak.file is None else f", {format_place(leak.file, leak.line or 0)}"
    rows = [("leak", f"{leak.name or leak.kind}{place}"), ("what", leak.sentence), ("fix", leak.fix)]
    return _table(rows)


@render.register
def _(watched: Watched) -> RenderableType:
    rows = [
        ("steps", f"{watched.num_steps:,}, {watched.num_epochs:,} epochs"),
        ("readings", f"{watched.num_readings:,}, {format_seconds(watched.seconds)} in all"),
        *((f"{each.series}", _growth(each, watched.unit)) for each in watched.growths),
        ("leaks", f"{len(watched.leaks)}" if watched.leaks else "none"),
        *(("note", note) for note in watched.notes),
    ]
    leaks = (part for leak in watched.leaks for part in (Text(), render(leak)))
    return Group(_table(rows), *leaks)


def _growth(growth: Growth, unit: str) -> str:
    is_bytes = growth.room is not None
    last = _bytes(growth.last) if is_bytes else f"{growth.last:,}"
    if not growth.is_growing:
        return f"{last}, does not keep growing"
    slope = _bytes(round(growth.slope)) if is_bytes else f"{growth.slope:,.2g}"
    left = growth.num_left()
    end = "" if left is None else f", full in about {left:,} {unit}s"
    return f"{last}, +{slope} a {unit} ({growth.confidence:.1%} sure){end}"


@render.register
def _(lengths: Lengths) -> RenderableType:
    rows = [
        ("read", lengths.source + (", its beginning" if lengths.is_sample else "")),
        ("sequences", f"{lengths.num_sequences:,}"),
        ("steps", f"{lengths.num_steps:,}, {lengths.num_steps / lengths.num_sequences:.1f} a sequence"),
        ("length", f"{lengths.shortest:,} to {lengths.longest:,}"),
    ]
    notes = [("pad to", " ".join(f"{boundary:,}" for boundary in lengths.boundaries))]
    notes += [("note", note) for note in lengths.notes]
    tables = (_table(rows), _histogram(lengths), _paddings(lengths), _cuts(lengths))
    return Group(*(part for table in tables for part in (table, Text())), _table(notes))


@render.register
def _(autopsy: Autopsy) -> RenderableType:
    rows = [
        ("autopsy", f"{autopsy.outcome.value}{', survived' if autopsy.is_survived else ''}"),
        ("what", autopsy.what),
        ("when", autopsy.phase),
        ("why", " ".join(filter(None, (autopsy.cause, *autopsy.evidence)))),
        ("memory", _room(autopsy)),
        (
            "peak of each epoch",
            ", ".join(_bytes(peak) for peak in autopsy.epoch_peak_bytes if peak is not None),
        ),
    ]
    rows += [
        (
            "beside it",
            f"{each.name}, process {each.pid}: {_bytes(each.num_bytes)} of the {each.memory}'s memory",
        )
        for each in autopsy.neighbours
    ]
    tables: list[RenderableType] = [_table((name, value) for name, value in rows if value)]
    if autopsy.held:
        tables += [Text(), _held_table("alive then", autopsy.held)]
    if autopsy.layers:
        tables += [Text(), _held_table("weights by layer", autopsy.layers)]
    if autopsy.chunks:
        tables += [Text(), _held_table("in use by size", autopsy.chunks)]
    if autopsy.host_readings:
        tables += [Text(), _host_table(autopsy)]
    if autopsy.ways_out:
        tables += [Text(), _ways_out(autopsy.ways_out)]
    return Group(*tables)


def _room(autopsy: Autopsy) -> str:
    parts = []
    if autopsy.in_use_bytes is not None:
        limit = "" if autopsy.limit_bytes is None else f" of {_bytes(autopsy.limit_bytes)}"
        parts.append(f"{_bytes(autopsy.in_use_bytes)}{limit} in use")
    if autopsy.free_bytes is not None and autopsy.largest_free_bytes is not None:
        parts.append(
            f"{_bytes(autopsy.free_bytes)} free, the largest piece {_bytes(autopsy.largest_free_bytes)}"
        )
    return "; ".join(parts)


def _held_table(title: str, held: Sequence[Held]) -> Table:
    table = _columns(title, "bytes", "number")
    for each in held:
        table.add_row(Text(each.name), _bytes(each.num_bytes), "" if each.num is None else f"{each.num:,}")
    return table


def _host_table(autopsy: Autopsy) -> Table:
    table = _columns("host memory, after", "bytes", "")
    most = max(each.host_bytes for each in autopsy.host_readings)
    for each in autopsy.host_readings:
        bar = "█" * -(-BAR_WIDTH * each.host_bytes // max(1, most))
        table.add_row(format_seconds(each.at_seconds), _bytes(each.host_bytes), bar)
    return table


def _ways_out(ways: Sequence[WayOut]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for number, way in enumerate(ways, 1):
        bytes_of = ""
        if way.predicted_bytes is not None and way.source is not None:
            bytes_of = f": {_bytes(way.predicted_bytes)} ({way.source.value})"
        table.add_row(f"way out {number}", Text(f"{way.what}{bytes_of}"))
        table.add_row("", Text(way.command, style="bold"))
    return table


@render.register
def _(session: Session) -> RenderableType:
    rows = [("restarted", each) for each in session.restarts]
    rows += [("note", each) for each in session.notes]
    parts: list[RenderableType] = [render(session.measurement)]
    if rows:
        parts.append(_table(rows))
    for number, run in enumerate(session.runs, 1):
        parts += [Text(), Text(f"model.fit, call {number}", style="bold"), render(run)]
    if session.watched is not None and session.watched.leaks:
        parts += [Text(), render(session.watched)]
    if session.autopsy is not None:
        parts += [Text(), render(session.autopsy)]
    return Group(*parts)


def _histogram(lengths: Lengths) -> Table:
    table = _columns("length", "sequences", "")
    most = max(each.num_sequences for each in lengths.bins)
    for each in lengths.bins:
        only = each.shortest == each.longest
        bar = "█" * -(-BAR_WIDTH * each.num_sequences // most)
        name = f"{each.shortest:,}" if only else f"{each.shortest:,} to {each.longest:,}"
        table.add_row(name, f"{each.num_sequences:,}", bar)
    return table


def _paddings(lengths: Lengths) -> Table:
    table = _columns("an epoch", "steps", "padding")
    for each in lengths.paddings:
        padding = each.num_steps - lengths.num_steps
        table.add_row(each.how, f"{each.num_steps:,}", _share(padding, each.num_steps))
    return table


def _cuts(lengths: Lengths) -> Table:
    table = _columns("maximum length", "steps", "sequences cut", "steps lost", "inputs save")
    for each in lengths.cuts:
        table.add_row(
            f"{each.percent}% are no longer",
            f"{each.length:,}",
            f"{each.num_longer:,}",
            _share(each.num_lost_steps, lengths.num_steps),
            _bytes(each.saved_bytes),
        )
    return table


def _columns(*names: str) -> Table:
    """A table with headers; numbers, which is all but the first and a nameless column, on the right."""
    table = Table(*names, box=None, pad_edge=False, header_style="bold")
    for column, name in zip(table.columns[1:], names[1:], strict=True):
        column.justify = "right" if name else "left"
    return table


def _curves(run: Run) -> list[tuple[str, list[float]]]:
    logs = getattr(run.history, "history", run.history)
    return list(logs.items()) if isinstance(logs, dict) else []


def summarise(measurement: Measurement) -> str:
    """One line: the peak, the limit, the host's memory, the time.

    Example:
    >>> from memfit.records import Outcome
    >>> summarise(Measurement(target="t.py", outcome=Outcome.OK, reason="", seconds=2.0, exit_code=0))
    'no TensorFlow device was used, 2.0 s'
    """
    parts = [_peak(measurement)]
    if measurement.reading is not None:
        parts.append(f"host {format_bytes(measurement.reading.host_peak_bytes)}")
    return ", ".join([*parts, format_seconds(measurement.seconds)])


def _peak(measurement: Measurement) -> str:
    device = measurement.reading.fullest_device() if measurement.reading is not None else None
    limit = measurement.device_limit_bytes
    of_budget = "" if limit is None else f" of the {format_bytes(limit)} budget"
    if device is None:
        return "no TensorFlow device was used"
    bound = "" if measurement.is_peak_exact else "at least "
    source = "" if device.meter is Meter.ALLOCATOR else " (process memory: the device has no true meter)"
    return f"peak {bound}{format_bytes(device.peak_bytes)}{of_budget} on {device.device}{source}"


def _table(rows: Iterable[Row]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _reading_rows(reading: Reading) -> list[Row]:
    rows = [(device.device, _device(device)) for device in reading.devices]
    rows.append(("host", f"{_bytes(reading.host_bytes)} now, {_bytes(reading.host_peak_bytes)} peak"))
    if reading.children_bytes:
        rows.append(("children", f"{_bytes(reading.children_bytes)} now"))
    if reading.container_bytes is not None:
        rows.append(("container", f"{_bytes(reading.container_bytes)} now"))
    return rows


def _device(device: DeviceReading) -> str:
    text = f"{_bytes(device.current_bytes)} now, {_bytes(device.peak_bytes)} peak"
    return text if device.meter is Meter.ALLOCATOR else f"{text} (process memory stands in)"


def _budget_rows(budget: Budget) -> list[Row]:
    return [
        ("device budget", f"{_bytes(budget.device_bytes)}, from {budget.device_source}"),
        ("host budget", f"{_bytes(budget.host_bytes)}, from {budget.host_source}"),
    ]


def _version(facts: Facts, name: str) -> str:
    remark = "" if facts.is_supported.get(name, True) else " (not supported)"
    return facts.versions[name] + remark


def _container(facts: Facts) -> str:
    if facts.container_bytes is None:
        return "none"
    return f"{_bytes(facts.container_bytes)} in use, {_limit(facts.container_limit_bytes)}"


def _limit(limit_bytes: int | None) -> str:
    return "no limit" if limit_bytes is None else f"limit {_bytes(limit_bytes)}"


def _bytes_or(num_bytes: int | None, otherwise: str) -> str:
    return otherwise if num_bytes is None else _bytes(num_bytes)


_bytes = format_bytes
