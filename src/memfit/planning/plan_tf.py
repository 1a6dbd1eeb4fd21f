"""`memfit.plan`: the fastest way to train within a budget, rehearsed before training starts.

The model is tried as it is at a few small batches. If the whole batch will fit, that is the plan. Otherwise
each strategy proposes settings, these are tried likewise, and the fastest combination with micro-batches that
fits is rehearsed: the largest batch, nothing applied. A rehearsal that misses teaches, and the next is taken.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import BudgetError
from memfit.estimating.batches_tf import Batches, describe
from memfit.estimating.estimate_tf import choose_batch_size
from memfit.estimating.probing_tf import Subject, check_meter, find_subject
from memfit.planning.bench_tf import bench
from memfit.planning.glance_tf import is_small
from memfit.planning.inexact_tf import plan_buckets, plan_inexact
from memfit.planning.inputs_tf import with_inputs
from memfit.planning.planner_tf import Planner, Tell
from memfit.planning.windowing_tf import plan_windows
from memfit.planning.worst_tf import Worst, worst
from memfit.records import Plan
from memfit.splitting import internals_tf as internals
from memfit.splitting.identity_tf import identify
from memfit.strategies.allowing import BUCKETING, INEXACT_IN_TIME, TRUNCATE_GRADIENTS, check_allowed


def plan(
    model: Any,
    data: Any = None,
    *,
    budget: str | int | None = None,
    batch_size: int | None = None,
    length: int | None = None,
    allow: str | Iterable[str] = (),
    loss: Any = None,
    optimizer: Any = None,
    tell: Tell | None = None,
) -> Plan:
    """The fastest plan that trains a model within a budget.

    Steps are run at small batches, and the largest batch is rehearsed, with nothing applied: the model, its
    optimizer, metrics and seeds are as before.

    Args:
        model: A built Keras model.
        data: As in `memfit.estimate`: `(x, y)` of arrays or of `tf.TensorSpec`s, a `tf.data` set of batches,
            a `PyDataset`, or `None` for what the model's inputs and outputs say.
        budget: What the device may use, as in `memfit.budget`; `None` for what that finds.
        batch_size: Examples that the optimizer sees at once, which no plan changes; `None` for what the data
            says, or 32 for arrays, as in Keras.
        length: Time steps of the longest batch, where the model leaves them free; `None` for the longest
            among the first batches of the data.
        allow: What may be done although it changes the mathematics, and only where nothing exact fits:
            `"split_batch_norm"`, `"truncate_gradients"`, `"truncate"`, `"truncate_front"`;
            or, where the data has lengths, `"bucketing"`.
        loss: As in `model.compile`, for a model that is not compiled.
        optimizer: As in `model.compile`, for a model that is not compiled.
        tell: Called with a few words at each stage of the work.

    Returns:
        A `Plan`, for `memfit.fit(model, ..., plan=plan)`. `print(plan)` shows it as a table.

    Raises:
        BudgetError: If nothing fits, with what the tightest plan needs.
        UsageError: If the model was never built, or data and model do not fit.

    Example:
    ```python
    plan = memfit.plan(model, (x, y), budget="2GiB", batch_size=64)
    print(plan)
    run = memfit.fit(model, x, y, plan=plan, batch_size=64)
    ```
    """
    internals.check_versions()
    allowed = check_allowed(allow)
    subject = find_subject(model, loss=loss, optimizer=optimizer)
    check_meter()
    found = worst(data) if length is None else Worst()
    length = found.length if length is None else length
    batch_size = found.batch_size if batch_size is None else batch_size
    own_loss = loss or (model.loss if model.compiled else None)
    batches = describe(model, data, batch_size=batch_size, length=length, loss=own_loss)
    size = choose_batch_size(batches.batch_size, batches.num_examples)
    budget_bytes = find_budget(budget).device_bytes
    # Where batches differ in size, no first batch can be held against the plan.
    kept = size if found.batch_size is None else None
    if budget is None and is_small(model, batches, size, budget_bytes):
        note = "Nothing was measured: whatever it takes is far below the budget."
        made = Plan(
            batch_size=kept,
            num_parameters=model.count_params(),
            model_digest=identify(model),
            allow=allowed,
            notes=(note,),
        )
        return with_inputs(made, data, batches, size)
    again = partial(plan, model, data, budget=budget, loss=loss, optimizer=optimizer, tell=tell)
    notes: tuple[str, ...] = ()
    if BUCKETING in allowed:
        others = tuple(word for word in allowed if word != BUCKETING)
        bucketed = plan_buckets(
            lambda most, steps: again(batch_size=most, length=steps, allow=others),
            model=model,
            data=data,
            batch_size=size,
            length=batches.length,
        )
        if isinstance(bucketed, Plan):
            return replace(bucketed, allow=allowed)
        notes = (f"Batches are not made by length: {bucketed}",)
    try:
        made = _plan_exactly(subject, batches, data, size, budget_bytes, allowed, tell)
    except BudgetError as error:
        refused = error.with_traceback(None)  # Whose frames would hold all that was measured.
    else:
        return with_inputs(replace(made, batch_size=kept, notes=(*notes, *made.notes)), data, batches, size)
    if TRUNCATE_GRADIENTS in allowed:
        windowed = plan_windows(subject, batches, size, budget_bytes=budget_bytes, tell=tell)
        if windowed is not None:
            return replace(windowed, allow=allowed)
    exact = tuple(word for word in allowed if word not in INEXACT_IN_TIME)
    return plan_inexact(
        refused,
        lambda most: again(batch_size=size, length=most, allow=exact),
        model=model,
        data=data,
        length=batches.length,
        allow=allowed,
    )


def _plan_exactly(
    subject: Subject,
    batches: Batches,
    data: Any,
    size: int,
    budget_bytes: int,
    allowed: tuple[str, ...],
    tell: Tell | None,
) -> Plan:
    with bench(subject, batches, data, budget_bytes=budget_bytes) as tried:
        planner = Planner(
            subject=subject,
            batches=batches,
            bench=tried,
            batch_size=size,
            budget_bytes=budget_bytes,
            allow=allowed,
            tell=tell or (lambda _: None),
        )
        made = planner.plan()
    # What was traced holds copies of the weights, in circles that Python frees when it happens to look.
    del planner, tried
    gc.collect()
    return made
