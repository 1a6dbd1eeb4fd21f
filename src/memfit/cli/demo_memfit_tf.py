"""The demo's training by memfit: estimated, planned, rehearsed, and trained in the memory there is."""

from __future__ import annotations

import warnings
from typing import Any

import keras

import memfit
from memfit.cli.demo_tf import BATCH_SIZE, make_model, make_sequences


def train(length: int, num_steps: int, budget_bytes: int) -> dict[str, Any]:
    """Trains as the demo's script does, within a budget, and returns what there is to tell."""
    keras.utils.set_random_seed(0)
    x, y = make_sequences(num_steps * BATCH_SIZE, length)
    model = make_model()
    estimate = memfit.estimate(model, (x, y), batch_size=BATCH_SIZE, validation=False)
    plan = memfit.plan(model, (x, y), budget=budget_bytes, batch_size=BATCH_SIZE)
    losses = _Losses()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", memfit.MemfitWarning)  # Incidents are in the run.
        run = memfit.fit(
            model, x, y, plan=plan, batch_size=BATCH_SIZE, callbacks=[losses], shuffle=False, verbose=0
        )
    return {
        "estimate": estimate.to_dict(),
        "plan": plan.to_dict(),
        "run": run.to_dict(),
        "losses": losses.found,
    }


class _Losses(keras.callbacks.Callback):
    """The loss of each step; Keras logs the mean of the epoch so far."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []
        self._total = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the loss of a step."""
        total = float((logs or {})["loss"]) * (batch + 1)
        self.found.append(total - self._total)
        self._total = total
