"""The list of callbacks that Keras's `fit` calls, with checkpoints after all of them have had their turn.

It puts the state of a stored run back before the first step, corrects the step numbers of an epoch that was
begun in its middle, ends that epoch where it ends, and writes checkpoints when they are due.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from memfit.decoding import encode
from memfit.errors import MemfitWarning, ResumeError, UsageError
from memfit.training.feed_tf import Feed
from memfit.training.resuming import Identity, Pace, Position, Resume, check_complete, check_variables
from memfit.training.saved_state_tf import (
    CallbackStates,
    dump_variables,
    load_variables,
    notes_of,
    state_variables,
    to_bytes,
)
from memfit.training.store import Store, Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """All of a checkpoint that is not the bytes of variables.

    Attributes:
        identity: What must be the same to go on.
        position: Which batch comes next.
        order_seed: What orders the passes over arrays and `PyDataset`s.
        is_stopped: Whether a callback ended the run before its last epoch.
        callbacks: What the callbacks remember, by class and order.
    """

    identity: Identity
    position: Position
    order_seed: int
    is_stopped: bool = False
    callbacks: Any = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What was found in the folder of a run.

    Attributes:
        settings: Where and how often.
        store: The folder, open.
        stored: The checkpoint to go on from, or `None` for a new run.
        state: Of that checkpoint, or of a new run.
    """

    settings: Resume
    store: Store
    stored: Stored | None
    state: RunState


class CheckpointingCallbacks(keras.callbacks.CallbackList):
    """The user's callbacks, Keras's own, and then a checkpoint where one is due.

    Args:
        users: The user's callbacks.
        session: What was found in the folder.
        feed: Counts the batches.
        num_epochs: As given to `fit`.
        options: For Keras's `CallbackList`.
    """

    def __init__(
        self,
        users: list[keras.callbacks.Callback],
        session: Session,
        feed: Feed,
        num_epochs: int,
        options: dict[str, Any],
    ) -> None:
        super().__init__(users, **options)
        self._pace = Pace(session.settings, time.monotonic())
        self._store, self._stored, self._state = session.store, session.stored, session.state
        self._feed = feed
        self._num_epochs = num_epochs
        self._shift = 0
        self._num_calls = 0
        self._logs_before: dict[str, Any] = {}
        self._has_left_epoch = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Puts the stored run back, or writes the first checkpoint."""
        variables = state_variables(self.model)
        found = notes_of(variables)
        if self._stored is not None:
            check_variables(self._state.identity.variables, found, self._store.folder)
            load_variables(variables, self._stored)
        super().on_train_begin(logs)
        if self._stored is not None:
            CallbackStates(self.callbacks).load(self._state.callbacks, self._stored)
            self._pace.written(self._feed.position.num_steps, time.monotonic())
            return
        self._state = replace(self._state, identity=replace(self._state.identity, variables=found))
        try:
            self._write(is_stopped=False)
        except OSError as fault:
            raise ResumeError(
                f"cannot write checkpoints in {self._store.folder}: {fault.strerror or fault}. Make room "
                "there, or pass another folder in resume=."
            ) from None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """In the middle of an epoch, undoes what its second beginning has reset."""
        super().on_epoch_begin(epoch, logs)
        self._shift = self._feed.position.step
        self._num_calls = 0
        self._has_left_epoch = False
        if self._shift:
            assert self._stored is not None
            load_variables(state_variables(self.model), self._stored)
            CallbackStates(self.callbacks).load(self._state.callbacks, self._stored)
            results = self.model.get_metrics_result()
            self._logs_before = {name: float(value) for name, value in results.items()}

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Passes on the number that the step has in its epoch."""
        super().on_train_batch_begin(batch + self._shift, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Passes on the number that the step has in its epoch; then writes a checkpoint if one is due."""
        super().on_train_batch_end(batch + self._shift, logs)
        self._feed.advance()
        self._num_calls += 1
        if self.model.stop_training:
            return
        if not self._feed.is_epoch_over():
            if self._is_due():
                self._try_to_write()
        elif batch + 1 < self._feed.num_batches:
            # Keras counts to a whole epoch, but this one was begun in its middle, or the pass is over.
            self._has_left_epoch = True
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Closes the epoch; then writes a checkpoint if one is due or the run is over."""
        if self._has_left_epoch:
            self.model.stop_training = False
        if self._num_calls == 0 and not self._shift:
            raise UsageError("the data is empty: the epoch had 0 batches. Pass at least one.")
        if self._num_calls == 0:  # All steps were done before, only the end of the epoch was not.
            logs = self._logs_before | (logs or {})
        super().on_epoch_end(epoch, logs)
        self._feed.end_epoch()
        is_stopped = bool(self.model.stop_training)
        if is_stopped or epoch + 1 >= self._num_epochs or self._is_due():
            self._try_to_write(is_stopped=is_stopped)

    def on_train_end(self, logs: Any = None) -> None:
        """Keeps what the model is at the end, after averages or best weights were put into it."""
        super().on_train_end(logs)
        is_stopped = self._state.is_stopped or bool(self.model.stop_training)
        try:
            state, arrays = self._snapshot(is_stopped=is_stopped)
            self._store.write_final(state, arrays)
        except OSError as fault:
            self._warn_not_written(fault)

    def _is_due(self) -> bool:
        return self._pace.is_due(self._feed.position.num_steps, time.monotonic())

    def _try_to_write(self, *, is_stopped: bool = False) -> None:
        try:
            self._write(is_stopped=is_stopped)
        except OSError as fault:
            self._warn_not_written(fault)

    def _write(self, *, is_stopped: bool) -> None:
        state, arrays = self._snapshot(is_stopped=is_stopped)
        try:
            self._store.write(state, arrays)
        finally:
            self._pace.written(self._feed.position.num_steps, time.monotonic())

    def _snapshot(self, *, is_stopped: bool) -> tuple[dict[str, Any], Any]:
        variables = state_variables(self.model)
        check_complete(self._state.identity.variables, notes_of(variables))
        remembered, extras = CallbackStates(self.callbacks).dump()
        state = replace(
            self._state, position=self._feed.position, is_stopped=is_stopped, callbacks=remembered
        )

        def arrays() -> Any:
            yield from dump_variables(variables)
            yield from ((name, to_bytes(values)) for name, values in extras)

        return encode(state), arrays

    def _warn_not_written(self, fault: OSError) -> None:
        warnings.warn(
            f"no checkpoint could be written in {self._store.folder} after step "
            f"{self._feed.position.num_steps}: {fault.strerror or fault}. Training goes on, the checkpoint "
            "before is kept, and the next one is tried when it is due. Make room there.",
            MemfitWarning,
            stacklevel=2,
        )


class FinishedCallbacks(keras.callbacks.CallbackList):
    """For a run that is complete: the model and the History as they were at its end.

    Args:
        callbacks: Which are to know how the run ended.
        final: The end of the run.
        state: Of that end.
        folder: For an error.
        options: For Keras's `CallbackList`.
    """

    def __init__(
        self,
        callbacks: list[keras.callbacks.Callback],
        final: Stored,
        state: RunState,
        folder: Path,
        options: dict[str, Any],
    ) -> None:
        super().__init__(callbacks, **options)
        self._final, self._state, self._folder = final, state, folder

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuses another model before anything is changed."""
        notes = notes_of(state_variables(self.model))
        check_variables(self._state.identity.variables, notes, self._folder)
        super().on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Puts the end of the run into the model, after Keras has had its turn."""
        super().on_train_end(logs)
        load_variables(state_variables(self.model), self._final)
        CallbackStates(self.callbacks).load(self._state.callbacks, self._final)
