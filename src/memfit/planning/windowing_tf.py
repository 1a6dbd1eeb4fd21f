"""A plan by truncated backpropagation through time: the longest window of gradients that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from memfit.estimating.batches_tf import Batches
from memfit.estimating.probing_tf import Subject
from memfit.planning.metering_tf import metering
from memfit.planning.search import Try, is_safe
from memfit.records import Plan
from memfit.splitting.windows_tf import why_not_windows, windowed_train_step

# A window is at most a half of the sequence, and hardly worth its loop below this.
SHORTEST: Final = 8


def plan_windows(
    subject: Subject,
    batches: Batches,
    batch_size: int,
    *,
    budget_bytes: int,
    tell: Callable[[str], None] | None,
) -> Plan | None:
    """The plan with the longest window whose rehearsal fits; `None` if there is none."""
    model, length = subject.model, batches.length
    if length is None or not model.compiled or why_not_windows(model):
        return None
    size = tf.Variable(1, trainable=False)
    with metering(subject, batches, lambda _: windowed_train_step(model, size)) as meter:
        window = -(-length // 2)
        while window >= SHORTEST:
            size.assign(window)
            if tell is not None:
                tell(f"rehearsing gradients cut every {window} steps")
            peak_bytes = meter.peak_bytes(batch_size, length) + meter.resting_bytes
            tried = Try(
                num_examples=batch_size, peak_bytes=int(min(peak_bytes, 2**62)), seconds=meter.seconds
            )
            if is_safe(tried, budget_bytes):
                return _plan(model, window, tried, budget_bytes)
            window = -(-window // 2)
    return None


def _plan(model: Any, window: int, tried: Try, budget_bytes: int) -> Plan:
    note = f"Gradients stop every {window} steps: what is farther apart is not learnt together."
    return Plan(
        gradient_window=window,
        batch_size=tried.num_examples,
        num_parameters=model.count_params(),
        budget_bytes=budget_bytes,
        rehearsed_bytes=tried.peak_bytes,
        rehearsed_seconds=tried.seconds,
        notes=(note,),
    )
