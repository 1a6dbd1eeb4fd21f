"""The parts of a `Profile` as a chain to be cut. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from memfit.depth.cuts import Options, Segment
from memfit.depth.graph import LENGTHS
from memfit.records import DepthPart


def plain_bytes(parts: Sequence[DepthPart]) -> int:
    """What plain Keras holds for the backward pass."""
    return sum(part.tape_bytes for part in parts)


def part_options(parts: Sequence[DepthPart]) -> Options:
    """All segments of the chain, each kept or computed again."""
    return [
        [
            _kept(parts, start),
            *(_again(parts, start, start + num) for num in LENGTHS if start + num <= len(parts)),
        ]
        for start in range(len(parts))
    ]


def _kept(parts: Sequence[DepthPart], start: int) -> Segment:
    part = parts[start]
    return Segment(
        start=start,
        stop=start + 1,
        kept_bytes=max(part.tape_bytes, part.new_bytes),
        held_bytes=part.work_bytes,
        seconds=0.0,
        is_recomputed=False,
    )


def _again(parts: Sequence[DepthPart], start: int, stop: int) -> Segment:
    """What crosses a cut behind several parts may be older than them; it is counted as theirs."""
    inside = parts[start:stop]
    last = inside[-1]
    kept_bytes = last.new_bytes if len(inside) == 1 else last.cut_bytes
    return Segment(
        start=start,
        stop=stop,
        kept_bytes=kept_bytes,
        held_bytes=max(0, sum(part.tape_bytes for part in inside) - kept_bytes)
        + max(part.work_bytes for part in inside),
        seconds=sum(part.seconds for part in inside[:-1]) + last.again_seconds,
        is_recomputed=True,
    )
