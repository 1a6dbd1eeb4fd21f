"""The six causes of dying after the first epoch, told apart from the story alone."""

from dataclasses import replace

import pytest

from memfit.guarding.first_epoch import Batches, Cause, find_cause
from memfit.records import Moment, Request
from memfit.units import GIB, MIB

START = Moment(
    at_seconds=0.0,
    phase="training",
    model=0,
    epoch=0,
    step=0,
    device_bytes=20 * MIB,
    peak_bytes=20 * MIB,
    host_bytes=500 * MIB,
)


def epoch(number: int, *, model: int = 0, resting: int = 20, host: int = 500, **counts: int) -> list[Moment]:
    """An epoch of ten steps with a peak of 100 MiB, and its validation."""
    common = replace(START, epoch=number, model=model, device_bytes=resting * MIB, host_bytes=host * MIB)
    return [
        common,
        replace(common, step=10, peak_bytes=100 * MIB),
        replace(common, phase="validation", peak_bytes=100 * MIB),
        replace(common, phase="validation", step=2, peak_bytes=100 * MIB),
        replace(common, phase="between", step=10, peak_bytes=100 * MIB, **counts),
    ]


def dying(number: int, **changes: object) -> Moment:
    return replace(START, epoch=number, step=3, peak_bytes=100 * MIB, **changes)  # type: ignore[arg-type]


VALIDATION = [*epoch(0)[:2], replace(START, phase="validation", peak_bytes=100 * MIB)]
KEPT = [
    *epoch(0, resting=30, num_tensors=100, tensor_bytes=10 * MIB, num_graphs=5),
    *epoch(1, resting=50, num_tensors=300, tensor_bytes=30 * MIB, num_graphs=5),
    dying(2, device_bytes=70 * MIB),
]
RETRACING = [
    *epoch(0, host=500, num_tensors=9, tensor_bytes=MIB, num_graphs=5),
    *epoch(1, host=700, num_tensors=9, tensor_bytes=MIB, num_graphs=25),
    *epoch(2, host=900, num_tensors=9, tensor_bytes=MIB, num_graphs=45),
    dying(3, host_bytes=950 * MIB),
]
BUFFER = [
    *epoch(0, host=500, num_tensors=9, tensor_bytes=MIB, num_graphs=5),
    *epoch(1, host=2000, num_tensors=9, tensor_bytes=MIB, num_graphs=5),
    dying(2, host_bytes=3 * GIB),
]
LONG = [
    *epoch(0, num_tensors=9, tensor_bytes=MIB, num_graphs=5),
    *epoch(1, num_tensors=9, tensor_bytes=MIB, num_graphs=5),
    dying(2),
]
NEXT = [*epoch(0), *epoch(0, model=1, resting=45), *epoch(0, model=2, resting=70)[:1]]


@pytest.mark.parametrize(
    ("moments", "is_host", "cause", "said"),
    [
        (VALIDATION, False, Cause.VALIDATION, "with a peak of 100 MiB; validation got through not one"),
        (
            KEPT,
            False,
            Cause.KEPT_TENSORS,
            "100 tensors of 10.0 MiB in epoch 0, and 300 of 30.0 MiB in epoch 1",
        ),
        (RETRACING, True, Cause.RETRACING, "5 graphs were alive after epoch 0, and 45 after epoch 2"),
        (
            BUFFER,
            True,
            Cause.DATA_BUFFER,
            "in host memory beside it between steps went from 400 MiB to 2.90 GiB",
        ),
        (LONG, False, Cause.LONG_BATCH, "asked for 60.0 MiB more for a tensor of shape [8, 4096]"),
        (NEXT, False, Cause.NEXT_MODEL, "20.0 MiB, 45.0 MiB, 70.0 MiB when the models"),
    ],
)
def test_the_six_causes(moments: list[Moment], is_host: bool, cause: Cause, said: str) -> None:
    request = Request(num_bytes=60 * MIB, shape=(8, 4096))
    verdict = find_cause(moments, is_host=is_host, request=request)
    assert verdict is not None
    assert verdict.cause is cause
    assert said in " ".join(verdict.evidence)


def test_a_batch_is_long_by_its_shapes_where_they_are_known() -> None:
    longer = Batches(died=((8, 400, 3),), largest=((8, 100, 3),))
    verdict = find_cause(LONG, is_host=False, batches=longer)
    assert verdict is not None
    assert verdict.cause is Cause.LONG_BATCH
    assert "were [8, 400, 3] against [8, 100, 3] of the largest batch before: 4 times" in verdict.evidence[0]
    same = Batches(died=((8, 100, 3),), largest=((8, 100, 3),))
    assert find_cause(LONG, is_host=False, batches=same) is None


def test_what_was_ruled_out_is_said() -> None:
    verdict = find_cause(BUFFER, is_host=True)
    assert verdict is not None
    assert "Not retracing: the number of graphs did not grow." in verdict.evidence


@pytest.mark.parametrize(
    "moments",
    [
        [],
        [START, replace(START, step=5)],  # It died in its first epoch.
        [replace(START, phase="prediction")],  # It never trained.
    ],
)
def test_before_the_end_of_the_first_epoch_nothing_is_said(moments: list[Moment]) -> None:
    assert find_cause(moments, is_host=False) is None


def test_a_validation_that_went_well_before_is_not_blamed() -> None:
    story = [*epoch(0), *epoch(1)[:3]]
    assert find_cause(story, is_host=False) is None


def test_two_models_that_take_turns_are_no_loop() -> None:
    story = [*epoch(0), *epoch(0, model=1, resting=45), *epoch(1, resting=45)[:2]]
    verdict = find_cause(story, is_host=False)
    assert verdict is None or verdict.cause is not Cause.NEXT_MODEL
