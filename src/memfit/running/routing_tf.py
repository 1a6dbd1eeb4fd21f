"""Keras's `fit`, `evaluate` and `predict` by memfit's engine, for a script that does not know of it.

`fit` is planned, split and recovers; `evaluate` and `predict` run as they are until memory runs out, and then
in smaller batches; RNN layers outside of `fit` run by time segments. With `--observe` nothing of this is done
and only the story is told.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.errors import BudgetError, MemfitWarning, ResumeError, SetupError, UsageError
from memfit.guarding.first_epoch import VALIDATION
from memfit.guarding.story import StoryFile
from memfit.guarding.telling_tf import Storyteller, Telling
from memfit.guarding.watch import watch
from memfit.measuring.oom import is_device_oom, read_error
from memfit.records import Inventory, Plan, Request, Run, Watched
from memfit.rnn.everywhere_tf import checkpoint_time_everywhere
from memfit.rnn.layer_tf import Handle
from memfit.running.settings import Settings
from memfit.running.witness_tf import KERAS_BATCH_SIZE, Witness
from memfit.splitting import internals_tf as internals
from memfit.splitting.checking_tf import why_not_evaluate, why_not_predict
from memfit.training.driver_tf import Driver, is_driven
from memfit.training.fallbacks import describe_request
from memfit.training.fit_tf import Manner, fit_as

ROUTED: Final = ("fit", "evaluate", "predict")
OWN_LOOPS: Final = ("train_step", "make_train_function")
# Where batches of a failed evaluation are cut next: by so much.
CUT: Final = 2

Fit = Callable[[str | None, Plan | None], Run]


class Routing:
    """What stands in for Keras's methods in a script's process.

    Args:
        settings: How the script is run.
        story: Where its story is told.
        inventory_file: Where it is written what the script holds, for the case that it dies without a word.
    """

    def __init__(self, settings: Settings, story: StoryFile, inventory_file: Path) -> None:
        self.runs: list[Run] = []
        self.notes: list[str] = []
        self._settings = settings
        self._teller = Storyteller(story)
        self._inventory_file = inventory_file
        self._originals = {name: getattr(keras.Model, name) for name in ROUTED}
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._cuts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.witness = Witness()
        self._engine: Handle | None = None
        self._watcher = watch(budget=settings.budget_bytes)
        self._is_watching = False
        self._num_fits = 0
        self._num_models = 0
        self._num_without = 0

    def install(self) -> None:
        """Takes the place of Keras's methods, and puts the engine under all RNN layers."""
        if keras.backend.backend() != "tensorflow":
            self._say(f"Keras runs on {keras.backend.backend()}, not on TensorFlow: it was measured only.")
            return
        self._begin_watch()
        if self._settings.is_observed:
            self.witness.shapes.install()
        else:
            self._engine = checkpoint_time_everywhere()
        for name, routed in (("fit", self._fit), ("evaluate", self._evaluate), ("predict", self._predict)):
            setattr(keras.Model, name, _standing_in(self._originals[name], routed))

    def undo(self) -> None:
        """Gives Keras its methods back."""
        for name in ROUTED:
            if name in vars(keras.Model):
                delattr(keras.Model, name)
        self.witness.shapes.undo()
        if self._engine is not None:
            self._engine.undo()

    def inventory(self) -> Inventory:
        """What the process holds now."""
        return self.witness.inventory()

    def last_inventory(self, request: Request | None) -> Inventory:
        """What the process holds after it ran out of memory, and what would have fitted.

        Args:
            request: The allocation that failed, or `None`.
        """
        if self.runs:  # There is a plan, which was measured.
            return self.inventory()
        phase, budget = self._teller.phase, self._settings.wall_bytes
        return self.witness.last_inventory(phase=phase, request=request, budget=budget)

    def _begin_watch(self) -> None:
        try:
            self._watcher.__enter__()
        except SetupError as fault:
            self._say(f"Leaks are not watched for: {fault}")
        else:
            self._is_watching = True

    def end_watch(self) -> Watched | None:
        """Stops watching for leaks: what was seen, or `None` if nothing was."""
        if not self._is_watching:
            return None
        self._is_watching = False
        self._watcher.__exit__()
        return self._watcher.result()

    # Training

    def _fit(self, original: Callable[..., Any], model: Any, given: dict[str, Any]) -> Any:
        if is_driven(model):  # memfit.fit itself calls.
            return original(model, **given)
        self.witness.fit_begins(model, given)
        given = self._told(model, given, VALIDATION)
        why_not = "" if self._settings.is_observed else _why_not_fit(model)
        if self._settings.is_observed or why_not:
            if why_not:
                self._say(f"model.fit of {model.name!r} runs as plain Keras: {why_not}")
            self.witness.keras_begins(given)
            result = original(model, **given)
            self.witness.keras_ended()
            return result
        with self._without_engine():
            return self._safe_fit(original, model, given)

    def _safe_fit(self, original: Callable[..., Any], model: Any, given: dict[str, Any]) -> Any:
        arguments = dict(given)
        x, y = arguments.pop("x", None), arguments.pop("y", None)
        self._num_fits += 1
        num_runs = len(self.runs)
        try:
            return self._fit_by_memfit(model, x, y, arguments).history
        except UsageError as fault:
            if len(self.runs) > num_runs:
                raise
            self._say(f"model.fit of {model.name!r} runs as plain Keras: {fault}")
        return original(model, **given)

    def _fit_by_memfit(self, model: Any, x: Any, y: Any, arguments: dict[str, Any]) -> Run:
        settings = self._settings
        tell = _tell if arguments.get("verbose", "auto") not in (0, "0") else None
        manner = Manner(is_nan_watched=False, is_plan_new=settings.is_restarted, is_watched=False, tell=tell)

        def fit(resume: str | None, plan: Plan | None) -> Run:
            return fit_as(
                model,
                x,
                y,
                budget=settings.budget_bytes,
                plan=plan,
                allow=settings.allow,
                resume=resume,
                arguments=arguments,
                manner=manner,
            )

        try:
            run = self._resumable(fit)
        except Exception as error:
            failed = getattr(error, "run", None)
            if isinstance(failed, Run):
                self.runs.append(failed)
            raise
        self.runs.append(run)
        return run

    def _resumable(self, fit: Fit) -> Run:
        """A fit with checkpoints, where a restart may need them and the data allows it."""
        try:
            return self._planned(fit, self._resume_folder())
        except (UsageError, ResumeError) as fault:
            if self._settings.resume_folder is None:
                raise
            self._say(f"a restart begins this model.fit anew: {fault}")
        return self._planned(fit, None)

    def _planned(self, fit: Fit, resume: str | None) -> Run:
        """By the plan that fits; if none does and nobody asked for a budget, as it is, and recovering."""
        try:
            return fit(resume, None)
        except BudgetError as fault:
            if self._settings.budget_bytes is not None:
                raise
            self._say(f"no plan fits what there is, so training starts as it is: {fault}")
        return fit(resume, Plan())

    def _resume_folder(self) -> str | None:
        folder = self._settings.resume_folder
        return None if folder is None else str(Path(folder) / f"fit-{self._num_fits}")

    # Evaluation and prediction

    def _evaluate(self, original: Callable[..., Any], model: Any, given: dict[str, Any]) -> Any:
        return self._test(original, model, given, why_not_evaluate)

    def _predict(self, original: Callable[..., Any], model: Any, given: dict[str, Any]) -> Any:
        return self._test(original, model, given, why_not_predict)

    def _test(
        self,
        original: Callable[..., Any],
        model: Any,
        given: dict[str, Any],
        why_not: Callable[[Any], str],
    ) -> Any:
        """As Keras does it; again, and in smaller batches, if memory runs out."""
        if is_driven(model) or "_use_cached_eval_dataset" in given:
            return original(model, **given)
        given = self._told(model, given, "evaluation")
        if self._settings.is_observed:
            return original(model, **given)
        with self._without_engine():
            if model in self._cuts:
                return self._cut(original, model, given)
            result, died_of = _attempt(lambda: original(model, **given), model, given, why_not)
            if died_of is None:
                return result
            gc.collect()
            self._cuts[model] = max(1, _num_under_way(given, died_of) // CUT)
            words = f"batches of {self._cuts[model]}"
            warnings.warn(
                f"out of memory in {original.__name__}: {describe_request(died_of)}. It begins again with "
                f"{words}; its result stays what it was.",
                MemfitWarning,
                stacklevel=4,  # The script's own line.
            )
            return self._cut(original, model, given)

    def _cut(self, original: Callable[..., Any], model: Any, given: dict[str, Any]) -> Any:
        plan = Plan(evaluation_micro_batch=self._cuts[model])
        driver = Driver(model, plan, budget_bytes=None, is_nan_watched=False)
        with driver:
            result = original(model, **given)
        self._cuts[model] = driver.course.plan.evaluation_micro_batch or self._cuts[model]
        return result

    # What both need

    def _told(self, model: Any, given: dict[str, Any], phase: str) -> dict[str, Any]:
        """The arguments with a callback more, which tells the story."""
        if not tf.executing_eagerly():
            self._say("eager mode is off: training is not watched, and runs as it is.")
            return given
        if phase == VALIDATION and model not in self._numbers:
            self._numbers[model] = self._num_models
            self._num_models += 1
        number = self._numbers.get(model, max(0, self._num_models - 1))
        telling = Telling(self._teller, number, phase)
        callbacks = given.get("callbacks")
        if isinstance(callbacks, keras.callbacks.CallbackList):
            return given
        users = (
            callbacks if isinstance(callbacks, (list, tuple)) else [] if callbacks is None else [callbacks]
        )
        return {**given, "callbacks": [*users, telling, _Inventory(self)]}

    def write_inventory(self) -> None:
        """Leaves what the process holds where it survives."""
        self._inventory_file.write_text(self.inventory().to_json())

    @contextmanager
    def _without_engine(self) -> Iterator[None]:
        """Without the engine under all RNN layers: the planner has the choice."""
        if self._engine is None:
            yield
            return
        self._num_without += 1
        self._engine.undo()
        try:
            yield
        finally:
            self._num_without -= 1
            if self._num_without == 0:  # A callback of a fit may predict with another model.
                self._engine = checkpoint_time_everywhere()

    def _say(self, note: str) -> None:
        """Says something once."""
        if note not in self.notes:
            self.notes.append(note)
            _tell(note)


class _Inventory(keras.callbacks.Callback):
    """Writes down what the script holds once its first batch is through, when the slots are there.

    Of all batches it notes that they are through.
    """

    def __init__(self, routing: Routing) -> None:
        super().__init__()
        self._routing = routing
        self._is_written = False

    def get_state(self) -> dict[str, Any]:
        """Nothing is remembered for a run that goes on later."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Nothing is taken up."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """The first batch has made what there is to make."""
        self._routing.witness.shapes.went_well(self.model)
        if not self._is_written:
            self._is_written = True
            self._routing.write_inventory()


def _standing_in(original: Callable[..., Any], routed: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(self, *arguments, **named)
        except TypeError:
            return original(self, *arguments, **named)  # It says itself what is wrong.
        given = dict(bound.arguments)
        given.pop("self")
        given.update(given.pop("kwargs", {}))
        return routed(original, self, given)

    return method


def _why_not_fit(model: Any) -> str:
    """Why a `fit` is left to Keras; empty if memfit may take it."""
    if not tf.executing_eagerly():
        return "eager mode is off."
    if not model.compiled:
        return "it is not compiled."
    for name in OWN_LOOPS:
        if internals.overrides(model, name):
            return f"{type(model).__name__} has its own {name}, which memfit does not run in parts."
    if internals.is_replicated(model):
        return "it is trained by several replicas."
    return ""


def _attempt(
    run: Callable[[], Any], model: Any, given: dict[str, Any], why_not: Callable[[Any], str]
) -> tuple[Any, Request | None]:
    """What a run returns, or what it could not get, if it can be begun again in smaller batches."""
    try:
        return run(), None
    except Exception as error:
        can_begin_again = not inspect.isgenerator(given.get("x")) and not why_not(model)
        if not can_begin_again or not is_device_oom(error):
            raise
        return None, read_error(error)


def _num_under_way(given: dict[str, Any], request: Request) -> int:
    """Examples of the batch that failed: as given, as the tensor asked for tells, or as is usual in Keras."""
    shape = request.shape or (KERAS_BATCH_SIZE,)
    return int(given.get("batch_size") or shape[0])


def _tell(words: str) -> None:
    print(f"memfit: {words}", file=sys.stderr, flush=True)
