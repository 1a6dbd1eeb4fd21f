"""Keras's `fit`, with checkpoints, going on at the sample where the last process was killed.

Keras drives as ever. It is handed the rest of the data (`feed_tf`) and a list of callbacks that writes
checkpoints (`checkpointing_tf`). Here the parts are put together, and a folder that belongs to another run is
refused.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import memfit
from memfit.decoding import FieldError, decode
from memfit.errors import MemfitWarning, ResumeError, UsageError
from memfit.training import resuming_internals_tf as internals
from memfit.training.checkpointing_tf import CheckpointingCallbacks, FinishedCallbacks, RunState, Session
from memfit.training.feed_tf import Feed, source_of
from memfit.training.resuming import Identity, Lengths, Position, Resume, check_run
from memfit.training.saved_state_tf import CallbackStates, optimizers_of
from memfit.training.sources_tf import Source
from memfit.training.store import Store, Stored

Drive = Callable[[Any, Any, dict[str, Any], keras.callbacks.CallbackList], keras.callbacks.History]

_OURS = ("callbacks", "sample_weight", "class_weight", "shuffle", "steps_per_epoch", "validation_split")
_COMPARED = ("batch_size", "steps_per_epoch", "validation_split", "initial_epoch", "class_weight", "shuffle")
_DEFAULTS = {"shuffle": True, "validation_split": 0.0, "initial_epoch": 0}


def resumable_fit(
    model: keras.Model,
    drive: Drive,
    x: Any,
    y: Any,
    resume: str | Path | Resume,
    arguments: dict[str, Any],
    watch: keras.callbacks.Callback | None = None,
) -> keras.callbacks.History:
    """Trains as `model.fit` would, and after a kill goes on where the last checkpoint was.

    Args:
        model: Compiled.
        drive: `drive(x, y, arguments, callbacks)` calls `model.fit(x, y, callbacks=callbacks, **arguments)`
            and returns its History. `x` is then a Keras `DataAdapter`, `y` is `None`, and `callbacks` is a
            `keras.callbacks.CallbackList` that holds the user's.
        x: Arrays, a `PyDataset` or a `tf.data.Dataset`.
        y: Targets, where `x` does not hold them.
        resume: The folder of this run, or a `Resume` that says how often, too.
        arguments: All other arguments of `model.fit`.
        watch: A callback beside the user's that is told of a run that is complete already, too.

    Returns:
        The History of the whole run, not only of this process.

    Raises:
        UsageError: If the data cannot be resumed exactly, or an argument cannot be right.
        ResumeError: If the folder belongs to another run, is in use, or cannot be written.
    """
    settings = Resume.of(resume)
    internals.check_versions()
    _check_model(model)
    x, y, arguments = _split(x, y, dict(arguments))
    users = _users_callbacks(arguments)
    source = source_of(x, y, arguments)
    compared = _compared(arguments, model)
    data = source.identity()
    lengths = Lengths(
        num_batches=source.num_batches,
        steps_per_epoch=arguments.get("steps_per_epoch"),
        steps_per_execution=model.steps_per_execution,
        batch_size=source.batch_size,
        num_samples=source.num_samples,
    )
    seed = random.getrandbits(62)  # drawn in every process, so that all draw alike afterwards
    store = Store(Path(settings.folder))
    try:
        stored = store.newest(_say_broken(store))
        if stored is None:
            first = Position(
                epoch=arguments.get("initial_epoch", 0), num_samples=None if source.num_samples is None else 0
            )
            identity = Identity(version=memfit.__version__, variables=(), arguments=compared, data=data)
            state = RunState(identity=identity, position=first, order_seed=seed)
        else:
            state = _read_state(stored)
            check_run(state.identity, compared, data, memfit.__version__, store.folder)
        session = Session(settings=settings, store=store, stored=stored, state=state)
        run = _Run(
            model=model, session=session, lengths=lengths, arguments=arguments, users=users, watch=watch
        )
        return run.drive(drive, source)
    finally:
        store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One process of a run: what was found in the folder, and what is asked of Keras."""

    model: keras.Model
    session: Session
    lengths: Lengths
    arguments: dict[str, Any]
    users: list[keras.callbacks.Callback]
    watch: keras.callbacks.Callback | None

    def drive(self, drive: Drive, source: Source) -> keras.callbacks.History:
        state, store = self.session.state, self.session.store
        is_over = state.position.epoch >= self.num_epochs or state.is_stopped
        final = store.final() if is_over else None
        self._say(is_over=is_over)
        internals.build(self.model, source.example())
        _check_optimizers(self.model)
        source.begin(state.order_seed, state.position.pass_index)
        feed = Feed(source, self.lengths, state.position)
        passed = {name: value for name, value in self.arguments.items() if name not in _OURS}
        passed["initial_epoch"] = state.position.epoch
        if is_over:
            passed["epochs"] = state.position.epoch
        return drive(feed, None, passed, self._callbacks(feed, final))

    @property
    def num_epochs(self) -> int:
        return int(self.arguments.get("epochs", 1))

    def _callbacks(self, feed: Feed, final: Stored | None) -> keras.callbacks.CallbackList:
        verbose = self.arguments.get("verbose", "auto")
        options = {
            "add_history": True,
            "add_progbar": verbose != 0 and final is None,
            "model": self.model,
            "verbose": verbose,
            "epochs": self.num_epochs,
            "steps": self.lengths.steps_per_epoch or self.lengths.num_batches,
        }
        watch = [] if self.watch is None else [self.watch]
        if final is not None:
            return FinishedCallbacks(watch, final, _read_state(final), self.session.store.folder, options)
        CallbackStates(self.users).warn_of_what_starts_anew()
        return CheckpointingCallbacks([*self.users, *watch], self.session, feed, self.num_epochs, options)

    def _say(self, *, is_over: bool) -> None:
        if self.session.stored is None or self.arguments.get("verbose", "auto") == 0:
            return
        position = self.session.state.position
        where = (
            "is complete" if is_over else f"goes on at epoch {position.epoch + 1}, step {position.step + 1}"
        )
        folder = self.session.store.folder
        print(f"memfit: the run in {folder} {where}, after {position.num_steps} steps in all.")


def _check_model(model: keras.Model) -> None:
    if not model.compiled:
        raise UsageError("the model is not compiled. Call model.compile(...) first.")
    if (
        type(model.distribute_strategy) is not type(tf.distribute.get_strategy())
        or tf.distribute.has_strategy()
    ):
        raise UsageError(
            f"resume= does not work under {type(model.distribute_strategy).__name__} yet. Leave resume= out, "
            "or train on one device."
        )


def _check_optimizers(model: keras.Model) -> None:
    unbuilt = [each.name for each in optimizers_of(model) if not each.built]
    if unbuilt:
        raise UsageError(
            f"the optimizer {unbuilt[0]} of the model is not built, so its state cannot be put back. Call "
            "its build(variables) with the variables that it trains before the run."
        )


def _split(x: Any, y: Any, arguments: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    share = arguments.get("validation_split")
    if not share or arguments.get("validation_data") is not None:
        return x, y, arguments
    training, validation = internals.split_arrays((x, y, arguments.get("sample_weight")), share)
    x, y, arguments["sample_weight"] = training
    arguments["validation_data"] = validation
    return x, y, arguments


def _users_callbacks(arguments: dict[str, Any]) -> list[keras.callbacks.Callback]:
    given = arguments.get("callbacks")
    if isinstance(given, keras.callbacks.CallbackList):
        raise UsageError("callbacks= is a CallbackList. With resume=, pass a plain list of callbacks.")
    callbacks = keras.tree.flatten(given) if given else []
    if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in callbacks):
        raise UsageError(
            "BackupAndRestore and resume= would both put the model back. Leave BackupAndRestore out."
        )
    return list(callbacks)


def _compared(arguments: dict[str, Any], model: keras.Model) -> dict[str, Any]:
    found = {name: arguments.get(name, _DEFAULTS.get(name)) for name in _COMPARED}
    weights = found["class_weight"]
    found["class_weight"] = (
        None if weights is None else {str(key): float(value) for key, value in weights.items()}
    )
    found["validation_split"] = float(found["validation_split"] or 0.0)
    return found | {"steps_per_execution": model.steps_per_execution}


def _read_state(stored: Stored) -> RunState:
    try:
        return decode(RunState, stored.state)
    except FieldError as fault:
        raise ResumeError(
            f"{stored.path} was written in a form that this memfit does not know: {fault} Pass another "
            "folder in resume= to begin anew."
        ) from None


def _say_broken(store: Store) -> Callable[[str], None]:
    def say(what: str) -> None:
        warnings.warn(
            f"a checkpoint in {store.folder} is not whole ({what}); the one before it is taken, and the "
            "steps since are done again.",
            MemfitWarning,
            stacklevel=4,
        )

    return say
