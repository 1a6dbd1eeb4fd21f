"""Births and deaths become buffers."""

from memfit.estimating.timeline import Event, timeline_of


def birth(at: int, address: int, num_bytes: int, op: str = "op") -> Event:
    return Event(at=at, is_birth=True, address=address, num_bytes=num_bytes, op=op)


def death(at: int, address: int, num_bytes: int = 0) -> Event:
    return Event(at=at, is_birth=False, address=address, num_bytes=num_bytes)


def test_an_address_may_be_used_again() -> None:
    found = timeline_of([birth(1, 8, 40), death(2, 8), birth(3, 8, 80), death(4, 8)]).buffers
    assert [(each.num_bytes, each.born, each.died) for each in found] == [(40, 0, 1), (80, 2, 3)]


def test_events_come_in_any_order() -> None:
    assert timeline_of([death(2, 8), birth(1, 8, 40)]) == timeline_of([birth(1, 8, 40), death(2, 8)])


def test_what_was_there_before_and_what_stays() -> None:
    old, new = timeline_of([birth(1, 16, 40), death(2, 8, 24)]).buffers
    assert (old.num_bytes, old.born, old.died) == (24, -1, 1)
    assert (new.num_bytes, new.born, new.died) == (40, 0, None)
