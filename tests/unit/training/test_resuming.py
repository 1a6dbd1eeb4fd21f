"""How often, at which batch, and for which run: decided without TensorFlow."""

from dataclasses import replace
from pathlib import Path

import pytest

from memfit.errors import ResumeError, UsageError
from memfit.training.resuming import (
    Identity,
    Lengths,
    Pace,
    Position,
    Resume,
    VariableNote,
    check_complete,
    check_run,
    check_variables,
)


def test_resume_takes_a_folder() -> None:
    assert Resume.of("run") == Resume("run")
    assert Resume.of(Resume("run", every_steps=3)).every_steps == 3


@pytest.mark.parametrize("wrong", [{"every_steps": 0}, {"every_seconds": -1.0}])
def test_resume_refuses(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be above zero"):
        Resume("run", **wrong)
    with pytest.raises(UsageError, match="must name a folder"):
        Resume("")


def test_pace_by_steps_and_by_time() -> None:
    pace = Pace(Resume("run", every_steps=10, every_seconds=5.0), now_seconds=100.0)
    assert not pace.is_due(9, 104.9)
    assert pace.is_due(10, 100.0)
    assert pace.is_due(1, 105.0)
    pace.written(10, 105.0)
    assert not pace.is_due(19, 109.0)


def test_pace_without_a_word_is_a_minute() -> None:
    pace = Pace(Resume("run"), now_seconds=0.0)
    assert not pace.is_due(10**6, 59.0)
    assert pace.is_due(1, 60.0)


def epochs(lengths: Lengths, num_epochs: int) -> list[list[tuple[int, int]]]:
    """Pass and batch of each step."""
    position = Position(epoch=0)
    found = []
    for _ in range(num_epochs):
        steps = []
        total = lengths.epoch_steps(position)
        assert total is not None
        while position.step < total:
            steps.append((position.pass_index, position.offset))
            position = lengths.after_call(position)
        found.append(steps)
        position = lengths.after_epoch(position)
    return found


def test_an_epoch_is_a_pass() -> None:
    assert epochs(Lengths(num_batches=2), 2) == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


def test_epochs_of_some_steps() -> None:
    lengths = Lengths(num_batches=3, steps_per_epoch=2)
    assert epochs(lengths, 3) == [[(0, 0), (0, 1)], [(0, 2)], [(1, 0), (1, 1)]]


def test_epochs_of_endless_data() -> None:
    lengths = Lengths(num_batches=None, steps_per_epoch=2)
    assert epochs(lengths, 2) == [[(0, 0), (0, 1)], [(0, 2), (0, 3)]]


def test_several_steps_a_call() -> None:
    lengths = Lengths(num_batches=5, steps_per_execution=2)
    assert epochs(lengths, 2) == [[(0, 0), (0, 2), (0, 4)], [(1, 0), (1, 2), (1, 4)]]


def test_samples_are_counted() -> None:
    lengths = Lengths(num_batches=3, batch_size=4, num_samples=10)
    position = Position(epoch=0, num_samples=0)
    for _ in range(3):
        position = lengths.after_call(position)
    assert (position.num_samples, position.num_steps) == (10, 3)


KERNEL = VariableNote.of("sequential_2/dense_11/kernel", (2, 3), "float32")


def test_names_are_without_running_numbers() -> None:
    assert KERNEL.name == "sequential/dense/kernel"
    assert VariableNote.of("adam/sequential_1_dense_2_kernel_momentum", (), "float32").name == (
        "adam/sequential_dense_kernel_momentum"
    )


def test_another_model_is_told_by_its_first_variable() -> None:
    check_variables((KERNEL,), (KERNEL,), Path("run"))
    other = replace(KERNEL, shape=(2, 4))
    with pytest.raises(ResumeError, match=r"kernel float32\[2, 3\] there, .*kernel float32\[2, 4\] here"):
        check_variables((KERNEL,), (other,), Path("run"))
    with pytest.raises(ResumeError, match="1 variables there, 2 here"):
        check_variables((KERNEL,), (KERNEL, KERNEL), Path("run"))


def test_variables_that_come_late() -> None:
    with pytest.raises(UsageError, match="made variables that were not there before"):
        check_complete((), (KERNEL,))


def test_another_run() -> None:
    kept = Identity(version="1", variables=(), arguments={"batch_size": 8}, data={"num_samples": 5})
    check_run(kept, {"batch_size": 8}, {"num_samples": 5}, "1", Path("run"))
    with pytest.raises(ResumeError, match="written by memfit 1, and this is memfit 2"):
        check_run(kept, {"batch_size": 8}, {"num_samples": 5}, "2", Path("run"))
    with pytest.raises(ResumeError, match="batch_size=8, but received batch_size=4"):
        check_run(kept, {"batch_size": 4}, {"num_samples": 5}, "1", Path("run"))
    with pytest.raises(ResumeError, match="num_samples was 5 and is now 6"):
        check_run(kept, {"batch_size": 8}, {"num_samples": 6}, "1", Path("run"))
