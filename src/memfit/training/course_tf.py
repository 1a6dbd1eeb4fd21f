"""The plan that holds now, and how to survive when memory runs out under it.

One attempt after the other at the same work: each that dies of memory is undone, what it held is freed, and
the next plan is taken. Any other error passes through untouched.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import keras

from memfit.errors import MemfitWarning, OutOfMemoryError
from memfit.measuring.oom import is_device_oom, read_error
from memfit.records import Outcome, Plan, Request
from memfit.splitting import internals_tf as internals
from memfit.strategies.applying_tf import checkpoint
from memfit.training import fallbacks
from memfit.training.journal import Journal

T = TypeVar("T")


class Course:
    """The plan that holds now, applied to a model.

    Args:
        model: The Keras model.
        plan: The plan to begin with.
        journal: Where incidents are recorded.
        why_not_split: By `fallbacks.TRAINING` and so on, says why batches must not be split; empty if they
            may.
        on_change: Called after another plan was taken; the Keras functions of the model are to be made anew.
    """

    def __init__(
        self,
        model: Any,
        plan: Plan,
        journal: Journal,
        *,
        why_not_split: Callable[[str], str],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self._model = model
        self._journal = journal
        self._why_not_split = why_not_split
        self._on_change = on_change
        self._handles: list[Any] = []
        self._tried: list[str] = []

    def begin(self) -> None:
        """Applies the first plan."""
        try:
            for handle in checkpoint(self._model, self.plan):
                self._handles.append(handle)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Leaves the model as it was."""
        while self._handles:
            self._handles.pop().undo()

    def survive(
        self,
        where: str,
        num_examples: int | None,
        attempt: Callable[[], T],
        roll_back: Callable[[], None],
        *,
        died_of: Request | None = None,
    ) -> T:
        """What `attempt` returns, under whichever plan it fits.

        Args:
            where: `fallbacks.TRAINING`, `EVALUATION` or `PREDICTION`.
            num_examples: Examples in the batch; `None` if unknown.
            attempt: Does the work, by the plan that holds when it is called.
            roll_back: Undoes an attempt that died.
            died_of: What a first attempt could not get, if one was made already; it is to be undone.

        Raises:
            OutOfMemoryError: If nothing is left to try; the last attempt is undone.
        """
        while True:
            if died_of is None:
                result, died_of = _try(attempt)
            if died_of is None:
                self._tried.clear()
                return result  # type: ignore[return-value]
            # Outside of the except block: the traceback is gone, so collecting frees what the attempt held.
            gc.collect()
            roll_back()
            self._fall_back(where, num_examples, died_of)
            died_of = None

    def next_plan(self, where: str, num_examples: int | None) -> Plan | None:
        """The plan that would be taken if memory ran out now."""
        why_not = self._why_not_split(where)
        return fallbacks.next_plan(self.plan, where=where, num_examples=num_examples, why_not_split=why_not)

    def take(self, plan: Plan) -> None:
        """Goes on under another plan."""
        if fallbacks.checkpointing(plan) != fallbacks.checkpointing(self.plan):
            self.end()
            self.plan = plan
            self.begin()
        self.plan = plan
        self._journal.change(plan)
        self._on_change()

    def _fall_back(self, where: str, num_examples: int | None, request: Request) -> None:
        self._tried.append(self.plan.in_words(is_training=where == fallbacks.TRAINING))
        what = f"out of memory in {where}: {fallbacks.describe_request(request)}."
        plan = self.next_plan(where, num_examples)
        if plan is None:
            self._journal.note(where=where, what=what, action="nothing was left to try.", request=request)
            raise self._error(where, what, request)
        action = f"the batch is run again with {plan.in_words(is_training=where == fallbacks.TRAINING)}."
        incident = self._journal.note(where=where, what=what, action=action, request=request)
        self.take(plan)
        warnings.warn(
            f"step {incident.step} (epoch {incident.epoch}): {what} It was undone, and {action} Batches, "
            "samples and schedules stay what they were.",
            MemfitWarning,
            stacklevel=2,
        )

    def _error(self, where: str, what: str, request: Request) -> OutOfMemoryError:
        layers = internals.all_layers(self._model)
        help_text = fallbacks.what_would_help(
            self.plan,
            why_not_split=self._why_not_split(where),
            has_rnn=any(isinstance(layer, keras.layers.RNN) for layer in layers),
            request=request,
        )
        error = OutOfMemoryError(
            f"{what} Tried: {'; '.join(self._tried)}. The model is as it was after the last good step "
            f"({self._journal.num_steps} were made). {help_text}"
        )
        error.run = self._journal.close(self.plan, Outcome.DEVICE_OUT_OF_MEMORY)
        return error


def _try(attempt: Callable[[], T]) -> tuple[T | None, Request | None]:
    """What an attempt returns, or what it could not get."""
    try:
        return attempt(), None
    except Exception as error:
        if not is_device_oom(error):
            raise
        return None, read_error(error)
