"""Births and deaths become buffers."""

from memfit.estimating.timeline import Event, timeline_of


def birth(
    at: int, address: int, num_bytes: int, op: str = "op", *, thread: int = 0, since: int | None = None
) -> Event:
    return Event(
        at=at, is_birth=True, address=address, num_bytes=num_bytes, op=op, thread=thread, since=since
    )


def death(at: int, address: int, num_bytes: int = 0, *, thread: int = 0, since: int | None = None) -> Event:
    return Event(at=at, is_birth=False, address=address, num_bytes=num_bytes, thread=thread, since=since)


def test_an_address_may_be_used_again() -> None:
    found = timeline_of([birth(1, 8, 40), death(2, 8), birth(3, 8, 80), death(4, 8)]).buffers
    assert [(each.num_bytes, each.born, each.died) for each in found] == [(40, 0, 1), (80, 2, 3)]


def test_events_come_in_any_order() -> None:
    assert timeline_of([death(2, 8), birth(1, 8, 40)]) == timeline_of([birth(1, 8, 40), death(2, 8)])


def test_what_was_there_before_and_what_stays() -> None:
    old, new = timeline_of([birth(1, 16, 40), death(2, 8, 24)]).buffers
    assert (old.num_bytes, old.born, old.died) == (24, -1, 1)
    assert (new.num_bytes, new.born, new.died) == (40, 0, None)


def test_a_buffer_can_wait_for_what_an_op_on_another_thread_gives_back() -> None:
    input_ = birth(1, 8, 40)
    events = [input_, birth(3, 16, 40, "late"), death(5, 8, thread=1, since=2)]
    assert [each.awaited for each in timeline_of(events).buffers] == [(), (0,)]
    # An op that began only afterwards may need what was asked for; one on the same thread does not end first.
    begun_later = [input_, birth(3, 16, 40), death(5, 8, thread=1, since=4)]
    same_thread = [input_, birth(3, 16, 40), death(5, 8, thread=0, since=2)]
    not_known = [input_, birth(3, 16, 40), death(5, 8, thread=1)]
    for others in (begun_later, same_thread, not_known):
        assert [each.awaited for each in timeline_of(others).buffers] == [(), ()]


def test_an_op_that_still_asks_for_memory_itself_is_not_waited_for() -> None:
    events = [
        birth(1, 8, 40),
        birth(3, 16, 40, "late"),
        birth(4, 24, 40, "scratch", thread=1, since=2),
        birth(5, 32, 40, "later"),
        death(6, 8, thread=1, since=2),
        death(7, 24, thread=1, since=2),
    ]
    first, late, scratch, later = timeline_of(events).buffers
    assert (first.awaited, late.awaited, scratch.awaited) == ((), (), ())
    assert later.awaited == (0, 2)  # In the order of their deaths.


def test_what_was_there_before_can_be_waited_for() -> None:
    old, new = timeline_of([birth(3, 16, 40), death(5, 8, 24, thread=1, since=2)]).buffers
    assert (old.born, new.awaited) == (-1, (0,))
