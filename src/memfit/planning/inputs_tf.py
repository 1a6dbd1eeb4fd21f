"""Whether what a data pipeline holds fits the host, and what a plan does or advises where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.estimating.batches_tf import Batches
from memfit.estimating.pipeline_tf import host_parts
from memfit.records import InputPart, Plan, Profile
from memfit.strategies.stream_inputs import StreamInputs
from memfit.streaming.feeding_tf import held_bytes
from memfit.units import format_bytes


def with_inputs(plan: Plan, data: Any, batches: Batches, batch_size: int) -> Plan:
    """A plan that streams arrays which do not fit the host as Keras would hold them.

    What a `tf.data` set of the user's holds can only be said.
    """
    host = find_budget()
    if isinstance(data, tf.data.Dataset):
        return _advised(plan, data, batches, batch_size, host.host_bytes)
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
    if not leaves or not all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return plan
    inputs = InputPart(held_bytes=held_bytes(data), host_bytes=host.host_bytes)
    proposal = StreamInputs().settings(Profile(batch_size=batch_size, recurrent=(), inputs=inputs))
    if not proposal.settings:
        return plan
    window = proposal.settings[-1].value
    note = (
        f"The arrays are streamed: Keras would hold {format_bytes(inputs.held_bytes)} of them, and the "
        f"host has {format_bytes(inputs.host_bytes)} ({host.host_source})."
    )
    fallbacks = tuple(replace(each, stream_window_bytes=window) for each in plan.fallbacks)
    return replace(plan, stream_window_bytes=window, fallbacks=fallbacks, notes=(*plan.notes, note))


def _advised(plan: Plan, data: Any, batches: Batches, batch_size: int, host_bytes: int) -> Plan:
    parts = host_parts(data, batches, batch_size)
    total = sum(part.num_bytes for part in parts)
    if total <= host_bytes:
        return plan
    largest = max(parts, key=lambda part: part.num_bytes)
    note = (
        f"The tf.data set will hold about {format_bytes(total)} on the host, which has "
        f"{format_bytes(host_bytes)}; most of it is its {largest.name}, {format_bytes(largest.num_bytes)}. "
        "Make it of memfit.stream(...), whose windows are bounded in bytes, or take a smaller shuffle(...) "
        "and no cache()."
    )
    return replace(plan, notes=(*plan.notes, note))
