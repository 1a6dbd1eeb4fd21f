"""`memfit.watch`: memory watched while a program runs, as a context, a Keras callback, or around a script.

This file loads no TensorFlow. It waits for the program to load it, which a script may do late, and listens
from then on (`engine_tf`). A thread looks once in a while whether it is there, and is the clock of programs
that have no steps.
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, Self

from memfit.errors import MemfitWarning, SetupError, UsageError
from memfit.measuring import importing
from memfit.records import Leak, Watched

if TYPE_CHECKING:
    from memfit.guarding.engine_tf import Engine

LOOK_SECONDS: Final = 0.1
NEEDED: Final = ("tensorflow", "keras")
NEVER_LOADED: Final = "TensorFlow and Keras were never loaded, so there was nothing to watch."


def watch(every: int | None = None, *, budget: str | int | None = None, seconds: float = 1.0) -> Watcher:
    """Watches memory while a program runs, and names what makes it grow by variable and line.

    Warns with a `MemfitWarning` when memory keeps growing after its warm-up: what grows, how fast, in how
    many steps it runs out, who is to blame and what to change. What stays flat is never mentioned.

    Args:
        every: Read the meters every so many steps; `None` as often as takes under half a per cent of time.
        budget: What may be used, as in `memfit.budget`: how soon memory runs out depends on it.
        seconds: How often to read the meters in a program that has no steps: that calls no `fit`, no
            optimizer, no `tf.function` and no model.

    Returns:
        A `Watcher`: a context manager, and a callback for `model.fit(..., callbacks=[...])`.

    Example:
    ```python
    with memfit.watch() as watcher:
        for x, y in dataset:
            train_step(x, y)
    print(watcher.leaks)
    ```
    """
    if every is not None and (isinstance(every, bool) or every < 1):
        raise UsageError(f"every= is a number of steps from 1 on, or None. Received: {every!r}.")
    if seconds <= 0:
        raise UsageError(f"seconds= must be above 0. Received: {seconds!r}.")
    return Watcher(every=every, budget=budget, seconds=seconds)


class Watcher:
    """What `memfit.watch` returns. It can be entered, or passed to Keras as a callback, any number of times.

    Args:
        every: Steps between two readings, or `None`.
        budget: What may be used.
        seconds: Between two readings where there are no steps.
    """

    def __init__(self, *, every: int | None, budget: str | int | None, seconds: float) -> None:
        self._every, self._budget, self._seconds = every, budget, seconds
        self._engine: Engine | None = None
        self._depth = 0
        self._process = os.getpid()
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1:
            self._process = os.getpid()
            self._stop = threading.Event()
            self.attach()
            threading.Thread(target=self._look, args=(self._stop,), name="memfit.watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._stop.set()
            with self._lock:
                if self._engine is not None and os.getpid() == self._process:
                    self._engine.finish()

    def attach(self) -> bool:
        """Begins to listen, if the program has loaded TensorFlow and Keras; says whether it does."""
        with self._lock:
            if self._stop.is_set() or not all(map(importing.is_loaded, NEEDED)):
                return False
            if self._engine is None:
                from memfit.guarding.engine_tf import Engine

                self._engine = Engine(every=self._every, budget=self._budget)
            self._engine.start()
            return True

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """What makes memory grow, as far as it is known now."""
        return self.result().leaks

    def result(self) -> Watched:
        """All that was seen so far, as a record."""
        if self._engine is None:
            return Watched(
                num_steps=0, num_epochs=0, num_readings=0, unit="step", seconds=0.0, notes=(NEVER_LOADED,)
            )
        return self._engine.result()

    def __str__(self) -> str:
        """The leaks, a line each; or that there are none."""
        result = self.result()
        return "\n".join(map(str, result.leaks)) or f"no leak in {result.num_steps:,} steps."

    def _look(self, stop: threading.Event) -> None:
        """Waits for TensorFlow, and counts seconds for programs without steps."""
        try:
            while not stop.wait(LOOK_SECONDS) and not self.attach():
                pass
        except SetupError as fault:
            warnings.warn(str(fault), MemfitWarning, stacklevel=1)
            return
        while not stop.wait(self._seconds):
            if self._engine is not None:
                self._engine.on_second(self._seconds)

    # Keras calls these. Batches and epochs are heard of by listening, which works without a callback, too.

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Begins to watch."""
        self.__enter__()

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Ends it."""
        self.__exit__()

    def _pass(self, *_: Any, **__: Any) -> None:
        """Nothing to do."""

    set_params = set_model = _pass
    on_epoch_begin = on_epoch_end = on_batch_begin = on_batch_end = _pass
    on_train_batch_begin = on_train_batch_end = _pass
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _pass
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _pass
