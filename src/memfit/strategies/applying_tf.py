"""Puts what a plan says on a model, micro-batches aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memfit.depth.model_tf import checkpoint_depth
from memfit.records import Plan
from memfit.rnn.model_tf import checkpoint_time


def checkpoint(model: Any, plan: Plan) -> Iterator[Any]:
    """Puts checkpointing through time and depth on a model as a plan says; a handle for each undoes it."""
    if plan.time_segment is not None:
        yield checkpoint_time(model, plan.time_segment)
    if plan.depth_limit is not None:
        yield checkpoint_depth(model, plan.depth_limit, batch_size=plan.micro_batch or plan.batch_size)
