"""Sequences cut to a greatest length, with their labels and weights, inside of `tf.data`.

What is cut off are real steps: padding, in front or behind, is what a model masks, and goes first. A batch is
`x`, `(x, y)` or `(x, y, weights)` of dense tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.data.masking_tf import has_mask, padding_values_of
from memfit.errors import UsageError

ENDS: Final = ("end", "front")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """Cuts the batches for one model.

    Attributes:
        most_steps: The steps that are left: a number, or a scalar tensor.
        cut_from: `"end"` keeps the first steps of a sequence, `"front"` the last ones.
        inputs: Which inputs have steps, in the order of `keras.tree.flatten`.
        labels: Which labels have.
        padding: What each input is padded with; empty if the model masks nothing, and all steps are real.
    """

    most_steps: Any
    cut_from: str
    inputs: tuple[bool, ...]
    labels: tuple[bool, ...]
    padding: tuple[float, ...]

    def cut(self, *parts: Any) -> Any:
        """A batch with at most so many steps."""
        x, y, weights = keras.utils.unpack_x_y_sample_weight(parts)
        flat = keras.tree.flatten(x)
        starts, keep = self._window(flat)
        inputs = [
            _rows(leaf, starts, keep) if long else leaf for leaf, long in zip(flat, self.inputs, strict=True)
        ]
        x = keras.tree.pack_sequence_as(x, inputs)
        return keras.utils.pack_x_y_sample_weight(
            x, self._beside(y, starts, keep), self._beside(weights, starts, keep)
        )

    def cut_set(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """A set of batches with at most so many steps, as long as before."""
        return dataset.map(self.cut, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def _beside(self, part: Any, starts: tf.Tensor, keep: tf.Tensor) -> Any:
        """Labels or weights, cut where the label has steps; a weight a sequence has none."""
        if part is None:
            return None
        flat = keras.tree.flatten(part)
        longs = self.labels if len(self.labels) == len(flat) else (any(self.labels),) * len(flat)
        cut = [
            _rows(leaf, starts, keep) if long and len(leaf.shape) > 1 else leaf
            for leaf, long in zip(flat, longs, strict=True)
        ]
        return keras.tree.pack_sequence_as(part, cut)

    def _window(self, flat: list[Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Where each sequence begins to be kept, and how many steps are."""
        stepped = [(place, leaf) for place, leaf in enumerate(flat) if self.inputs[place]]
        _, first = stepped[0]
        for _, leaf in stepped[1:]:
            message = "memfit: inputs of different lengths cannot be cut to one greatest length."
            tf.debugging.assert_equal(tf.shape(leaf)[1], tf.shape(first)[1], message)
        num, width = tf.shape(first)[0], tf.shape(first)[1]
        keep = tf.minimum(width, self.most_steps)
        if not self.padding:
            return tf.fill([num], 0 if self.cut_from == "end" else width - keep), keep
        real = tf.reduce_any([_is_real(leaf, self.padding[place]) for place, leaf in stepped], axis=0)
        if self.cut_from == "end":
            start = tf.argmax(real, axis=1, output_type=tf.int32)
        else:
            start = width - tf.argmax(real[:, ::-1], axis=1, output_type=tf.int32) - keep
        return tf.clip_by_value(start, 0, width - keep), keep


def cutter_for(model: Any, x: Any, y: Any, *, most_steps: int, cut_from: str) -> Cutter:
    """How the batches of some data are cut for a model; `x` and `y` may be arrays, tensors or specs.

    Raises:
        UsageError: If the model takes sequences of one length only.
    """
    if cut_from not in ENDS:
        raise UsageError(f'sequences are cut from the "end" or the "front". Received: {cut_from!r}.')
    shapes = [tuple(leaf.shape) for leaf in keras.tree.flatten(x)]
    own = [tuple(each.shape) for each in keras.tree.flatten(getattr(model, "inputs", None) or ())]
    inputs = tuple(map(_is_open, own)) if len(own) == len(shapes) else _widest(shapes)
    if not any(inputs):
        raise UsageError(
            f"{model.name!r} takes sequences of one length only, so they cannot be cut. Build it for any "
            "length: keras.Input((None, ...))."
        )
    width = next(shape[1] for shape, long in zip(shapes, inputs, strict=True) if long)
    labels = [tuple(leaf.shape) for leaf in keras.tree.flatten(y)] if y is not None else []
    outputs = [tuple(each.shape) for each in keras.tree.flatten(getattr(model, "outputs", None) or ())]
    if len(outputs) == len(labels):
        longs = tuple(map(_is_open, outputs))
    else:
        longs = tuple(len(shape) > 1 and shape[1] == width for shape in labels)
    padding = tuple(padding_values_of(model, x)) if has_mask(model) else ()
    return Cutter(most_steps=most_steps, cut_from=cut_from, inputs=inputs, labels=longs, padding=padding)


def _is_open(shape: tuple[int | None, ...]) -> bool:
    return len(shape) > 1 and shape[1] is None


def _widest(shapes: list[tuple[int | None, ...]]) -> tuple[bool, ...]:
    """For a model that does not say what it takes: the inputs with the greatest second axis."""
    widths = [shape[1] or 0 for shape in shapes if len(shape) > 1]
    most = max(widths, default=0)
    return tuple(len(shape) > 1 and (shape[1] is None or shape[1] == most) for shape in shapes)


def _rows(leaf: Any, starts: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    tensor = tf.convert_to_tensor(leaf)
    found = tf.gather(tensor, starts[:, tf.newaxis] + tf.range(keep), axis=1, batch_dims=1)
    found.set_shape([tensor.shape[0], None, *tensor.shape[2:]])
    return found


def _is_real(leaf: Any, padding: float) -> tf.Tensor:
    tensor = tf.convert_to_tensor(leaf)
    value = tf.constant("") if tensor.dtype == tf.string else tf.cast(padding, tensor.dtype)
    return tf.reduce_any(tensor != value, axis=list(range(2, tensor.shape.rank)))
