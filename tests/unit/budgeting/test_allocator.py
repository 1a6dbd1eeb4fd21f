import pytest

from memfit.budgeting import allocator, machine
from memfit.errors import MemfitWarning, UnitError
from memfit.units import MIB


def test_the_true_meter_is_asked_for_without_a_limit_that_was_not_there() -> None:
    environment: dict[str, str] = {}
    allocator.turn_on(environment)
    assert allocator.is_on(environment)
    assert int(environment[allocator.LIMIT_MIB]) * MIB > machine.total_bytes()
    assert allocator.limit_bytes(environment) is None


def test_the_users_own_choice_is_kept() -> None:
    environment = {allocator.USE_BFC: "false", allocator.LIMIT_MIB: "100"}
    allocator.turn_on(environment)
    assert environment == {allocator.USE_BFC: "false", allocator.LIMIT_MIB: "100"}
    assert allocator.limit_bytes(environment) is None


def test_the_default_allocator_can_be_chosen() -> None:
    environment = {allocator.CHOICE: "default"}
    allocator.turn_on(environment)
    assert environment == {allocator.CHOICE: "default"}


def test_another_choice_is_said_to_be_none() -> None:
    environment = {allocator.CHOICE: "jemalloc"}
    with pytest.warns(MemfitWarning, match=r"bfc or default\. Received: 'jemalloc'"):
        allocator.turn_on(environment)
    assert allocator.is_on(environment)


def test_a_limit_leaves_the_first_region_beside_it() -> None:
    environment: dict[str, str] = {}
    allocator.set_limit(environment, 100 * MIB + 5)
    assert environment[allocator.LIMIT_MIB] == "102"
    assert environment[allocator.BUDGET] == str(100 * MIB + 5)
    assert allocator.ONEDNN not in environment


def test_under_a_limit_there_are_threads_to_spare_unless_the_user_said_how_many() -> None:
    environment: dict[str, str] = {}
    allocator.turn_on(environment)
    assert allocator.THREADS not in environment
    allocator.set_limit(environment, MIB)
    assert int(environment[allocator.THREADS]) > machine.num_cores()
    own = {allocator.THREADS: "1"}
    allocator.set_limit(own, MIB)
    assert own[allocator.THREADS] == "1"


def test_a_limit_below_one_mib_is_refused() -> None:
    with pytest.raises(UnitError, match="The smallest limit is 1MiB"):
        allocator.set_limit({}, MIB - 1)


@pytest.mark.parametrize("text", ["", "many", "0", "-5"])
def test_a_limit_that_is_none(text: str) -> None:
    assert allocator.limit_bytes({allocator.USE_BFC: "1", allocator.LIMIT_MIB: text}) is None
