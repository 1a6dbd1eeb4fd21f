import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.errors import UsageError
from memfit.records import Plan, Request
from memfit.training import checking, fallbacks
from memfit.training.fallbacks import EVALUATION, TRAINING, next_plan


@given(st.integers(1, 5000), st.none() | st.integers(1, 5000))
def test_halving_ends_at_one_example_and_never_takes_longer_than_it_must(
    num: int, micro_batch: int | None
) -> None:
    plan = Plan(micro_batch=micro_batch)
    under_way = [min(num, micro_batch or num)]
    while smaller := next_plan(plan, where=TRAINING, num_examples=num, why_not_split=""):
        plan = smaller
        assert plan.micro_batch is not None
        under_way.append(plan.micro_batch)
    assert under_way[-1] == 1
    assert under_way == sorted(set(under_way), reverse=True)
    assert len(under_way) <= 14


def test_named_fallbacks_come_first_and_those_that_change_nothing_are_passed_over() -> None:
    plan = Plan(allow=("a",), fallbacks=(Plan(micro_batch=64), Plan(micro_batch=8), Plan(time_segment=4)))
    second = next_plan(plan, where=TRAINING, num_examples=32, why_not_split="")
    assert second is not None
    assert (second.micro_batch, second.allow) == (8, ("a",))
    third = next_plan(second, where=TRAINING, num_examples=32, why_not_split="")
    assert third is not None
    assert (third.micro_batch, third.time_segment) == (None, 4)
    fourth = next_plan(third, where=TRAINING, num_examples=32, why_not_split="")
    assert fourth is not None
    assert (fourth.micro_batch, fourth.time_segment) == (16, 4)


def test_what_must_not_be_split_is_not() -> None:
    plan = Plan(fallbacks=(Plan(micro_batch=8), Plan(time_segment=4)))
    second = next_plan(plan, where=TRAINING, num_examples=32, why_not_split="it is one")
    assert second is not None
    assert (second.micro_batch, second.time_segment) == (None, 4)
    assert next_plan(second, where=TRAINING, num_examples=32, why_not_split="it is one") is None


def test_evaluation_leaves_the_training_alone() -> None:
    plan = Plan(micro_batch=8, fallbacks=(Plan(micro_batch=2),))
    second = next_plan(plan, where=EVALUATION, num_examples=9, why_not_split="")
    assert second == Plan(micro_batch=8, evaluation_micro_batch=5, fallbacks=(Plan(micro_batch=2),))


@pytest.mark.parametrize(
    ("plan", "why_not", "has_rnn", "said"),
    [
        (Plan(), "it has BatchNormalization.", True, "it has BatchNormalization"),
        (Plan(micro_batch=1), "", True, "time_segment=32"),
        (Plan(micro_batch=1, time_segment=9), "", True, "time_segment=5"),
        (Plan(micro_batch=1), "", False, "at least 1.00 MiB"),
    ],
)
def test_what_would_help(plan: Plan, why_not: str, has_rnn: bool, said: str) -> None:
    request = Request(num_bytes=2**20)
    text = fallbacks.what_would_help(plan, why_not_split=why_not, has_rnn=has_rnn, request=request)
    assert said in text


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "8"])
def test_plans_that_cannot_be_right(value: object) -> None:
    with pytest.raises(UsageError, match="micro_batch of a plan must be a whole number"):
        checking.prepare_plan(Plan(fallbacks=(Plan(micro_batch=value),)))  # type: ignore[arg-type]


def test_allowing_what_is_unknown() -> None:
    with pytest.raises(UsageError, match=r"does not know 'magic'\..*split_batch_norm"):
        checking.prepare_plan(None, allow="magic")
    assert checking.prepare_plan(Plan(), allow="split_batch_norm").allow == ("split_batch_norm",)
    with pytest.raises(UsageError, match="plan must be a memfit"):
        checking.prepare_plan({"micro_batch": 8})  # type: ignore[arg-type]
