"""From evidence to an autopsy: what was alive, fragmentation last, neighbours, and the ways out."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from memfit.guarding.autopsy import Evidence, needs_autopsy, perform
from memfit.guarding.first_epoch import Cause
from memfit.guarding.fragments import gpu_neighbours, host_neighbours, notable
from memfit.guarding.story import STORY_NAME, StoryFile, read_story
from memfit.guarding.ways_out import Situation, find_ways_out
from memfit.measuring.allocator_log import Dump
from memfit.records import (
    BatchPeak,
    Forecast,
    Held,
    HostReading,
    Inventory,
    Measurement,
    Moment,
    Neighbour,
    Outcome,
    Request,
    Source,
)
from memfit.units import GIB, MIB

OOM = Measurement(
    target="train.py --lr 0.1",
    outcome=Outcome.DEVICE_OUT_OF_MEMORY,
    reason="MatMul asked for 16.0 MiB at train.py:30.",
    seconds=12.0,
    exit_code=1,
    device_limit_bytes=100 * MIB,
    request=Request(num_bytes=16 * MIB, op="MatMul", device="CPU:0"),
    num_failed_requests=1,
)
KILLED = Measurement(
    target="train.py", outcome=Outcome.HOST_OUT_OF_MEMORY, reason="the kernel", seconds=9.0, exit_code=-9
)
INVENTORY = Inventory(held=(Held(name="weights", num_bytes=10 * MIB, num=4),), batch_size=32)


def test_what_was_alive_adds_up_to_what_was_in_use() -> None:
    dump = Dump(in_use=Counter({MIB: 90}), free=Counter({5 * MIB: 1}), limit_bytes=100 * MIB)
    story = [_moment(0, "training", 3)]
    evidence = Evidence(
        measurement=OOM, dump=dump, inventory=INVENTORY, is_observed=True, moments=story, place="train.py:30"
    )
    autopsy = perform(evidence)
    assert autopsy.in_use_bytes == sum(each.num_bytes for each in autopsy.held) == 90 * MIB
    assert (autopsy.free_bytes, autopsy.largest_free_bytes) == (5 * MIB, 5 * MIB)
    assert autopsy.cause == ""
    planned, smaller, more = autopsy.ways_out
    assert planned.command == "memfit run --budget 100MiB train.py --lr 0.1"
    assert smaller.command == "batch_size=16 in train.py:30"
    # 10 MiB stay, and half of the other 96 MiB that it needs at least.
    assert (smaller.predicted_bytes, smaller.source) == (58 * MIB, Source.DERIVED)
    assert (more.predicted_bytes, more.command) == (106 * MIB, "memfit run --budget 106MiB train.py --lr 0.1")


def test_fragmentation_is_blamed_only_where_nothing_else_explains_it() -> None:
    dump = Dump(in_use=Counter({MIB: 60}), free=Counter({4 * MIB: 10}), limit_bytes=100 * MIB)
    assert "in pieces" in perform(Evidence(measurement=OOM, dump=dump)).cause
    moments = [_moment(0, "training", 3), _moment(0, "validation", 0)]
    autopsy = perform(Evidence(measurement=OOM, dump=dump, moments=moments))
    assert autopsy.cause == f"{Cause.VALIDATION.value}."
    assert autopsy.phase == "validation, epoch 0, after 0 batches"


def test_a_gpu_in_pieces_is_offered_another_allocator() -> None:
    ways = find_ways_out(Situation(script="t.py", is_gpu=True, is_fragmented=True))
    assert any("TF_GPU_ALLOCATOR=cuda_malloc_async" in way.command for way in ways)


def test_a_kill_shows_host_memory_up_to_the_end_and_who_else_was_there() -> None:
    readings = tuple(HostReading(at_seconds=float(n), host_bytes=n * MIB) for n in range(100))
    others = (Neighbour(name="chrome", pid=7, num_bytes=6 * GIB),)
    autopsy = perform(Evidence(measurement=KILLED, host_readings=readings, neighbours=others))
    assert autopsy.host_readings[-1].host_bytes == 99 * MIB
    assert len(autopsy.host_readings) == 12
    assert autopsy.cause == "other processes took the memory."
    assert "chrome (6.00 GiB)" in autopsy.evidence[0]


def test_a_limit_of_ones_own_is_not_the_fault_of_others() -> None:
    readings = (HostReading(at_seconds=0.0, host_bytes=GIB),)
    others = (Neighbour(name="chrome", pid=7, num_bytes=6 * GIB),)
    limited = replace(KILLED, host_limit_bytes=GIB)
    assert perform(Evidence(measurement=limited, host_readings=readings, neighbours=others)).cause == ""


def test_a_neighbour_that_takes_memory_is_seen() -> None:
    program = "kept = bytearray(b'x') * (200 * 2**20)\nprint(len(kept), flush=True)\ninput()"
    command = (sys.executable, "-c", program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = host_neighbours((), whole_bytes=200 * MIB)
        without = host_neighbours((other.pid,), whole_bytes=200 * MIB)
        other.communicate()
    # Others on this machine may be larger, but three of them are shown at most, and it is one of the largest.
    assert all(each.num_bytes >= 20 * MIB for each in found)
    assert other.pid in {each.pid for each in found} or found[-1].num_bytes > 200 * MIB
    assert other.pid not in {each.pid for each in without}


def test_a_step_that_was_measured_again_gives_its_numbers() -> None:
    peaks = tuple(
        BatchPeak(num_examples=num, peak_bytes=num * 5 * MIB, high_bytes=num * 6 * MIB) for num in (16, 8)
    )
    forecast = Forecast(
        is_training=True,
        batch_size=32,
        peak_bytes=160 * MIB,
        high_bytes=192 * MIB,
        smaller=peaks,
        split=peaks,
        activations=(
            Held(name="activations of wide", num_bytes=90 * MIB),
            Held(name="inputs", num_bytes=30 * MIB),
        ),
    )
    dump = Dump(in_use=Counter({MIB: 90}), limit_bytes=100 * MIB)
    inventory = replace(INVENTORY, forecast=forecast)
    story = [_moment(0, "training", 3)]
    autopsy = perform(
        Evidence(measurement=OOM, dump=dump, inventory=inventory, is_observed=True, moments=story)
    )
    assert [(each.name, each.num_bytes) for each in autopsy.held] == [
        ("activations of wide, by estimate", 60 * MIB),
        ("inputs, by estimate", 20 * MIB),
        ("weights", 10 * MIB),
    ]
    planned, smaller, more = autopsy.ways_out
    assert "micro-batches of 16" in planned.what
    assert (planned.predicted_bytes, smaller.predicted_bytes, more.predicted_bytes) == (
        80 * MIB,
        80 * MIB,
        192 * MIB,
    )
    assert {way.source for way in autopsy.ways_out} == {Source.MEASURED}


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("measurement", [OOM, KILLED], ids=["device", "host"])
def test_the_ways_out_of_a_cell_are_typed_in_a_cell(measurement: Measurement, *, is_observed: bool) -> None:
    inventory = replace(INVENTORY, has_batch_norm=True)
    story = [_moment(0, "training", 3)]
    evidence = Evidence(
        measurement=measurement, inventory=inventory, moments=story, is_observed=is_observed, is_cell=True
    )
    ways = [way.command for way in perform(evidence).ways_out]
    assert ways
    assert not any("train.py" in way or way.startswith("memfit run") for way in ways)
    if measurement is OOM:
        assert 'memfit.fit(model, x, y, budget="100MiB", allow="split_batch_norm")' in ways
        assert ('memfit.fit(model, x, y, budget="100MiB")' in ways) is is_observed


def test_one_that_was_survived_is_short() -> None:
    survived = Measurement(
        target="t.py", outcome=Outcome.OK, reason="", seconds=1.0, exit_code=0, num_failed_requests=1
    )
    assert needs_autopsy(survived)
    autopsy = perform(Evidence(measurement=survived, inventory=INVENTORY))
    assert autopsy.is_survived
    assert not autopsy.ways_out and not autopsy.held


def test_numbers_are_not_invented() -> None:
    unknown = Measurement(
        target="t.py", outcome=Outcome.DEVICE_OUT_OF_MEMORY, reason="", seconds=1.0, exit_code=1
    )
    autopsy = perform(Evidence(measurement=unknown))
    assert autopsy.in_use_bytes is None
    assert [way.predicted_bytes for way in autopsy.ways_out] == [None] * len(autopsy.ways_out)


def test_neighbours_are_worth_a_word_only_with_a_share() -> None:
    small, large = (Neighbour(name="a", pid=pid, num_bytes=size * GIB) for pid, size in ((1, 1), (2, 5)))
    assert notable((small, large), whole_bytes=16 * GIB) == (large,)


def test_neighbours_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho '42, python, train.py, 9000'\necho '43, x, [N/A]'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (found,) = gpu_neighbours((), whole_bytes=16 * GIB)
    assert (found.pid, found.name, found.num_bytes, found.memory) == (
        42,
        "python, train.py",
        9000 * MIB,
        "GPU",
    )
    assert gpu_neighbours((42,), whole_bytes=16 * GIB) == ()


def test_a_story_survives_and_stays_short(tmp_path: Path) -> None:
    story = StoryFile(tmp_path, most_bytes=5000)
    for step in range(200):
        story.tell(_moment(0, "training", step))
    text = (tmp_path / STORY_NAME).read_text()
    assert len(text) <= 5000
    told = read_story(f'{text}{{"memfit": "Mom')
    assert (told[0].step, told[-1].step) == (0, 199)


def _moment(epoch: int, phase: str, step: int) -> Moment:
    return Moment(
        at_seconds=0.0,
        phase=phase,
        model=0,
        epoch=epoch,
        step=step,
        device_bytes=MIB,
        peak_bytes=2 * MIB,
        host_bytes=GIB,
    )
