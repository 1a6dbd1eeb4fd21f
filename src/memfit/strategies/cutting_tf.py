"""Cuts the batches of a model while it trains, for `strategies.truncate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from memfit.data.cutting_tf import cutter_for


@contextmanager
def cut_steps(model: Any, most_steps: int | None, cut_from: str = "end") -> Iterator[None]:
    """A model whose training step sees at most so many steps of each sequence, while the context lasts.

    Args:
        model: A compiled model.
        most_steps: The steps that are left; `None` for a half of each batch's.
        cut_from: As in `Cutter`.
    """
    own = model.train_step

    def train_step(data: Any) -> Any:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        cutter = cutter_for(model, x, y, most_steps=most_steps or 1, cut_from=cut_from)
        if most_steps is None:
            leaves = zip(keras.tree.flatten(x), cutter.inputs, strict=True)
            cutter = replace(cutter, most_steps=tf.shape(next(leaf for leaf, long in leaves if long))[1] // 2)
        return own(cutter.cut(*(part for part in (x, y, weights) if part is not None)))

    object.__setattr__(model, "train_step", train_step)
    model.train_function = None
    try:
        yield
    finally:
        object.__delattr__(model, "train_step")
        model.train_function = None
