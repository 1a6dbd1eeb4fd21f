"""The cuts against exhaustive search, and the laws that they keep."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.depth.cuts import Cuts, Options, Segment, fastest, leanest, least_bytes
from memfit.depth.graph import Graph, Node, cut_positions, lay_out, segment_options
from memfit.depth.parts import part_options
from memfit.records import DepthPart

blocks = st.tuples(st.integers(0, 9), st.integers(0, 30), st.floats(0.1, 4, allow_nan=False))


def chain(sizes: list[tuple[int, int, float]]) -> Options:
    """Blocks of (bytes of the cut behind, bytes of the tape, seconds), in all segments."""
    parts = [
        DepthPart(
            layer=str(index),
            cut_bytes=cut,
            new_bytes=cut,
            tape_bytes=tape,
            work_bytes=1,
            seconds=seconds,
            again_seconds=seconds / 2,
        )
        for index, (cut, tape, seconds) in enumerate(sizes)
    ]
    return part_options(parts)


def all_ways(options: Options) -> list[Cuts]:
    def ways(place: int) -> list[tuple[Segment, ...]]:
        if place == len(options):
            return [()]
        return [(segment, *rest) for segment in options[place] for rest in ways(segment.stop)]

    return [Cuts(segments=way) for way in ways(0)]


@given(st.lists(blocks, min_size=1, max_size=7), st.integers(0, 150))
def test_they_are_the_fastest_within_the_limit(sizes: list[tuple[int, int, float]], limit: int) -> None:
    options = chain(sizes)
    possible = [way for way in all_ways(options) if way.peak_bytes <= limit]
    found = fastest(options, limit)
    if not possible:
        assert found is None
    else:
        assert found is not None
        assert found.peak_bytes <= limit
        assert found.seconds == pytest.approx(min(way.seconds for way in possible))


@given(st.lists(blocks, min_size=1, max_size=7))
def test_the_least_is_the_least(sizes: list[tuple[int, int, float]]) -> None:
    options = chain(sizes)
    least = min(way.peak_bytes for way in all_ways(options))
    assert least_bytes(options) == least
    assert leanest(options).peak_bytes <= least


@given(st.lists(blocks, min_size=2, max_size=12), st.integers(10, 200), st.integers(0, 100))
def test_more_memory_is_never_slower(sizes: list[tuple[int, int, float]], limit: int, more: int) -> None:
    options = chain(sizes)
    tight, loose = fastest(options, limit), fastest(options, limit + more)
    if tight is not None:
        assert loose is not None
        assert loose.seconds <= tight.seconds


def layers(num: int) -> Graph:
    """Layers of a costly operation that the backward pass needs the input of, and a cheap one of 3 parts.

    Tensors of layer i: 4 i the product, 4 i + 1 and 4 i + 2 inside of the activation, 4 i + 3 its output.
    """
    nodes = []
    for at in range(num):
        before = (4 * at - 1,) if at else ()
        nodes += [
            Node(before, (4 * at,), 1.0),
            Node((4 * at,), (4 * at + 1,), 0.01),
            Node((4 * at,), (4 * at + 2,), 0.01),
            Node((4 * at + 1, 4 * at + 2), (4 * at + 3,), 0.01),
        ]
    needed = frozenset(tensor for at in range(num) for tensor in range(4 * at + 1, 4 * at + 4))
    return Graph(nodes=tuple(nodes), sizes=dict.fromkeys(range(4 * num), 100), needed=needed)


def test_the_cheap_is_computed_again_before_the_costly() -> None:
    graph = layers(8)
    places = cut_positions(graph)
    cuts = fastest(segment_options(graph, places), graph.needed_bytes // 2 + 400)
    assert cuts is not None
    again = {index for nodes in lay_out(graph, places, cuts).segments for index in nodes}
    assert again
    assert all(graph.nodes[index].seconds < 1 for index in again)


@pytest.mark.parametrize("limit", [700, 1200, 1800, 10**6])
def test_every_needed_tensor_is_kept_or_made_from_what_is_kept(limit: int) -> None:
    graph = layers(8)
    places = cut_positions(graph)
    options = segment_options(graph, places)
    cuts = fastest(options, max(limit, least_bytes(options)))
    assert cuts is not None
    layout = lay_out(graph, places, cuts)
    for number, nodes in enumerate(layout.segments):
        made: set[int] = set()
        for index in nodes:
            for tensor in graph.nodes[index].inputs:
                assert layout.segment_of.get(tensor, number) == number
                assert tensor in made or tensor not in layout.segment_of
            made.update(graph.nodes[index].outputs)
        wanted = {tensor for tensor, segment in layout.segment_of.items() if segment == number}
        assert wanted & graph.needed <= made


def test_enough_memory_computes_nothing_again() -> None:
    options = segment_options(layers(8), cut_positions(layers(8)))
    cuts = fastest(options, 10**9)
    assert cuts is not None
    assert cuts.seconds == 0


def test_the_last_segment_is_not_computed_again() -> None:
    graph = layers(12)
    cuts = fastest(segment_options(graph, cut_positions(graph)), 1500)
    assert cuts is not None
    assert cuts.seconds > 0
    assert cuts.segments[-1].seconds == 0


def test_what_cannot_be_repeated_is_kept() -> None:
    graph = layers(4)
    nodes = [
        Node(node.inputs, node.outputs, node.seconds, is_repeatable=index != 5)
        for index, node in enumerate(graph.nodes)
    ]
    graph = Graph(nodes=tuple(nodes), sizes=graph.sizes, needed=graph.needed)
    places = cut_positions(graph)
    layout = lay_out(graph, places, leanest(segment_options(graph, places)))
    assert 5 not in {index for segment in layout.segments for index in segment}
    assert graph.nodes[5].outputs[0] not in layout.segment_of


def test_a_long_skip_is_counted_once() -> None:
    # A tensor from the start that is used at the end crosses every cut between.
    graph = layers(6)
    nodes = (*graph.nodes[:-1], Node((1, 22), (23,), 0.01))
    with_skip = Graph(nodes=nodes, sizes=graph.sizes, needed=graph.needed)
    least = [least_bytes(segment_options(each, cut_positions(each))) for each in (graph, with_skip)]
    assert least[1] <= least[0] + 200


def cpu_seconds(num_layers: int) -> float:
    graph = layers(num_layers)
    start = time.process_time()
    options = segment_options(graph, cut_positions(graph))
    leanest(options)
    assert fastest(options, graph.needed_bytes // 3) is not None
    return time.process_time() - start


def test_the_work_does_not_grow_with_the_square_of_the_layers() -> None:
    few, many = zip(*((cpu_seconds(250), cpu_seconds(1000)) for _ in range(2)), strict=True)
    assert min(many) < 3 * min(few)


def test_places_are_in_order() -> None:
    places = cut_positions(layers(40))
    assert places[0] == 0
    assert places[-1] == 160
    assert all(one < other for one, other in pairwise(places))


@pytest.mark.parametrize(("num", "limit"), [(0, 1), (0, 10**6), (1, 1), (1, 10**6)])
def test_hardly_any_graph(num: int, limit: int) -> None:
    graph = layers(num)
    options = segment_options(graph, cut_positions(graph))
    assert (fastest(options, limit) is None) == (num == 1 and limit == 1)
