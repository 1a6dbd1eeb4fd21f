"""What is computed again in a call, and how to say it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from memfit.depth.cuts import Cuts, fastest, leanest, least_bytes
from memfit.depth.graph import Graph, Layout, cut_positions, lay_out, segment_options
from memfit.depth.limits import Limit
from memfit.errors import UsageError
from memfit.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided for one traced call. Bytes are by arithmetic, for the batch named.

    Args:
        model_name: The model.
        batch_size: Examples that the bytes are for; for a batch of unknown size, what it was taken for.
        plain_bytes: What plain Keras holds for the backward pass.
        held_bytes: The most that is held now.
        num_segments: Segments that are computed again.
        recomputed_share: The share of the forward pass that is computed again, by estimated time.
        left_out: What is never computed again and why, a sentence each.
    """

    model_name: str
    batch_size: int | None
    plain_bytes: int
    held_bytes: int
    num_segments: int
    recomputed_share: float
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.num_segments:
            return f"{self.model_name}: nothing is computed again; {format_bytes(self.plain_bytes)} are kept."
        return (
            f"{self.model_name}: {format_bytes(self.held_bytes)} of {format_bytes(self.plain_bytes)} are "
            f"held; {self.num_segments} segments, {self.recomputed_share:.0%} of the forward pass, are "
            "computed again."
        )


def decide(
    graph: Graph, limit: Limit, *, model_name: str, batch_size: int | None, left_out: tuple[str, ...] = ()
) -> tuple[Decision, Layout]:
    """The fastest way within the limit.

    Raises:
        UsageError: If no way is within it; the message says what is.
    """
    places = cut_positions(graph)
    cuts = _choose(graph, places, limit, model_name)
    layout = lay_out(graph, places, cuts)
    repeated = sum(graph.nodes[index].seconds for nodes in layout.segments for index in nodes)
    decision = Decision(
        model_name=model_name,
        batch_size=batch_size,
        plain_bytes=graph.needed_bytes,
        held_bytes=cuts.peak_bytes,
        num_segments=sum(map(bool, layout.segments)),
        recomputed_share=repeated / graph.seconds if graph.seconds else 0.0,
        left_out=left_out,
    )
    return decision, layout


def _choose(graph: Graph, places: list[int], limit: Limit, model_name: str) -> Cuts:
    options = segment_options(graph, places)
    if not options:
        return Cuts(segments=())
    if limit.is_least:
        return leanest(options)
    limit_bytes = limit.bytes_of(graph.needed_bytes)
    if limit_bytes >= graph.needed_bytes:
        return Cuts(segments=tuple(segments[0] for segments in options))
    cuts = fastest(options, limit_bytes)
    if cuts is None:
        least = least_bytes(options)
        raise UsageError(
            f"the activations of {model_name!r} cannot be held in {format_bytes(limit_bytes)} "
            f"(limit {limit.text}) by computing them again once: plain Keras holds "
            f"{format_bytes(graph.needed_bytes)}, and the least is {format_bytes(least)}. Pass a limit of "
            f'"{100 * least / graph.needed_bytes:.0f}%" or more, or smaller batches.'
        )
    return cuts
