"""What to try next when memory runs out, and how to say it. Pure: plans in, plans and sentences out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memfit.records import Plan, Request
from memfit.units import format_bytes

TRAINING: Final = "training"
EVALUATION: Final = "evaluation"
PREDICTION: Final = "prediction"


def next_plan(plan: Plan, *, where: str, num_examples: int | None, why_not_split: str) -> Plan | None:
    """The plan to take when a batch did not fit, or `None` if nothing is left.

    Args:
        plan: The plan that was not enough.
        where: `TRAINING`, `EVALUATION` or `PREDICTION`.
        num_examples: Examples in the batch that did not fit; `None` if unknown.
        why_not_split: Why batches must not be split; empty if they may.

    Example:
    >>> next_plan(Plan(), where=TRAINING, num_examples=9, why_not_split="").micro_batch
    5
    >>> next_plan(Plan(micro_batch=1), where=TRAINING, num_examples=9, why_not_split="") is None
    True
    """
    if where != TRAINING:
        smaller = _half(plan.evaluation_micro_batch, num_examples)
        return None if smaller is None or why_not_split else replace(plan, evaluation_micro_batch=smaller)
    for place, fallback in enumerate(plan.fallbacks):
        if (fallback.micro_batch is None or not why_not_split) and _is_other(plan, fallback, num_examples):
            rest = (*fallback.fallbacks, *plan.fallbacks[place + 1 :])
            return replace(
                fallback,
                fallbacks=rest,
                allow=tuple(dict.fromkeys((*plan.allow, *fallback.allow))),
                evaluation_micro_batch=fallback.evaluation_micro_batch or plan.evaluation_micro_batch,
            )
    if plan.gradient_window is not None:
        shorter = _half(plan.gradient_window, None)
        return None if shorter is None else replace(plan, gradient_window=shorter, fallbacks=())
    smaller = _half(plan.micro_batch, num_examples)
    return None if smaller is None or why_not_split else replace(plan, micro_batch=smaller, fallbacks=())


def _half(micro_batch: int | None, num_examples: int | None) -> int | None:
    """Half of the examples that were under way, or `None` if it was one."""
    sizes = [size for size in (micro_batch, num_examples) if size is not None]
    under_way = min(sizes, default=1)
    return -(-under_way // 2) if under_way > 1 else None


def _is_other(plan: Plan, fallback: Plan, num_examples: int | None) -> bool:
    """Whether a fallback does anything else with a batch of this size."""

    def under_way(some: Plan) -> tuple[object, ...]:
        sizes = [size for size in (some.micro_batch, num_examples) if size is not None]
        return min(sizes, default=None), some.time_segment, some.depth_limit, some.gradient_window

    return under_way(fallback) != under_way(plan)


def checkpointing(plan: Plan) -> tuple[object, ...]:
    """What of a plan is built into the functions that are traced under it; nothing true if nothing is.

    A limit in bytes holds for the examples under way, so another micro-batch is another checkpointing.
    """
    examples = None if plan.depth_limit is None else plan.micro_batch
    return plan.time_segment, plan.depth_limit, examples, plan.gradient_window


def describe_request(request: Request | None) -> str:
    """What could not be had, as far as it is known.

    Example:
    >>> describe_request(Request(num_bytes=2**20, op="lstm/MatMul", shape=(512, 512), device="CPU:0"))
    'lstm/MatMul asked CPU:0 for 1.00 MiB, shape [512, 512]'
    """
    if request is None:
        return "an allocation failed"
    device = f" {request.device}" if request.device else ""
    size = "more memory" if request.num_bytes is None else format_bytes(request.num_bytes)
    shape = "" if request.shape is None else f", shape {list(request.shape)}"
    return f"{request.op or 'an op'} asked{device} for {size}{shape}"


def what_would_help(plan: Plan, *, why_not_split: str, has_rnn: bool, request: Request | None) -> str:
    """The smallest thing that would help where nothing is left to try."""
    if why_not_split:
        return f"Its batches were not split: {why_not_split}"
    if has_rnn and plan.time_segment is None:
        return "Run its RNNs by time segments: memfit.Plan(micro_batch=1, time_segment=32)."
    if plan.time_segment is not None and plan.time_segment > 1:
        half = -(-plan.time_segment // 2)
        return f"Take shorter time segments: memfit.Plan(micro_batch=1, time_segment={half})."
    least = (
        ""
        if request is None or request.num_bytes is None
        else f" (at least {format_bytes(request.num_bytes)})"
    )
    return f"A single example does not fit: it takes more memory{least}, shorter examples or a smaller model."
