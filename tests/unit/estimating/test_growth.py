"""Sizes at other batches, and the peak that they make."""

import pytest

from memfit.estimating.growth import Law, law_through, record, replay
from memfit.estimating.timeline import Buffer, Timeline
from memfit.units import KIB


def step(*buffers: tuple[str, int, int, int | None]) -> Timeline:
    made = tuple(
        Buffer(op=op, turn=0, num_bytes=size, born=born, died=died) for op, size, born, died in buffers
    )
    return Timeline(buffers=made, num_moments=20)


@pytest.mark.parametrize(
    ("sizes", "at_100"),
    [
        ({4: 80}, 80),
        ({2: 80, 4: 80}, 80),
        ({2: 20, 3: 30, 4: 40}, 1000),
        ({2: 120, 4: 140}, 1100),
        ({2: 4, 3: 9, 4: 16}, 10_000),
        ({2: 104, 3: 109, 4: 116}, 10_100),
        ({2: 100, 3: 100, 4: 200}, 5000),  # A jump is no square.
    ],
)
def test_laws(sizes: dict[int, int], at_100: int) -> None:
    assert law_through(sizes).at(100) == at_100


def test_a_size_is_never_negative() -> None:
    assert Law(fixed=10.0, linear=-1.0).at(100) == 0


def at(batch: int) -> Timeline:
    """Two activations that die before the gradient of a large weight is there."""
    return step(
        ("dense/MatMul", batch * KIB, 0, 4),
        ("dense/Relu", batch * KIB, 1, 3),
        ("gradient_tape/dense/MatMul", 100 * KIB, 5, None),
    )


def test_the_peak_at_a_large_batch_may_be_another_moment() -> None:
    recording = record(at(4), 4, {2: at(2)})
    assert replay(recording, 4, []).needed_bytes == 100 * KIB
    assert [buffer.op for buffer, _ in replay(recording, 4, []).held] == ["gradient_tape/dense/MatMul"]
    large = replay(recording, 200, [])
    assert large.needed_bytes == 400 * KIB
    assert [buffer.op for buffer, _ in large.held] == ["dense/MatMul", "dense/Relu"]


def test_what_rests_is_added() -> None:
    assert replay(record(at(4), 4, {2: at(2)}), 200, [KIB, 1]).needed_bytes == 401 * KIB + 256


def test_buffers_of_one_op_are_told_apart_by_size() -> None:
    one = step(("op", 10 * KIB, 0, None), ("op", 4 * KIB, 1, None))
    other = step(("op", 2 * KIB, 0, None), ("op", 10 * KIB, 1, None))
    recording = record(one, 4, {2: other})
    assert [law.at(8) for law in recording.laws] == [10 * KIB, 8 * KIB]
    assert recording.num_unknown_bytes == 0


def sized(op: str, *sizes: int) -> Timeline:
    return step(*((op, size, 0, None) for size in sizes))


@pytest.mark.parametrize(
    ("eight", "twelve", "sixteen", "at_100"),
    [
        # An output that overtakes the workspace of its op, which stays.
        ([80, 100], [100, 120], [100, 160], [100, 1000]),
        # One on a line, and one that overtakes it.
        ([80, 138], [120, 142], [146, 160], [230, 1000]),
        # One that jumps, beside one that grows.
        ([80, 90], [90, 120], [140, 160], [665, 1000]),
        # Twice as large at twice the batch, and so as large as the other was.
        ([80, 160], [], [160, 320], [1000, 2000]),
    ],
)
def test_a_buffer_may_overtake_another_of_its_op(
    eight: list[int], twelve: list[int], sixteen: list[int], at_100: list[int]
) -> None:
    recording = record(sized("op", *sixteen), 16, {8: sized("op", *eight), 12: sized("op", *twelve)})
    assert [law.at(100) for law in recording.laws] == at_100


def test_what_no_other_batch_has_is_taken_to_grow() -> None:
    recording = record(step(("new", 4 * KIB, 0, None)), 4, {2: step()})
    assert recording.laws[0].at(8) == 8 * KIB
    assert recording.num_unknown_bytes == 4 * KIB


def test_a_size_that_all_batches_have_does_not_grow() -> None:
    one = step(("new", 4 * KIB, 0, None), ("weight", 4 * KIB, 1, None))
    recording = record(one, 4, {2: step(("weight", 4 * KIB, 1, None))})
    assert recording.laws[0].at(8) == 4 * KIB
    assert recording.num_unknown_bytes == 0


def test_old_values_of_variables_are_among_what_rests() -> None:
    update = step(("", 4 * KIB, -1, 3), ("new", 4 * KIB, 0, None), ("later", 4 * KIB, 5, None))
    recording = record(update, 4, {4: update})
    assert replay(recording, 4, [4 * KIB]).needed_bytes == 8 * KIB
