"""Lists, ragged tensors and padded arrays in one form: all steps of all sequences behind each other.

This file finds out what has steps and what has one value a sequence, and that it fits together. Batches are
left to `pipeline_tf`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from memfit.data.leaves_tf import (
    Leaf,
    Numbers,
    Steps,
    as_even,
    as_leaf,
    as_steps,
    leaves,
    mapped,
    num_of,
    width_of,
)
from memfit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """Sequences with their labels and weights, all of which fit together.

    Attributes:
        parts: `(x,)`, `(x, y)` or `(x, y, weights)`, made of dicts, tuples and leaves.
        lengths: Steps of each sequence: of its longest feature.
        step_bytes: The inputs of a step.
    """

    parts: tuple[Any, ...]
    lengths: Numbers
    step_bytes: int


def read_sequences(data: Any, *, padding_value: Any, labels_per_step: bool | None = None) -> Sequences:
    """Sequences as `memfit.batch_by_length` takes them, in one form.

    Raises:
        UsageError: If something is no sequence, or is not as long as the rest: with the index of the sample.
    """
    parts = data if isinstance(data, tuple) else (data,)
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"data is x, (x, y) or (x, y, weights). Received: a tuple of {len(parts)}.")
    if len(parts) == 3 and parts[1] is None:
        raise UsageError("there are weights but no labels to weigh. Pass (x, y, weights), or x alone.")
    x = _trimmed(_features(parts[0]), padding_value)
    with_steps = [leaf for leaf in leaves(x) if isinstance(leaf, Steps)]
    lengths: Numbers = np.max([leaf.lengths for leaf in with_steps], axis=0)
    names = ("the label", "the weight")
    others = [
        mapped(partial(_beside, features=with_steps, per_step=labels_per_step, name=name), part)
        for part, name in zip(parts[1:], names, strict=False)
        if part is not None
    ]
    for part, name in zip([x, *others], ("x", "y", "weights"), strict=False):
        for leaf in leaves(part):
            if num_of(leaf) != len(lengths):
                raise UsageError(
                    f"{name} has {num_of(leaf):,} samples, but the sequences are {len(lengths):,}. Pass as "
                    "many."
                )
    step_bytes = sum(_step_bytes(leaf.values) for leaf in with_steps)
    return Sequences(parts=(x, *others), lengths=lengths, step_bytes=step_bytes)


def padding_values(x: Any, padding_value: Any) -> list[float]:
    """What each feature is padded with, from one value or one for each of them.

    Raises:
        UsageError: If there are more or fewer.
    """
    given, num = leaves(padding_value), len(leaves(x))
    if len(given) not in (1, num):
        raise UsageError(
            f"padding_value has {len(given)} values for {num} features. Pass one, or one for each."
        )
    return [float(value) for value in (given * num if len(given) == 1 else given)]


def _features(x: Any) -> Any:
    """Features; where none is ragged, arrays of the widest second axis are the padded sequences."""
    found = mapped(as_leaf, x)
    if any(isinstance(leaf, Steps) for leaf in leaves(found)):
        return found
    width = max((leaf.values.shape[1] for leaf in leaves(found) if len(leaf.values.shape) > 1), default=0)
    if not width:
        raise UsageError(
            "x has no steps: its samples are single numbers or text. Pass a list of sequences, a "
            "tf.RaggedTensor, or an array [sequences, steps, ...]; turn text into numbers first."
        )
    return mapped(lambda leaf: as_steps(leaf) if width_of(leaf) == width else leaf, found)


def _trimmed(x: Any, padding_value: Any) -> Any:
    """Padded features without the padding in front and at the end that all of them have."""
    if padding_value is None or not any(_is_padded(leaf) for leaf in leaves(x)):
        return x
    values = zip(leaves(x), padding_values(x, padding_value), strict=True)
    is_real = np.any([_is_real(leaf, value) for leaf, value in values if _is_padded(leaf)], axis=0)
    first = is_real.argmax(axis=1)
    lengths = np.where(is_real.any(axis=1), is_real.shape[1] - is_real[:, ::-1].argmax(axis=1) - first, 0)

    def trimmed(leaf: Leaf) -> Leaf:
        if not isinstance(leaf, Steps) or not _is_padded(leaf):
            return leaf
        return replace(leaf, starts=leaf.starts + first, lengths=lengths)

    return mapped(trimmed, x)


def _is_padded(leaf: Leaf) -> bool:
    return isinstance(leaf, Steps) and leaf.width is not None


def _is_real(leaf: Steps, padding_value: float) -> npt.NDArray[np.bool_]:
    differs = np.asarray(leaf.values) != padding_value
    flat = differs.reshape(len(leaf.lengths), leaf.width or 0, -1)
    return np.asarray(flat.any(axis=2))


def _beside(value: Any, features: list[Steps], per_step: bool | None, name: str) -> Leaf:
    """A label or weight: one a sequence, or one a step and then as long as a feature."""
    leaf = as_even(as_leaf(value)) if isinstance(value, list) else as_leaf(value)
    width = width_of(leaf)
    if width is not None and _has_steps(leaf, width, features, per_step, name):
        padded = as_steps(leaf)
        model = next((each for each in features if each.width == width), None)
        if model is not None:
            leaf = replace(padded, starts=model.starts, lengths=model.lengths)
        elif width >= max(each.lengths.max() for each in features):
            leaf = replace(padded, lengths=features[0].lengths)
        else:
            leaf = padded
    if isinstance(leaf, Steps):
        _check_lengths(leaf, features, name)
    elif per_step and name == "the label":
        raise UsageError(
            "labels_per_step=True was given, but a label has one value a sequence. Leave it out."
        )
    return leaf


def _has_steps(leaf: Leaf, width: int, features: list[Steps], per_step: bool | None, name: str) -> bool:
    if per_step is not None:
        return per_step
    if width != max(each.width or int(each.lengths.max()) for each in features):
        return False
    if len(leaf.values.shape) > 2:
        return True
    raise UsageError(
        f"{name} has {width} values a sample, and the longest input {width} steps: they may be a value a "
        "step or not. Pass labels_per_step=True, or False."
    )


def _check_lengths(leaf: Steps, features: list[Steps], name: str) -> None:
    if len(leaf.lengths) != len(features[0].lengths):
        return  # Said elsewhere.
    fits = np.any([leaf.lengths == each.lengths for each in features], axis=0)
    if not fits.all():
        index = int(np.argmin(fits))
        raise UsageError(
            f"{name} of sample {index} has {leaf.lengths[index]} steps, but its input has "
            f"{' or '.join(str(each.lengths[index]) for each in features)}. Make them equal; labels that "
            "have no steps of their own must all have one shape."
        )


def _step_bytes(values: Any) -> int:
    return int(np.prod(values.shape[1:], dtype=np.int64)) * int(tf.as_dtype(values.dtype).size)
