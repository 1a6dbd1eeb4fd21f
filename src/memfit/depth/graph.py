"""A step as operations and tensors, where it can be cut, and what a segment between two cuts costs. Pure.

Operations stand in the order in which they run. A cut between two of them is crossed by the tensors made
before it and used after it. What crosses a cut is kept; what a segment makes for itself alone can be made
again from that. The output of a costly operation right before a cut is therefore never computed twice, which
is why cuts right behind such operations are so good: only what is cheap is left between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memfit.depth.cuts import Cuts, Options, Segment

# How many blocks a segment may have.
LENGTHS: Final = (*range(1, 9), 10, 12, 16, 20, 24, 32, 48, 64)
# Up to here, it may have any number.
MOST_EXACT: Final = 16
# Cuts considered. The block that holds the least is joined to its neighbour until there are no more.
MOST_POSITIONS: Final = 400
# Tensors up to this share of all that the backward pass needs are kept: they are not worth the work.
SMALL_SHARE: Final = 1 / 5000
# Gradients under way while a segment is walked back, in its largest tensors.
WORK_TENSORS: Final = 2


@dataclass(frozen=True, slots=True)
class Node:
    """An operation.

    Args:
        inputs: The tensors that it uses.
        outputs: The tensors that it makes.
        seconds: How long it runs.
        is_repeatable: Whether running it twice gives the same and changes nothing.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    seconds: float
    is_repeatable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is kept and what is computed again.

    Args:
        segments: The operations of each segment that are repeated, in order; empty where it is kept.
        segment_of: For a tensor that is made again, its segment.
    """

    segments: tuple[tuple[int, ...], ...]
    segment_of: dict[int, int]


@dataclass(frozen=True)
class Graph:
    """A forward pass.

    Args:
        nodes: The operations in the order in which they run.
        sizes: The bytes of every tensor that a node makes; tensors from outside are not in it.
        needed: The tensors that the backward pass uses.
        ends: The tensors that leave the forward pass: they are there anyway.
    """

    nodes: tuple[Node, ...]
    sizes: dict[int, int]
    needed: frozenset[int]
    ends: frozenset[int] = frozenset()
    born: dict[int, int] = field(init=False, repr=False)
    last_use: dict[int, int] = field(init=False, repr=False)
    always_kept: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        born = {tensor: index for index, node in enumerate(self.nodes) for tensor in node.outputs}
        last_use = dict(born)
        for index, node in enumerate(self.nodes):
            last_use.update((tensor, index) for tensor in node.inputs if tensor in born)
        small = SMALL_SHARE * self.needed_bytes
        fixed = {
            tensor
            for node in self.nodes
            for tensor in node.outputs
            if not node.is_repeatable or self.sizes[tensor] <= small
        }
        object.__setattr__(self, "born", born)
        object.__setattr__(self, "last_use", last_use)
        object.__setattr__(self, "always_kept", frozenset(fixed) | self.ends)

    @property
    def needed_bytes(self) -> int:
        """What the backward pass needs, all together: what plain Keras keeps."""
        return sum(self.sizes.get(tensor, 0) for tensor in self.needed)

    @property
    def seconds(self) -> float:
        """The whole forward pass."""
        return sum(node.seconds for node in self.nodes)


def cut_positions(graph: Graph) -> list[int]:
    """Where a cut is worth considering, from 0 to the number of nodes: where little crosses it."""
    live = live_bytes(graph)
    last = len(graph.nodes)
    if last < 2:
        return [0, last] if last else [0]
    slack = SMALL_SHARE * graph.needed_bytes
    is_low = [
        live[place] <= live[place - 1] + slack and live[place] <= live[place + 1] + slack
        for place in range(1, last)
    ]
    costly = graph.seconds / 500
    found = [0]
    for place in range(1, last):
        if not is_low[place - 1]:
            continue
        is_first = place == 1 or not is_low[place - 2]
        is_last = place == last - 1 or not is_low[place]
        if is_first or is_last or graph.nodes[place - 1].seconds > costly:
            found.append(place)
    return _thinned(graph, [*found, last])


def live_bytes(graph: Graph) -> list[int]:
    """For each place, the bytes that cross it."""
    change = [0] * (len(graph.nodes) + 2)
    for tensor, index in graph.born.items():
        if tensor not in graph.always_kept:
            change[index + 1] += graph.sizes[tensor]
            change[graph.last_use[tensor] + 1] -= graph.sizes[tensor]
    live, total = [], 0
    for each in change[:-1]:
        total += each
        live.append(total)
    return live


def _thinned(graph: Graph, places: list[int]) -> list[int]:
    """Drops places between which the backward pass needs nothing, then the ones that part the least."""
    weights = [0] * len(graph.nodes)
    for tensor in graph.needed - graph.always_kept:
        if tensor in graph.born:
            weights[graph.born[tensor]] += graph.sizes[tensor]
    sums = [0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    while len(places) > MOST_POSITIONS + 1:
        gains = [(sums[places[at + 1]] - sums[places[at - 1]], at) for at in range(1, len(places) - 1)]
        surplus = len(places) - MOST_POSITIONS - 1
        # Not two neighbours in one go.
        dropped: set[int] = set()
        for _, at in sorted(gains):
            if len(dropped) < surplus and at - 1 not in dropped and at + 1 not in dropped:
                dropped.add(at)
        places = [place for at, place in enumerate(places) if at not in dropped]
    return places


def segment_options(graph: Graph, places: Sequence[int]) -> Options:
    """All segments between cuts at these places, each kept or computed again."""
    num_blocks = len(places) - 1
    lengths = LENGTHS if num_blocks > MOST_EXACT else tuple(range(1, num_blocks + 1))
    options = []
    for start in range(num_blocks):
        stops = [start + length for length in lengths if start + length <= num_blocks]
        again = [_recomputed_segment(graph, places, start, stop) for stop in stops]
        options.append([_kept_segment(graph, places, start), *again])
    return options


def _made(graph: Graph, begin: int, end: int) -> Iterable[int]:
    return (tensor for node in graph.nodes[begin:end] for tensor in node.outputs)


def _kept_segment(graph: Graph, places: Sequence[int], start: int) -> Segment:
    begin, end = places[start], places[start + 1]
    made = [tensor for tensor in _made(graph, begin, end) if tensor not in graph.ends]
    kept = [each for each in made if each in graph.needed or graph.last_use[each] >= end]
    return Segment(
        start=start,
        stop=start + 1,
        kept_bytes=sum(graph.sizes[tensor] for tensor in kept),
        held_bytes=WORK_TENSORS * _largest(graph, made),
        seconds=0.0,
        is_recomputed=False,
    )


def _recomputed_segment(graph: Graph, places: Sequence[int], start: int, stop: int) -> Segment:
    begin, end = places[start], places[stop]
    nodes, again = _again(graph, begin, end, ends_at=end)
    made = [tensor for tensor in _made(graph, begin, end) if tensor not in graph.ends]
    used = {tensor for index in nodes for tensor in graph.nodes[index].inputs}
    kept = [
        each
        for each in made
        if graph.last_use[each] >= end
        or (each in graph.always_kept and (each in used or each in graph.needed))
    ]
    return Segment(
        start=start,
        stop=stop,
        kept_bytes=sum(graph.sizes[tensor] for tensor in kept),
        held_bytes=sum(graph.sizes[tensor] for tensor in again) + WORK_TENSORS * _largest(graph, made),
        seconds=sum(graph.nodes[index].seconds for index in nodes),
        is_recomputed=True,
    )


def _largest(graph: Graph, tensors: Iterable[int]) -> int:
    return max((graph.sizes[tensor] for tensor in tensors), default=0)


def _again(graph: Graph, begin: int, end: int, *, ends_at: int) -> tuple[list[int], list[int]]:
    """The nodes that make again what the backward pass needs of a segment, and what it needs of it."""
    wanted: set[int] = set()
    needed: list[int] = []
    nodes: list[int] = []
    for index in range(end - 1, begin - 1, -1):
        node = graph.nodes[index]
        is_wanted = False
        for tensor in node.outputs:
            if tensor in graph.always_kept or graph.last_use[tensor] >= ends_at:
                continue
            if tensor in graph.needed:
                needed.append(tensor)
                is_wanted = True
            elif tensor in wanted:
                is_wanted = True
        if is_wanted:
            nodes.append(index)
            wanted.update(node.inputs)
    nodes.reverse()
    return nodes, needed


def lay_out(graph: Graph, places: Sequence[int], cuts: Cuts) -> Layout:
    """Which operations are repeated in each segment of the cuts."""
    segments: list[tuple[int, ...]] = []
    segment_of: dict[int, int] = {}
    for number, segment in enumerate(cuts.segments):
        nodes: list[int] = []
        if segment.is_recomputed:
            begin, end = places[segment.start], places[segment.stop]
            nodes, _ = _again(graph, begin, end, ends_at=end)
            segment_of.update(
                (tensor, number)
                for index in nodes
                for tensor in graph.nodes[index].outputs
                if tensor not in graph.always_kept and graph.last_use[tensor] < end
            )
        segments.append(tuple(nodes))
    return Layout(segments=tuple(segments), segment_of=segment_of)
