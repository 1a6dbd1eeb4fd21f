"""`memfit.fit`: Keras's own `fit`, with the function that runs one batch replaced while it lasts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import MemfitWarning, UsageError
from memfit.guarding.watch import watch as guard
from memfit.records import Outcome, Plan, Run
from memfit.splitting import internals_tf as internals
from memfit.splitting.checking_tf import why_not_evaluate, why_not_train
from memfit.splitting.identity_tf import identify
from memfit.splitting.windows_tf import why_not_windows
from memfit.streaming.feeding_tf import stream_fit
from memfit.training import checking
from memfit.training.bucketing_tf import take_buckets
from memfit.training.cutting_tf import take_cut
from memfit.training.driver_tf import Driver, Watch, read_peak
from memfit.training.mapped_tf import MappedArrays
from memfit.training.planning_tf import plan_fit
from memfit.training.ragged_tf import take_ragged
from memfit.training.resuming_tf import resumable_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a fit behaves towards a script.

    Attributes:
        is_nan_watched: Whether a loss that is not a number is an error.
        is_plan_new: Whether a run that goes on takes the plan that was made now, not the one that held last.
        is_watched: Whether leaks are watched for; not where something larger is watched already.
        tell: Called with the stages of planning; `None` prints them where Keras prints its progress.
    """

    is_nan_watched: bool = True
    is_plan_new: bool = False
    is_watched: bool = True
    tell: Callable[[str], None] | None = None


PLAIN_MANNER: Final = Manner()


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    budget: str | int | None = None,
    plan: Plan | None = None,
    allow: str | Iterable[str] = (),
    resume: Any = None,
    **arguments: Any,
) -> Run:
    """Trains a compiled Keras model by a plan, and survives running out of memory.

    Keras's `fit` drives: data, callbacks, validation, progress bar and History are its own. With a plan that
    does nothing this is `model.fit`, but for what happens when a batch does not fit.

    Args:
        model: A compiled Keras model.
        x: As in `keras.Model.fit`: arrays, tensors, dicts, `tf.data`, a generator, a `PyDataset`. Ragged
            tensors and `tf.data` sets of ragged batches are padded with what the model masks.
        y: As in `keras.Model.fit`.
        budget: What the device may use, as in `memfit.budget`, which `None` asks. A step that peaks above
            it takes the plan's next fallback from the next batch on.
        plan: How to train in less memory; `None` plans by itself (`memfit.plan`). What fits as it is runs as
            it is, and what is small against all the memory there is is not even measured.
        allow: What may be done although it changes the mathematics: `"split_batch_norm"`, `"truncate"`,
            `"truncate_front"`, `"truncate_gradients"`, `"bucketing"`.
        resume: A folder to keep checkpoints in and to go on from; `None` keeps none.
        **arguments: Any other argument of `keras.Model.fit`.

    Returns:
        A `Run`, with Keras's History in `run.history`.

    Raises:
        BudgetError: If nothing fits the budget.
        UsageError: If the plan or the arguments cannot be right for this model and data.
        OutOfMemoryError: If nothing is left to try; the model is as after the last good step.
        LossError: If the loss is not a number; the model is as before that step.

    Example:
    ```python
    run = memfit.fit(model, x, y, plan=memfit.Plan(micro_batch=8), epochs=3)
    run.save("run.json")
    ```
    """
    return fit_as(model, x, y, budget=budget, plan=plan, allow=allow, resume=resume, arguments=arguments)


def fit_as(
    model: Any,
    x: Any,
    y: Any,
    *,
    budget: str | int | None,
    plan: Plan | None,
    allow: str | Iterable[str],
    resume: Any,
    arguments: dict[str, Any],
    manner: Manner = PLAIN_MANNER,
) -> Run:
    """`fit`, with what only a script that does not know of memfit needs said beside it."""
    internals.check_versions()
    prepared = checking.prepare_plan(plan, allow)
    _check_model(model, prepared)
    x, y, arguments = take_ragged(model, x, y, arguments)
    kind = _batched_kind(x)
    checking.check_arguments(arguments, is_batched=kind is not None, kind=kind or "")
    if plan is None:
        prepared = plan_fit(
            model, x, y, budget=budget, allow=prepared.allow, arguments=arguments, tell=manner.tell
        )
    if prepared.stream_window_bytes is not None and prepared.tokens is None and kind is None:
        x, arguments = stream_fit(x, y, arguments, prepared.stream_window_bytes)
        y = None
    x, y, arguments = take_buckets(model, x, y, arguments, prepared)
    x, y, arguments = take_cut(model, x, y, arguments, prepared)
    arguments = dict(arguments)
    callbacks = arguments.pop("callbacks", None)
    driver = Driver(
        model,
        prepared,
        budget_bytes=_soft_line(budget, prepared),
        is_nan_watched=manner.is_nan_watched and _is_nan_watched(model, callbacks),
    )
    watch = Watch(driver, given=prepared if manner.is_plan_new else plan)

    def drive(x: Any, y: Any, arguments: dict[str, Any], callbacks: Any) -> Any:
        if isinstance(x, MappedArrays):
            x = x.adapter(arguments)
        return model.fit(x, y, callbacks=callbacks, **arguments)

    watcher = guard(budget=budget)
    with driver, watcher if manner.is_watched else nullcontext():
        if resume is None:
            history = drive(x, y, arguments, _joined(callbacks, watch))
        else:
            given = {**arguments, "callbacks": callbacks}
            history = resumable_fit(model, drive, x, y, resume, given, watch=watch)
    return driver.journal.close(driver.course.plan, Outcome.OK, history, leaks=watcher.leaks)


def _soft_line(budget: str | int | None, plan: Plan) -> int | None:
    if budget is None:
        return plan.budget_bytes
    if read_peak() is None:
        warnings.warn(
            f"budget={budget!r} has no effect on this run: no device here has a true meter, so nobody can "
            "tell when a step goes over it. Import memfit before the first TensorFlow op.",
            MemfitWarning,
            stacklevel=3,
        )
    return find_budget(budget).device_bytes


def _check_model(model: Any, plan: Plan) -> None:
    if not isinstance(model, keras.Model):
        raise UsageError(f"memfit.fit takes a Keras model. Received: {model!r}.")
    if not model.compiled:
        raise UsageError(
            f"{model.name!r} is not compiled. Call model.compile(optimizer, loss) before memfit.fit."
        )
    if model.built:
        checking.check_model(plan, num_parameters=model.count_params(), digest=identify(model))
    for name, reason in (
        ("micro_batch", why_not_train(model, plan.allow)),
        ("evaluation_micro_batch", why_not_evaluate(model)),
        ("gradient_window", why_not_train(model, plan.allow) or why_not_windows(model)),
    ):
        if getattr(plan, name) is not None and reason:
            raise UsageError(f"the plan has {name}={getattr(plan, name)}, but {reason}")


def _batched_kind(x: Any) -> str | None:
    """What data that comes in batches is called, or `None` for data that Keras cuts into batches."""
    if isinstance(x, (tf.data.Dataset, tf.distribute.DistributedDataset)):
        return "tf.data set"
    if isinstance(x, keras.utils.PyDataset):
        return "PyDataset"
    return "generator" if isinstance(x, Generator) else None


def _is_nan_watched(model: Any, callbacks: Any) -> bool:
    """Loss scaling meets infinities on its way by design; and who has a callback for it has decided."""
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        return False
    given = getattr(callbacks, "callbacks", callbacks)
    listed = given if isinstance(given, (list, tuple)) else [given]
    return not any(isinstance(each, keras.callbacks.TerminateOnNaN) for each in listed)


def _joined(callbacks: Any, last: keras.callbacks.Callback) -> Any:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks.append(last)
        return callbacks
    given = callbacks if isinstance(callbacks, (list, tuple)) else [] if callbacks is None else [callbacks]
    return [*given, last]
