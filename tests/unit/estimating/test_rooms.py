"""In how much memory recorded steps find a place for every buffer."""

from memfit.estimating.growth import Recording, record, replay
from memfit.estimating.rooms import ROOM_STEP, fits, room_for
from memfit.estimating.timeline import Buffer, Timeline
from memfit.units import MIB


def recorded(*buffers: tuple[str, int, int, int | None]) -> Recording:
    made = tuple(
        Buffer(op=op, turn=0, num_bytes=size, born=born, died=died) for op, size, born, died in buffers
    )
    return record(Timeline(buffers=made, num_moments=20), 1, {})


def test_free_memory_in_holes_is_no_room() -> None:
    holes = recorded(("one", 4 * MIB, 0, 2), ("two", 4 * MIB, 1, None), ("three", 8 * MIB, 3, None))
    assert replay(holes, 1, []).num_bytes == 12 * MIB
    assert not fits([holes], 1, [], 12 * MIB)
    assert fits([holes], 1, [], 16 * MIB)
    assert not fits([holes], 1, [32 * MIB], 16 * MIB)


def test_the_room_is_found_from_below() -> None:
    holes = recorded(("one", 4 * MIB, 0, 2), ("two", 4 * MIB, 1, None), ("three", 8 * MIB, 3, None))
    room = room_for([holes], 1, [], 12 * MIB)
    assert 16 * MIB <= room <= 16 * MIB * ROOM_STEP
    assert room_for([holes], 1, [], 100 * MIB) == 100 * MIB


# A new value of a variable beside an activation: the old one was at the beginning, the new one is behind.
UPDATE = recorded(("activation", 8 * MIB, 0, 3), ("new", 2 * MIB, 1, None), ("", 2 * MIB, -1, 2))


def test_what_a_step_leaves_behind_is_in_the_way_of_the_next() -> None:
    assert replay(UPDATE, 1, [2 * MIB]).num_bytes == 12 * MIB
    large = recorded(("activation", 24 * MIB, 0, 1))
    # Each finds its room alone; after the update, the large one meets holes of 10 and 20 MiB.
    assert fits([large], 1, [2 * MIB], 32 * MIB)
    assert fits([UPDATE], 1, [2 * MIB], 32 * MIB)
    assert not fits([UPDATE, large], 1, [2 * MIB], 32 * MIB)


def test_steps_do_not_fill_the_memory_with_their_results() -> None:
    loss = recorded(("loss", 4 * MIB, 0, None))
    assert fits([loss] * 10, 1, [], 4 * MIB)
    # The variable is there once, wherever it is.
    assert fits([UPDATE] * 10, 1, [2 * MIB], 32 * MIB)
