"""`memfit.applied`: a plan on a model, for loops of one's own, as far as it needs no micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.errors import UsageError
from memfit.records import Plan
from memfit.splitting.identity_tf import identify
from memfit.strategies.applying_tf import checkpoint
from memfit.training import checking


@contextmanager
def applied(plan: Plan, model: Any) -> Iterator[Any]:
    """Runs a model by a plan while the context lasts; nothing else changes.

    Functions that were traced before keep running as they were traced: trace them inside.

    Args:
        plan: A plan without micro-batches, which are a matter of the loop: `memfit.train_step` has them.
        model: A Keras model.

    Yields:
        The model.

    Raises:
        UsageError: If the plan splits batches, or was made for another model.

    Example:
    ```python
    with memfit.applied(memfit.Plan(time_segment=32), model):
        ...  # a GradientTape loop of yours
    ```
    """
    prepared = checking.prepare_plan(plan)
    checking.check_no_cut(prepared, "memfit.applied")
    if prepared.micro_batch is not None:
        raise UsageError(
            f"the plan splits batches (micro_batch={prepared.micro_batch}), which memfit.applied cannot "
            "do in a loop of yours. Use step = memfit.train_step(model, loss, optimizer, plan), or a plan "
            "without micro_batch."
        )
    if model.built:
        checking.check_model(prepared, num_parameters=model.count_params(), digest=identify(model))
    with ExitStack() as stack:
        for handle in checkpoint(model, prepared):
            stack.enter_context(handle)
        yield model
