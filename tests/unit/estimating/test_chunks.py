"""The allocator on paper does what TensorFlow's does."""

from memfit.estimating.chunks import Chunks
from memfit.units import KIB, MIB


def test_a_request_is_rounded_up() -> None:
    chunks = Chunks()
    chunks.take(1)
    assert chunks.held_bytes == 256


def test_nothing_takes_nothing() -> None:
    chunks = Chunks()
    assert chunks.take(0) is None
    assert chunks.held_bytes == 0


def test_a_hole_of_less_than_twice_the_request_is_kept_whole() -> None:
    chunks = Chunks()
    first = chunks.take(1000 * KIB)
    chunks.take(1)  # Keeps the hole from growing back into the rest.
    assert first is not None
    chunks.give_back(first)
    assert chunks.take(600 * KIB) == first
    assert chunks.held_bytes == 1000 * KIB + 256


def test_a_hole_of_twice_the_request_is_split() -> None:
    chunks = Chunks()
    first = chunks.take(1000 * KIB)
    chunks.take(1)
    assert first is not None
    chunks.give_back(first)
    chunks.take(500 * KIB)
    assert chunks.held_bytes == 500 * KIB + 256


def test_the_smallest_hole_that_holds_it_is_taken() -> None:
    chunks = Chunks()
    starts = []
    for size in (4 * MIB, 2 * MIB, 3 * MIB):
        starts.append(chunks.take(size))
        chunks.take(1)
    for start in starts:
        assert start is not None
        chunks.give_back(start)
    assert chunks.take(2 * MIB) == starts[1]


def test_free_neighbours_are_joined() -> None:
    chunks = Chunks(16 * MIB)
    starts = [chunks.take(4 * MIB) for _ in range(4)]
    for start in (starts[1], starts[0], starts[3], starts[2]):
        assert start is not None
        chunks.give_back(start)
    assert chunks.take(16 * MIB) == 0
    assert chunks.peak_bytes == 16 * MIB
