"""What the terminal shows, at 80 columns without colour. `GOLDEN=write pytest tests/golden` writes it."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from memfit.cli import build_parser
from memfit.records import (
    Autopsy,
    Budget,
    Considered,
    DeviceFacts,
    DeviceReading,
    Estimate,
    EstimatedPart,
    Facts,
    Growth,
    Held,
    HostReading,
    Incident,
    Leak,
    LengthBin,
    LengthCut,
    Lengths,
    Measurement,
    Meter,
    Neighbour,
    Outcome,
    Padding,
    Plan,
    PlanChange,
    Reading,
    Record,
    Request,
    Run,
    Session,
    Source,
    Watched,
    WayOut,
)
from memfit.report.terminal import render, summarise
from memfit.units import GIB, MIB

FOLDER = Path(__file__).parent

BUDGET = Budget(
    device_bytes=2 * GIB,
    device_source="the argument '2GiB'",
    host_bytes=20 * GIB,
    host_source="what is left of the container's limit, /sys/fs/cgroup/memory.max",
)
READING = Reading(
    at_seconds=0.0,
    devices=(
        DeviceReading(device="CPU:0", current_bytes=5 * MIB, peak_bytes=90 * MIB, meter=Meter.ALLOCATOR),
    ),
    host_bytes=500 * MIB,
    host_peak_bytes=600 * MIB,
    children_bytes=MIB,
    container_bytes=700 * MIB,
)
OOM = Measurement(
    target="train.py --lr 0.1",
    outcome=Outcome.DEVICE_OUT_OF_MEMORY,
    reason="MatMul asked for 16.0 MiB, shape [2048, 2048] at train.py:30.",
    seconds=12.5,
    exit_code=-11,
    peak_bytes=90 * MIB,
    reading=READING,
    device_limit_bytes=100 * MIB,
    request=Request(num_bytes=16 * MIB, op="MatMul"),
)
FACTS = Facts(
    versions={"memfit": "0.1.0", "tensorflow": "2.19.0", "keras": "3.15.1"},
    is_supported={"tensorflow": False, "keras": True},
    devices=(
        DeviceFacts(device="CPU:0", description="host memory", limit_bytes=None, meter=Meter.ALLOCATOR),
        DeviceFacts(device="GPU:0", description="Tesla T4", limit_bytes=8 * GIB, meter=Meter.ALLOCATOR),
    ),
    tensorflow_error=None,
    allocator="best-fit, counts every byte (tested just now)",
    onednn="as TensorFlow decides (TF_ENABLE_ONEDNN_OPTS is unset)",
    num_cores=2,
    host_total_bytes=24 * GIB,
    host_available_bytes=20 * GIB,
    container_limit_bytes=None,
    container_bytes=700 * MIB,
    budget=BUDGET,
)
ESTIMATE = Estimate(
    batch_size=64,
    length=500,
    device="CPU:0",
    peak_bytes=200 * MIB,
    low_bytes=190 * MIB,
    high_bytes=215 * MIB,
    parts=(
        EstimatedPart(name="weights", num_bytes=10 * MIB, source=Source.DERIVED),
        EstimatedPart(name="activations", num_bytes=190 * MIB, source=Source.MEASURED),
    ),
    layers=tuple(
        EstimatedPart(name=f"lstm_{place}", num_bytes=(20 - place) * MIB, source=Source.MEASURED)
        for place in range(14)
    ),
    validation_peak_bytes=30 * MIB,
    validation_high_bytes=32 * MIB,
    host_bytes=3 * MIB,
    host_parts=(EstimatedPart(name="shuffle buffer", num_bytes=3 * MIB, source=Source.DERIVED),),
    step_seconds=0.25,
    num_parameters=1_234_567,
    probes=("batch 8, length 500", "batch 16, length 500"),
    notes=("the length was extrapolated.",),
)

SMALLER = Plan(micro_batch=16, time_segment=125)
PLAN = Plan(
    time_segment=125,
    evaluation_micro_batch=32,
    batch_size=64,
    num_parameters=1_234_567,
    fallbacks=(SMALLER, Plan(micro_batch=4, time_segment=32)),
    budget_bytes=256 * MIB,
    predicted_bytes=150 * MIB,
    predicted_seconds=0.4,
    rehearsed_bytes=152 * MIB,
    rehearsed_seconds=0.45,
    considered=(
        Considered(what="whole batches", peak_bytes=GIB, seconds=1.5, verdict="does not fit"),
        Considered(
            what="whole batches, time segments of 125", peak_bytes=152 * MIB, seconds=0.45, verdict="chosen"
        ),
    ),
    notes=("Something to know.",),
)
RUN = Run(
    plan=SMALLER,
    outcome=Outcome.OK,
    num_steps=1200,
    num_samples=76_800,
    seconds=99.0,
    peak_bytes=(150 * MIB, 160 * MIB),
    incidents=(
        Incident(
            step=700,
            epoch=1,
            where="training",
            what="out of memory in training: MatMul asked for 1.00 MiB.",
            action="the batch is run again with micro-batches of 16, time segments of 125.",
        ),
    ),
    plan_changes=(PlanChange(step=700, plan=SMALLER),),
    history={"loss": [4.5, 3.25]},
)

LENGTHS = Lengths(
    source="column 'text' of train.csv",
    is_sample=True,
    num_sequences=10_000,
    num_empty=3,
    num_steps=240_000,
    shortest=0,
    longest=512,
    step_bytes=4,
    bins=(
        LengthBin(shortest=0, longest=19, num_sequences=8_000),
        LengthBin(shortest=20, longest=39, num_sequences=1_996),
        LengthBin(shortest=40, longest=512, num_sequences=4),
    ),
    cuts=(
        LengthCut(percent=50, length=12, num_longer=5_000, num_lost_steps=130_000, saved_bytes=20 * MIB),
        LengthCut(percent=100, length=512, num_longer=0, num_lost_steps=0, saved_bytes=0),
    ),
    boundaries=(8, 16, 32, 512),
    paddings=(
        Padding(how="all padded to one length", num_steps=5_120_000),
        Padding(how="batches by length, 4 lengths", num_steps=300_000),
    ),
    notes=("empty sequences, which batches pad to the shortest length: 3.",),
)

LEAK = Leak(
    kind="kept",
    name="losses",
    file="train.py",
    line=42,
    num=1_203,
    num_bytes=1_288_490_188,
    growth=4.0,
    growth_per_epoch=400.0,
    sentence="`losses` in train.py:42 holds 1,203 tensors, 1.20 GiB, +400 an epoch.",
    fix="Keep numbers instead: float(loss).",
)
FLAT = Growth(
    series="host",
    slope=12.0,
    low=-5.0,
    high=40.0,
    confidence=0.6,
    is_growing=False,
    num_readings=180,
    last=800 * MIB,
    room=4 * GIB,
)
RISING = Growth(
    series="CPU:0",
    slope=4.0 * MIB,
    low=3.9 * MIB,
    high=4.1 * MIB,
    confidence=0.9999,
    is_growing=True,
    num_readings=180,
    last=1_300 * MIB,
    room=9_200 * MIB,
)
WATCHED = Watched(
    num_steps=1_203,
    num_epochs=3,
    num_readings=240,
    unit="step",
    seconds=0.35,
    growths=(RISING, FLAT),
    leaks=(LEAK,),
    notes=("something that could not be watched.",),
)


AUTOPSY = Autopsy(
    outcome=Outcome.DEVICE_OUT_OF_MEMORY,
    what="lstm_1/MatMul asked for 64.0 MiB, shape [32, 2048, 256] at train.py:42.",
    request=Request(num_bytes=64 * MIB, op="lstm_1/MatMul", shape=(32, 2048, 256), device="CPU:0"),
    place="train.py:42",
    phase="validation, epoch 0, after 0 batches",
    cause="validation takes more memory than training.",
    evidence=(
        "Training had gone through an epoch, with a peak of 180 MiB; validation got through not one of its "
        "batches.",
    ),
    limit_bytes=256 * MIB,
    in_use_bytes=200 * MIB,
    free_bytes=56 * MIB,
    largest_free_bytes=48 * MIB,
    held=(
        Held(name="activations, inputs and the rest", num_bytes=140 * MIB),
        Held(name="optimizer slots", num_bytes=40 * MIB, num=12),
        Held(name="weights", num_bytes=20 * MIB, num=6),
    ),
    layers=(
        Held(name="lstm_1", num_bytes=15 * MIB, num=3),
        Held(name="dense", num_bytes=5 * MIB, num=2),
    ),
    chunks=(Held(name="chunks of 16.0 MiB", num_bytes=128 * MIB, num=8),),
    epoch_peak_bytes=(180 * MIB, 181 * MIB),
    ways_out=(
        WayOut(
            what="the same script as memfit trains it: planned, split, by time segments, recovering",
            command="memfit run --budget 256MiB train.py --lr 0.1",
        ),
        WayOut(
            what="validation in batches of 16 instead of 32, at least",
            command="validation_batch_size=16 in train.py:42",
            predicted_bytes=162 * MIB,
            source=Source.DERIVED,
        ),
        WayOut(
            what="more memory: at least what was in use and what was asked for beside it",
            command="memfit run --budget 264MiB train.py --lr 0.1",
            predicted_bytes=264 * MIB,
            source=Source.DERIVED,
        ),
    ),
)
KILLED = Autopsy(
    outcome=Outcome.HOST_OUT_OF_MEMORY,
    what="the kernel killed it because the host's memory ran out.",
    cause="other processes took the memory.",
    evidence=("The script never had more than 2.00 GiB; beside it ran chrome (9.00 GiB).",),
    host_readings=tuple(
        HostReading(at_seconds=second, host_bytes=int(share * GIB))
        for second, share in ((0.2, 0.1), (5.0, 0.5), (10.0, 1.25), (14.8, 2.0))
    ),
    neighbours=(Neighbour(name="chrome", pid=4321, num_bytes=9 * GIB),),
    ways_out=(
        WayOut(
            what="data from disk instead of from memory",
            command='numpy.load("x.npy", mmap_mode="r") in a keras.utils.PyDataset, or no dataset.cache()',
        ),
    ),
)
SURVIVED = Autopsy(
    outcome=Outcome.DEVICE_OUT_OF_MEMORY,
    is_survived=True,
    what="it ran to its end, although 1 request for memory failed; the last: MatMul asked for 16.0 MiB.",
    limit_bytes=100 * MIB,
    in_use_bytes=90 * MIB,
    free_bytes=10 * MIB,
    largest_free_bytes=6 * MIB,
)
SESSION = Session(
    measurement=OOM,
    runs=(RUN,),
    autopsy=AUTOPSY,
    restarts=(
        "device out of memory: it died. It is started again with a budget of 80.0 MiB instead of 100 MiB.",
    ),
    notes=("model.fit of 'own' runs as plain Keras: Own has its own train_step.",),
)


def shown(record: Record) -> str:
    file = io.StringIO()
    Console(file=file, width=80, no_color=True, force_terminal=False).print(render(record))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def help_of(monkeypatch: pytest.MonkeyPatch, command: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    parser = build_parser()
    if not command:
        return parser.format_help()
    (actions,) = (action for action in parser._actions if isinstance(action.choices, dict))
    assert isinstance(actions.choices, dict)
    return str(actions.choices[command].format_help())


def compare(name: str, text: str) -> None:
    path = FOLDER / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("budget", BUDGET),
        ("reading", READING),
        ("measurement", OOM),
        ("facts", FACTS),
        ("estimate", ESTIMATE),
        ("plan", PLAN),
        ("run", RUN),
        ("lengths", LENGTHS),
        ("autopsy", AUTOPSY),
        ("autopsy_killed", KILLED),
        ("autopsy_survived", SURVIVED),
        ("session", SESSION),
        ("watched", WATCHED),
    ],
)
def test_records(name: str, record: Record) -> None:
    compare(name, shown(record))


@pytest.mark.parametrize("command", ["", "demo", "estimate", "plan", "lengths", "run", "facts", "report"])
def test_help(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    compare(f"help_{command or 'memfit'}", help_of(monkeypatch, command))


def test_summaries() -> None:
    died = summarise(OOM)
    whole = summarise(Measurement.from_dict(OOM.to_dict() | {"is_peak_exact": True}))
    assert died == "peak at least 90.0 MiB of the 100 MiB budget on CPU:0, host 600 MiB, 12.5 s"
    assert whole == "peak 90.0 MiB of the 100 MiB budget on CPU:0, host 600 MiB, 12.5 s"
