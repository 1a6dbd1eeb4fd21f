import json
import os
from pathlib import Path

import pytest

from memfit.errors import RecordError
from memfit.records import (
    Budget,
    DeviceReading,
    Measurement,
    Meter,
    Outcome,
    Reading,
    Record,
    Request,
)

BUDGET = Budget(device_bytes=1, device_source="the argument", host_bytes=2, host_source="the host")
READING = Reading(
    at_seconds=1.5,
    devices=(DeviceReading(device="CPU:0", current_bytes=1, peak_bytes=2, meter=Meter.ALLOCATOR),),
    host_bytes=3,
    host_peak_bytes=4,
    children_bytes=5,
    container_bytes=None,
)
MEASUREMENT = Measurement(
    target="train.py --lr 0.1",
    outcome=Outcome.DEVICE_OUT_OF_MEMORY,
    reason="MatMul asked for 1 B.",
    seconds=2.0,
    exit_code=-11,
    peak_bytes=2,
    reading=READING,
    request=Request(num_bytes=1, op="MatMul", shape=(1, 2)),
    value={"loss": [1.0, None]},
)


@pytest.mark.parametrize("record", [BUDGET, READING, MEASUREMENT])
def test_a_record_survives_its_file(record: Record, tmp_path: Path) -> None:
    path = record.save(tmp_path / "record.json")
    assert Record.load(path) == record
    assert type(record).load(path) == record
    assert list(tmp_path.iterdir()) == [path]


def test_a_record_carries_its_name_and_version() -> None:
    values = json.loads(BUDGET.to_json())
    assert (values["memfit"], values["version"]) == ("Budget", 1)


def test_fields_of_the_future_are_passed_over() -> None:
    values = MEASUREMENT.to_dict() | {"version": 2, "carbon_grams": 3}
    values["reading"]["devices"][0]["temperature"] = 60
    assert Measurement.from_dict(values) == MEASUREMENT


def broken(**changes: object) -> str:
    values = MEASUREMENT.to_dict() | changes
    return json.dumps({name: value for name, value in values.items() if value != "GONE"})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "run.json is not JSON: Expecting property name"),
        (
            "[1]",
            'run.json is not a memfit record: the field "memfit" must be one of Autopsy, BatchPeak, Budget',
        ),
        ('{"memfit": "Banana"}', "Received: 'Banana'"),
        ('{"memfit": ["Budget"]}', "Received: ['Budget']"),
        (broken(seconds="GONE"), 'the field "seconds" is missing'),
        (broken(seconds="two"), "the field \"seconds\" must be a number. Received: 'two'"),
        (broken(exit_code=1.5), 'the field "exit_code" must be a whole number. Received: 1.5'),
        (broken(exit_code=True), 'the field "exit_code" must be a whole number. Received: True'),
        (broken(outcome="fine"), "the field \"outcome\" must be one of 'ok', 'device out of memory'"),
        (broken(request={"shape": [1, "x"]}), 'the field "request.shape[1]" must be a whole number'),
        (broken(reading=7), 'the field "reading" must be an object. Received: 7'),
        (broken(version=9, seconds="GONE"), "It was written in version 9 of the form"),
    ],
)
def test_a_broken_file_names_its_fault(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError) as caught:
        Measurement.load(tmp_path / "run.json")
    assert fault in str(caught.value).replace(f"{tmp_path}{os.sep}", "")


def test_another_record_is_refused(tmp_path: Path) -> None:
    BUDGET.save(tmp_path / "b.json")
    with pytest.raises(RecordError, match="holds a Budget, but a Measurement is needed"):
        Measurement.load(tmp_path / "b.json")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        Record.load(tmp_path / "missing.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="not even text"):
        Record.load(tmp_path / "binary")
    with pytest.raises(RecordError, match="cannot write"):
        BUDGET.save(tmp_path / "missing" / "b.json")


def test_a_file_is_never_half_written(tmp_path: Path) -> None:
    path = BUDGET.save(tmp_path / "b.json")
    unwritable = Measurement(
        target="t", outcome=Outcome.OK, reason="", seconds=1, exit_code=0, value=object()
    )
    with pytest.raises(TypeError):
        unwritable.save(path)
    assert Budget.load(path) == BUDGET
    assert list(tmp_path.iterdir()) == [path]
