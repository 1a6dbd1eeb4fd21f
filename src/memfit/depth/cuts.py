"""Where to cut a chain: the fastest choice of segments that stays within a limit. Pure.

A chain has places 0 to n. A segment leads from one place to a later one, and is either kept whole or computed
again on the way back. In the forward pass every segment adds what it keeps. On the way back, a segment is
walked with all that those before it keep, and with what it unfolds itself; what came after it is gone. So

    peak = max over segments of (kept by those before + kept by it + held while it is walked back)

and the choice is a path from place 0 to place n. For every place only those ways to it are followed that no
other beats in both bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

# Ways followed at a place. Beyond that they are thinned out, and the result may be a little slower than
# the fastest; 500 layers are solved in one to two seconds with it.
MOST_WAYS: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of the chain, and one way to treat it.

    Args:
        start: The place where it begins.
        stop: The place where it ends.
        kept_bytes: What it adds to what is held until the backward pass comes to it.
        held_bytes: What is there besides while it is walked back.
        seconds: What is computed again takes so long; 0 if nothing is.
        is_recomputed: Whether it is computed again.
    """

    start: int
    stop: int
    kept_bytes: int
    held_bytes: int
    seconds: float
    is_recomputed: bool


Options = Sequence[Sequence[Segment]]
"""For every place but the last, the segments that begin there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """A way through a chain.

    Args:
        segments: From the inputs to the outputs.
    """

    segments: tuple[Segment, ...]

    @property
    def seconds(self) -> float:
        """What is computed again takes so long."""
        return sum(segment.seconds for segment in self.segments)

    @property
    def peak_bytes(self) -> int:
        """The most that is held at once on the way back."""
        kept_bytes, peak_bytes = 0, 0
        for segment in self.segments:
            kept_bytes += segment.kept_bytes
            peak_bytes = max(peak_bytes, kept_bytes + segment.held_bytes)
        return peak_bytes


class _Way(NamedTuple):
    """A way to a place: what it keeps, what it takes, its last segment, and the way before that."""

    kept_bytes: int
    seconds: float
    segment: Segment | None
    before: _Way | None


def fastest(options: Options, limit_bytes: int) -> Cuts | None:
    """The fastest cuts whose peak is within the limit, or `None` if there are none.

    Example:
    >>> keep = Segment(start=0, stop=1, kept_bytes=9, held_bytes=0, seconds=0.0, is_recomputed=False)
    >>> again = Segment(start=0, stop=1, kept_bytes=1, held_bytes=4, seconds=2.0, is_recomputed=True)
    >>> fastest([[keep, again]], 8).seconds
    2.0
    """
    ways: list[list[_Way]] = [[] for _ in range(len(options) + 1)]
    ways[0] = [_Way(0, 0.0, None, None)]
    for place, segments in enumerate(options):
        for way in _best(ways[place]):
            for segment in segments:
                kept_bytes = way.kept_bytes + segment.kept_bytes
                if kept_bytes + segment.held_bytes <= limit_bytes:
                    ways[segment.stop].append(_Way(kept_bytes, way.seconds + segment.seconds, segment, way))
    ends = _best(ways[-1])
    return _path(min(ends, key=lambda way: way.seconds)) if ends else None


def least_bytes(options: Options) -> int:
    """The lowest peak that any cuts reach."""
    low, high = 0, _keep_all(options)
    while low < high:
        middle = (low + high) // 2
        if _is_possible(options, middle):
            high = middle
        else:
            low = middle + 1
    return high


def leanest(options: Options) -> Cuts:
    """Of the cuts with the lowest peak, the fastest."""
    found = fastest(options, least_bytes(options))
    assert found is not None, "the lowest peak was reached before"
    return found


def _keep_all(options: Options) -> int:
    """A peak that can be reached: that of the way by the first segment of every place."""
    segments, place = [], 0
    while place < len(options):
        segments.append(options[place][0])
        place = options[place][0].stop
    return Cuts(segments=tuple(segments)).peak_bytes


def _is_possible(options: Options, limit_bytes: int) -> bool:
    """Whether any way stays within the limit: less kept is never worse, so the least at a place is enough."""
    least: list[int | None] = [None] * (len(options) + 1)
    least[0] = 0
    for place, segments in enumerate(options):
        before = least[place]
        if before is None:
            continue
        for segment in segments:
            kept_bytes = before + segment.kept_bytes
            best = least[segment.stop]
            if kept_bytes + segment.held_bytes <= limit_bytes and (best is None or kept_bytes < best):
                least[segment.stop] = kept_bytes
    return least[-1] is not None


def _best(ways: list[_Way]) -> list[_Way]:
    """The ways that no other beats in both, from the least kept to the fastest, and not too many."""
    found: list[_Way] = []
    for way in sorted(ways, key=itemgetter(0, 1)):
        if not found or way.seconds < found[-1].seconds:
            found.append(way)
    if len(found) <= MOST_WAYS:
        return found
    last = len(found) - 1
    return [found[index * last // (MOST_WAYS - 1)] for index in range(MOST_WAYS)]


def _path(way: _Way | None) -> Cuts:
    segments = []
    while way is not None and way.segment is not None:
        segments.append(way.segment)
        way = way.before
    return Cuts(segments=tuple(reversed(segments)))
