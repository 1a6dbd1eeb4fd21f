"""In how much memory recorded steps find a place for every buffer."""

from collections.abc import Sequence

from memfit.estimating.growth import Recording, record
from memfit.estimating.rooms import (
    FEWEST_WALKS,
    MOST_WALKS,
    ROOM_STEP,
    Step,
    Walk,
    all_walks,
    random_walks,
    room_for,
)
from memfit.estimating.timeline import Buffer, Timeline
from memfit.units import MIB


def recorded(*buffers: tuple[str, int, int, int | None]) -> Recording:
    made = tuple(
        Buffer(op=op, turn=0, num_bytes=size, born=born, died=died) for op, size, born, died in buffers
    )
    return record(Timeline(buffers=made, num_moments=20), 1, {})


HOLES = recorded(("one", 4 * MIB, 0, 2), ("two", 4 * MIB, 1, None), ("three", 8 * MIB, 3, None))


def walk(*recordings: Recording, resting: Sequence[int] = ()) -> Walk:
    return Walk([Step.of(each, 1) for each in recordings], resting)


def test_free_memory_in_holes_is_no_room() -> None:
    assert walk(HOLES).peaks() == [12 * MIB]
    assert not walk(HOLES).fits(12 * MIB)
    assert walk(HOLES).fits(16 * MIB)
    assert not walk(HOLES, resting=[32 * MIB]).fits(16 * MIB)


def test_the_room_is_found_from_below() -> None:
    assert 16 * MIB <= room_for([walk(HOLES)], 12 * MIB) <= 16 * MIB * ROOM_STEP
    assert room_for([walk(HOLES)], 100 * MIB) == 100 * MIB
    assert 13 * MIB < room_for([walk(HOLES)], 12 * MIB, most_bytes=13 * MIB) <= 13 * MIB * ROOM_STEP


def test_all_walks_must_fit() -> None:
    small = walk(recorded(("one", 13 * MIB, 0, 1)))
    assert 13 * MIB <= room_for([small, small], 12 * MIB) <= 13 * MIB * ROOM_STEP
    assert room_for([small, walk(HOLES)], 12 * MIB) >= 16 * MIB


def test_or_so_many_of_them() -> None:
    rooms = [walk(recorded(("one", size * MIB, 0, 1))) for size in (10, 20, 30, 40)]
    for share, size in ((0.25, 10), (0.5, 20), (0.75, 30), (1.0, 40)):
        assert size * MIB <= room_for(rooms, 5 * MIB, share=share) <= size * MIB * ROOM_STEP
    assert room_for(rooms[:1], 5 * MIB, share=0.0) >= 10 * MIB  # One at least.


# The large one takes all that is left behind the second, and leaves a hole of a quarter of a MiB.
FULL = (("one", MIB // 4, 0, 2), ("two", 4 * MIB, 1, None), ("large", 9 * MIB, 3, 5))


def test_who_asks_while_next_to_nothing_is_free_finds_no_place() -> None:
    small = ("small", MIB // 4, 4, 6)  # As large as the hole.
    rests = [MIB]  # In the allocator's first region.
    full, lucky = (walk(recorded(*buffers), resting=rests) for buffers in (FULL, (*FULL, small)))
    assert full.fits(20 * MIB)
    assert full.fits(20 * MIB, spare_share=0.03)  # Nobody asks any more.
    assert lucky.fits(20 * MIB)
    assert not lucky.fits(20 * MIB, spare_share=0.03)
    # From twice its size on, the large one leaves something.
    assert lucky.fits(23 * MIB, spare_share=0.03)
    assert room_for([full], 20 * MIB) == 20 * MIB
    assert 22 * MIB < room_for([lucky], 20 * MIB) < 23 * MIB


# A new value of a variable beside an activation: the old one was at the beginning, the new one is behind.
UPDATE = recorded(("activation", 8 * MIB, 0, 3), ("new", 2 * MIB, 1, None), ("", 2 * MIB, -1, 2))
LARGE = recorded(("activation", 24 * MIB, 0, 1))


def test_what_a_step_leaves_behind_is_in_the_way_of_the_next() -> None:
    # Each finds its room alone; after the update, the large one meets holes of 10 and 20 MiB.
    assert walk(LARGE, resting=[2 * MIB]).fits(32 * MIB)
    assert walk(UPDATE, resting=[2 * MIB]).fits(32 * MIB)
    assert not walk(UPDATE, LARGE, resting=[2 * MIB]).fits(32 * MIB)


def test_a_result_is_held_until_the_next_one_is_there() -> None:
    loss = recorded(("loss", 4 * MIB, 0, None))
    assert walk(loss, loss, loss).peaks() == [8 * MIB, 8 * MIB]
    assert not walk(loss, loss).fits(4 * MIB)
    # No more than two at once, and the variable is there once, wherever it is.
    assert walk(*[loss] * 10).fits(8 * MIB)
    assert walk(*[UPDATE] * 10, resting=[2 * MIB]).fits(32 * MIB)
    # It wanders off, and the activation gets the whole hole behind it, until that is worth splitting.
    peaks = walk(*[UPDATE] * 5, resting=[2 * MIB]).peaks()
    assert peaks == [14 * MIB, 16 * MIB, 18 * MIB, 12 * MIB]


def test_the_allocator_wastes_more_in_later_steps() -> None:
    # The second step finds the hole that the old value has left, and gets all of it, being more than half.
    small, resting = recorded(("activation", MIB + MIB // 2, 0, 1)), [2 * MIB, 3 * MIB]
    assert walk(small, resting=resting).peaks() == [6 * MIB + MIB // 2]
    assert walk(UPDATE, small, resting=resting).peaks() == [7 * MIB]


def test_a_new_value_whose_old_one_was_not_seen_to_go() -> None:
    update = recorded(("new", 2 * MIB, 0, None))
    assert walk(update, update, resting=[2 * MIB]).peaks() == [4 * MIB]


def waiting(awaited: tuple[int, ...]) -> Walk:
    """One buffer of 4 MiB beside an op that is about to give back another one."""
    buffers = (
        Buffer(op="input", turn=0, num_bytes=4 * MIB, born=0, died=2),
        Buffer(op="output", turn=0, num_bytes=4 * MIB, born=1, died=3, awaited=awaited),
    )
    return Walk([Step.of(record(Timeline(buffers=buffers, num_moments=4), 1, {}), 1)] * 2, [])


def test_where_there_is_no_room_it_waits_for_ops_under_way() -> None:
    assert waiting((0,)).peaks() == waiting(()).peaks() == [8 * MIB]  # With room enough, nobody waits.
    assert waiting((0,)).fits(4 * MIB)
    assert not waiting(()).fits(4 * MIB)
    assert not waiting((0,)).fits(3 * MIB)


def test_values_move_that_were_updated_in_place_when_they_were_recorded() -> None:
    work, rests = recorded(("activation", 8 * MIB, 0, 2), ("gradient", MIB, 1, 3)), [2 * MIB]
    still = random_walks([work], 1, rests)
    moving = random_walks([work], 1, rests, rests)
    assert {sum(map(len, walk.moves)) for walk in still} == {0}
    assert sum(len(moves) for walk in moving for moves in walk.moves) > len(moving)
    assert all(place >= 2 for walk in moving for moves in walk.moves for place in moves)
    assert {peak for walk in still for peak in walk.peaks()} == {11 * MIB}
    # The new value may be made after the activation, or beside it; and then it is in its way.
    assert {peak for walk in moving for peak in walk.peaks()} == {11 * MIB, 13 * MIB, 15 * MIB}
    assert room_for(still, 10 * MIB) < 12 * MIB < room_for(moving, 10 * MIB)


def test_in_a_step_that_asks_for_nothing_nothing_moves() -> None:
    for walk_ in random_walks([recorded()], 1, [MIB], [MIB]):
        assert not any(walk_.moves)
        assert walk_.fits(MIB)


def test_random_walks_are_the_same_each_time() -> None:
    recordings = [recorded(("one", size * MIB, 0, 1)) for size in range(1, 12)]
    walks = random_walks(recordings, 1, [MIB])
    assert walks == random_walks(recordings, 1, [MIB])
    assert len(walks) == MOST_WALKS
    assert len({tuple(walk.peaks()) for walk in walks}) == MOST_WALKS
    assert len(random_walks(recordings[:1], 1, [])) == 1  # One step has one order.


def test_walks_through_long_steps_are_few() -> None:
    long = recorded(*((f"op{number}", 256, 2 * number, 2 * number + 1) for number in range(18_000)))
    assert len(random_walks([long, long], 1, [])) == FEWEST_WALKS


def test_all_walks_pass_all_steps_twice() -> None:
    walks = all_walks([UPDATE, LARGE], 1, [MIB, 2 * MIB])
    assert {len(walk.steps) for walk in walks} == {4}
    assert [MIB, 2 * MIB] in [walk.resting for walk in walks]
    assert [2 * MIB, MIB] in [walk.resting for walk in walks]
