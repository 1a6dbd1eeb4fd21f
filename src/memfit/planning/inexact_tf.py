"""What is tried when nothing exact fits, if it is allowed: sequences cut to lengths that the data has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.data.layout import NUM_BUCKETS, lay_out
from memfit.data.masking_tf import has_mask, padding_values_of
from memfit.data.reading_tf import read_lengths
from memfit.errors import BudgetError, MemfitError
from memfit.planning.refusing import with_truncation
from memfit.planning.worst_tf import worst_of
from memfit.records import Plan, Profile
from memfit.strategies.allowing import BUCKETING, TRUNCATE, TRUNCATE_FRONT
from memfit.strategies.bucketing import Bucketing
from memfit.strategies.truncate import PERCENTILES, Truncate

# Batches of a set that are read to find out how long sequences are.
MOST_BATCHES: Final = 200
# A plan is made for so many lengths; arithmetic says where to begin, and may be off by this.
MOST_TRIES: Final = 3
OFF_BY: Final = 1.25

Counts = Mapping[int, int]


def plan_inexact(
    refused: BudgetError,
    plan_at: Callable[[int], Plan],
    *,
    model: Any,
    data: Any,
    length: int | None,
    allow: tuple[str, ...],
) -> Plan:
    """The plan for the longest sequences that fit, where cutting them is allowed.

    Args:
        refused: Why nothing exact fits.
        plan_at: Plans for sequences of another length.
        model: The model.
        data: What it is trained on.
        length: The length that nothing fits at; `None` where no axis is free.
        allow: What may be done.

    Raises:
        BudgetError: If it is not allowed, or no length fits.
    """
    if length is None or refused.fitting_length is None:
        raise refused
    counts = count_lengths(model, data, length)
    profile = Profile(batch_size=1, recurrent=(), lengths=percentiles_of(counts))
    lengths = [setting.value for setting in Truncate().settings(profile).settings if setting.value]
    fitting = [each for each in lengths if each <= refused.fitting_length]
    if TRUNCATE not in allow and TRUNCATE_FRONT not in allow:
        if fitting and data is not None:
            raise with_truncation(refused, max_length=fitting[-1], lost_share=lost_share(counts, fitting[-1]))
        raise refused
    cut_from = "front" if TRUNCATE_FRONT in allow else "end"
    for most in _tries(lengths, refused.fitting_length):
        try:
            found = plan_at(most)
        except BudgetError:
            continue
        share = lost_share(counts, most)
        cut: dict[str, Any] = {"max_length": most, "cut_from": cut_from, "lost_share": share, "allow": allow}
        fallbacks = tuple(replace(each, **cut) for each in found.fallbacks)
        return replace(found, **cut, fallbacks=fallbacks)
    raise refused


def lost_share(counts: Counts, max_length: int) -> float:
    """The share of all steps that is cut off at a greatest length.

    Example:
    >>> lost_share({10: 3, 70: 1}, 40)
    0.3
    """
    num_steps = sum(length * num for length, num in counts.items())
    lost = sum((length - max_length) * num for length, num in counts.items() if length > max_length)
    return lost / max(1, num_steps)


def _tries(lengths: list[int], fitting_length: int) -> list[int]:
    """The longest first, from a little above what arithmetic says."""
    near = [each for each in reversed(lengths) if each <= OFF_BY * fitting_length]
    return near[:MOST_TRIES] or lengths[:1]


def percentiles_of(counts: Counts) -> tuple[int, ...]:
    """The percentiles of lengths that `Profile.lengths` holds, and the greatest length."""
    num = sum(counts.values())
    found, seen = [], 0
    wanted = [math.ceil(num * percent / 100) for percent in PERCENTILES]
    for length in sorted(counts):
        seen += counts[length]
        while wanted and seen >= wanted[0]:
            wanted.pop(0)
            found.append(length)
    return (*found, max(counts))


def count_lengths(model: Any, data: Any, length: int) -> Counts:
    """How many sequences have each length; where that cannot be read, all are taken for equally long."""
    try:
        if isinstance(data, (tf.data.Dataset, tuple, list)):
            x = _inputs(data)
            padding = tuple(padding_values_of(model, x)) if has_mask(model) else None
            if padding and len(set(padding)) == 1:
                padding = padding[0]  # type: ignore[assignment]
            given = data if isinstance(data, tf.data.Dataset) else (x,)
            found = read_lengths(given, limit=MOST_BATCHES, padding_value=padding)  # type: ignore[arg-type]
            return found.counts
    except MemfitError:
        pass
    return {length: 1}


def _inputs(data: Any) -> Any:
    found = data.element_spec if isinstance(data, tf.data.Dataset) else data
    x = keras.utils.unpack_x_y_sample_weight(tuple(found) if isinstance(found, list) else found)[0]
    # A list is one of inputs for Keras, and would be one of sequences for reading.
    return tuple(x) if isinstance(x, list) else x


def plan_buckets(
    plan_at: Callable[[int, int], Plan], *, model: Any, data: Any, batch_size: int, length: int | None
) -> Plan | str:
    """The plan for batches by length, made for the worst of them; or why there is none.

    Args:
        plan_at: Plans for batches of a size and a length.
        model: The model.
        data: What it is trained on.
        batch_size: Examples in a batch as it is.
        length: Its time steps; `None` where no axis is free.
    """
    if length is None or not isinstance(data, (tuple, list)):
        return "the data is in batches already, or its sequences are of one length."
    counts = count_lengths(model, data, length)
    layout = lay_out(counts, buckets=NUM_BUCKETS, tokens=None, batch_size=batch_size, longer="own_bucket")
    profile = Profile(
        batch_size=batch_size, recurrent=(), lengths=percentiles_of(counts), tokens=layout.tokens
    )
    proposal = Bucketing().settings(profile)
    if not proposal.settings:
        return proposal.reason
    worst = worst_of([(slot.size, slot.length) for slot in layout.slots])
    found = plan_at(worst.batch_size or batch_size, worst.length or length)
    changes: dict[str, Any] = {
        "tokens": layout.tokens,
        "batch_size": None,
        "allow": (*found.allow, BUCKETING),  # Of fallbacks, too: they keep to these batches.
    }
    return replace(found, **changes, fallbacks=tuple(replace(each, **changes) for each in found.fallbacks))
