"""Whatever holds an object, its name is found."""

import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from memfit.guarding import naming
from memfit.guarding.deadline import Deadline
from memfit.guarding.naming import name_of

GLOBAL: list[object] = []
NESTED: dict[str, list[object]] = {"deep": []}


class Thing:
    """Something that the garbage collector knows, as tensors are."""


class Owner:
    shared: list[object] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.own: list[object] = []


class Slotted:
    __slots__ = ("slot",)

    def __init__(self) -> None:
        self.slot: list[object] = []


@pytest.fixture(autouse=True)
def in_users_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfit.guarding.naming.is_user_file", lambda file: file == __file__)


def found(asked: object) -> tuple[str, str] | None:
    named = name_of(asked)
    return None if named is None else (named.name, named.variable)


def test_a_local() -> None:
    holder: list[object] = []
    assert found(holder) == ("holder", "holder")


def test_a_global() -> None:
    assert found(GLOBAL) == ("GLOBAL", "GLOBAL")


def test_inside_another_container() -> None:
    assert found(NESTED["deep"]) == ("NESTED", "NESTED")


def test_an_attribute() -> None:
    def make() -> list[object]:
        GLOBAL.append(Owner())
        return GLOBAL[-1].own  # type: ignore[attr-defined,no-any-return]

    try:
        assert ("Owner.own", "own") in {(each.name, each.variable) for each in _all(make())}
    finally:
        GLOBAL.clear()


def test_an_attribute_of_a_class_whose_module_another_script_has_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `__main__` is, after `runpy.run_path` and at the end of `memfit run`."""
    owner = Owner()
    monkeypatch.setattr(Owner, "__module__", "json")
    monkeypatch.setattr("memfit.guarding.naming.is_user_file", lambda file: True)
    names = naming._names(owner.own, 0, {id(owner.own)}, Deadline(None))
    assert {each.file for each in names if each.name == "Owner.own"} == {__file__}


def test_a_class_attribute_and_a_slot() -> None:
    owner = Slotted()
    assert ("Owner.shared", "shared") in {(each.name, each.variable) for each in _all(Owner.shared)}
    assert ("Slotted.slot", "slot") in {(each.name, each.variable) for each in _all(owner.slot)}


def test_a_closure() -> None:
    def make() -> Callable[[object], None]:
        seen: list[object] = []

        def step(value: object) -> None:
            seen.append(value)

        return step

    step = make()
    assert step.__closure__ is not None
    assert found(step.__closure__[0].cell_contents) == ("seen", "seen")


def test_a_default() -> None:
    def step(value: int, cache: list[object] = []) -> None:  # noqa: B006
        cache.append(value)

    assert step.__defaults__ is not None
    assert found(step.__defaults__[0]) == ("cache", "cache")


def test_a_generators_local() -> None:
    def batches() -> Iterator[list[object]]:
        held: list[object] = []
        while True:
            held.append(Thing())
            yield held

    source = batches()
    assert ("held", "held") in {(each.name, each.variable) for each in _all(next(source))}


def test_looking_keeps_nothing_alive() -> None:
    """Reading a frame's locals makes a copy that the frame keeps."""
    thing, holder = Thing(), [Thing()]
    name_of(holder)
    before = len(gc.get_referrers(thing))
    name_of(holder)
    assert len(gc.get_referrers(thing)) == before
    if sys.version_info < (3, 13):
        assert sys._getframe().f_back is not None


def _all(asked: object) -> list[naming.Named]:
    names = naming._names(asked, 0, {id(asked)}, Deadline(None))
    return [each for each in names if each.file == __file__]


def test_a_search_ends_in_time() -> None:
    holder: list[object] = []
    local = name_of(holder, Deadline(0.0))
    assert local is not None  # It costs no look at the heap.
    late = name_of(GLOBAL, Deadline(0.0))
    assert late is None
    assert found(GLOBAL) is not None
