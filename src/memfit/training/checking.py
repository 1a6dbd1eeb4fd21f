"""Plans and arguments that cannot be right, before anything is trained. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from memfit.depth.limits import parse_limit
from memfit.errors import UsageError
from memfit.records import Plan
from memfit.strategies.allowing import BUCKETING, TRUNCATE, TRUNCATE_FRONT, TRUNCATE_GRADIENTS, check_allowed

IN_TIME: Final = ("max_length", "gradient_window", "tokens")
CUTS: Final = {"end": TRUNCATE, "front": TRUNCATE_FRONT}


def prepare_plan(plan: Plan | None, allow: str | Iterable[str] = ()) -> Plan:
    """The plan with what is allowed beside it, checked; an empty one for `None`."""
    if plan is not None and not isinstance(plan, Plan):
        raise UsageError(
            f"plan must be a memfit.Plan, such as memfit.Plan(micro_batch=8). Received: {plan!r}."
        )
    plan = plan or Plan()
    words = (allow,) if isinstance(allow, str) else tuple(allow)
    prepared = replace(plan, allow=check_allowed((*plan.allow, *words)))
    _check(prepared)
    return prepared


def _check(plan: Plan) -> None:
    check_allowed(plan.allow)
    for name in (
        "micro_batch",
        "time_segment",
        "evaluation_micro_batch",
        "stream_window_bytes",
        "batch_size",
        *IN_TIME,
    ):
        value = getattr(plan, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(
                f"{name} of a plan must be a whole number of at least 1, or None. Received: {value!r}."
            )
    _check_depth(plan)
    _check_cut(plan)
    _check_window(plan)
    if plan.tokens is not None and BUCKETING not in plan.allow:
        raise UsageError(
            "the plan makes batches by length, which are others than random ones. If that is good enough, "
            f'allow it: allow="{BUCKETING}".'
        )
    for fallback in plan.fallbacks:
        _check(fallback)


def _check_depth(plan: Plan) -> None:
    if plan.depth_limit is None:
        return
    if not isinstance(plan.depth_limit, str):
        raise UsageError(
            'depth_limit of a plan must be text, "least", "40%" or "64MiB", or None. '
            f"Received: {plan.depth_limit!r}."
        )
    parse_limit(plan.depth_limit)


def _check_cut(plan: Plan) -> None:
    if plan.cut_from not in CUTS:
        raise UsageError(f'cut_from of a plan is "end" or "front". Received: {plan.cut_from!r}.')
    if plan.max_length is not None and CUTS[plan.cut_from] not in plan.allow:
        raise UsageError(
            f"the plan cuts sequences to {plan.max_length} steps, which changes what is learnt. If that is "
            f'good enough, allow it: allow="{CUTS[plan.cut_from]}".'
        )


def _check_window(plan: Plan) -> None:
    if plan.gradient_window is None:
        return
    if TRUNCATE_GRADIENTS not in plan.allow:
        raise UsageError(
            f"the plan has gradients go back through {plan.gradient_window} steps only, which changes what "
            f'is learnt. If that is good enough, allow it: allow="{TRUNCATE_GRADIENTS}".'
        )
    for name in ("micro_batch", "time_segment", "depth_limit"):
        if getattr(plan, name) is not None:
            raise UsageError(
                f"the plan has {name}={getattr(plan, name)!r} and gradient_window={plan.gradient_window}, "
                "which do not go together. Leave one of them out."
            )


def check_no_cut(plan: Plan, where: str) -> None:
    """Refuses a plan of which only `memfit.fit` can do all."""
    for name in IN_TIME:
        if getattr(plan, name) is not None:
            raise UsageError(
                f"the plan has {name}={getattr(plan, name)}, which {where} cannot do in a loop of yours. Use "
                f"memfit.fit, or a plan without {name}."
            )


def check_model(plan: Plan, *, num_parameters: int, digest: str) -> None:
    """Refuses a plan that was made for another model."""
    if plan.num_parameters is not None and plan.num_parameters != num_parameters:
        raise UsageError(
            f"this plan was made for a model with {plan.num_parameters:,} parameters, and this one has "
            f"{num_parameters:,}. Make a plan for it, or leave num_parameters out of the plan."
        )
    if plan.model_digest is not None and plan.model_digest != digest:
        raise UsageError(
            "this plan was made for another model with as many parameters: its layers, the shapes of its "
            "variables or inputs, or which of them are trained, are not those of this one. Make a plan for "
            "it, or leave model_digest out of the plan."
        )


def check_first_batch(plan: Plan, *, num_examples: int | None) -> None:
    """Refuses a plan that was made for another batch."""
    if None not in (plan.batch_size, num_examples) and plan.batch_size != num_examples:
        raise UsageError(
            f"this plan was made for batches of {plan.batch_size}, and the first batch has {num_examples} "
            f"examples. Train with batch_size={plan.batch_size}, or leave batch_size out of the plan."
        )


def check_arguments(arguments: dict[str, Any], *, is_batched: bool, kind: str) -> None:
    """Refuses a batch size for data that comes in batches."""
    if is_batched and arguments.get("batch_size") is not None:
        raise UsageError(
            f"batch_size={arguments['batch_size']} was given together with a {kind}, which has batches of "
            "its own. Leave batch_size out, and batch the data where it is made: dataset.batch(32)."
        )
