"""Records as text and tables for the terminal. It computes nothing: what is shown is in the record."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memfit.records import (
    Budget,
    DeviceReading,
    Facts,
    Measurement,
    Meter,
    Reading,
    Record,
)
from memfit.units import format_bytes, format_seconds

Row = tuple[str, str]


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
