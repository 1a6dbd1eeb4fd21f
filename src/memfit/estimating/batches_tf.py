"""What the batches of a data set look like, and small ones of any size for measuring.

Real examples are used where they are at hand, since an embedding's gradient depends on how many
different words there are; otherwise values are drawn that every model takes. It reads at most one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from memfit.data.ragged_tf import padded_sample
from memfit.errors import UsageError
from memfit.estimating.internals_tf import input_structure
from memfit.estimating.prediction import InputSize
from memfit.estimating.shapes_tf import check_shapes, inputs_of, with_length

# Enough examples to draw from; more would only cost memory.
NUM_SAMPLES: Final = 64
NAMES: Final = ("x", "y", "sample_weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor of a batch.

    Attributes:
        name: What to call it in an error, such as `"x"`.
        shape: Its shape without the batch.
        has_length: Whether its first axis after the batch is the free length.
        dtype: Its type.
        limit: Whole numbers are drawn below this.
        samples: Real examples, or `None`.
    """

    name: str
    shape: tuple[int, ...]
    has_length: bool
    dtype: tf.DType
    limit: int
    samples: Any = None

    def shape_at(self, length: int | None) -> tuple[int, ...]:
        """Its shape without the batch at another length; `None` for its own."""
        return (length, *self.shape[1:]) if self.has_length and length is not None else self.shape

    def make(self, batch_size: int, length: int | None) -> tf.Tensor:
        """A tensor of so many examples."""
        shape = (batch_size, *self.shape_at(length))
        if self.samples is not None:
            rows = np.asarray(self.samples)
            for axis, size in enumerate(shape):
                rows = np.take(rows, range(size), axis=axis, mode="wrap")
            return tf.constant(rows, self.dtype)
        random = np.random.default_rng(0)
        if self.dtype == tf.string:
            return tf.fill(shape, "a")
        if self.dtype.is_integer or self.dtype.is_bool:
            return tf.constant(random.integers(0, self.limit, shape), self.dtype)
        return tf.cast(tf.constant(random.random(shape, np.float32)), self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What all batches of a data set have in common.

    Attributes:
        structure: The nesting of a batch: `(x,)`, `(x, y)` or `(x, y, sample_weight)`.
        leaves: Its tensors, in the order of the nesting.
        batch_size: Examples in a batch, or `None` where neither data nor user says.
        length: Time steps, or `None` where no axis is free.
        num_examples: Examples in all, or `None` where the data does not tell.
    """

    structure: Any
    leaves: tuple[Leaf, ...]
    batch_size: int | None
    length: int | None
    num_examples: int | None = None

    def make(self, batch_size: int, length: int | None = None) -> tuple[Any, ...]:
        """A batch of so many examples, of another length if one is given."""
        return self._packed([leaf.make(batch_size, length) for leaf in self.leaves])

    def signature(self, *, is_any_length: bool = False) -> tuple[Any, ...]:
        """What a function for batches of any size takes."""
        return self._packed(
            [
                tf.TensorSpec(
                    [None, *((None, *leaf.shape[1:]) if is_any_length and leaf.has_length else leaf.shape)],
                    leaf.dtype,
                )
                for leaf in self.leaves
            ]
        )

    def input_sizes(self) -> tuple[InputSize, ...]:
        """The bytes of each tensor of a batch, by example and step."""
        return tuple(
            InputSize(
                num_bytes=int(np.prod(leaf.shape_at(1), dtype=np.int64)) * leaf.dtype.size,
                has_length=leaf.has_length,
            )
            for leaf in self.leaves
        )

    def _packed(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        packed: tuple[Any, ...] = keras.tree.pack_sequence_as(self.structure, list(leaves))
        return packed


def describe(
    model: Any, data: Any, *, batch_size: int | None = None, length: int | None = None, loss: Any = None
) -> Batches:
    """What batches a model will be trained on.

    Args:
        model: A built Keras model.
        data: `(x, y)` or `(x, y, sample_weight)` of arrays or of `tf.TensorSpec`s, each with the batch as its
            first axis; a `tf.data` set of batches; a `PyDataset`; or `None` for what the model's own inputs
            and outputs say.
        batch_size: Examples in a batch; `None` for what the data says.
        length: Time steps, the second axis, where the model leaves it free; `None` for what the data says.
        loss: The loss, which tells the shape of targets where there is no data.

    Raises:
        UsageError: If data and model do not fit, or something is missing.
    """
    data = padded_sample(model, data)
    structure, found, num_examples = _look(model, data, loss, is_peeked=batch_size is None or length is None)
    flat = keras.tree.flatten(structure)
    names = [name for name, part in zip(NAMES, structure, strict=False) for _ in keras.tree.flatten(part)]
    shapes = [_shape(name, leaf) for name, leaf in zip(names, flat, strict=True)]
    inputs = inputs_of(model, structure[0])
    fixed, has_length, length = with_length(model.name, inputs, names, shapes, length)
    check_shapes(model.name, inputs, names, fixed)
    limits = _limits(model, names)
    leaves = tuple(
        Leaf(
            name=name,
            shape=tuple(int(size or 0) for size in shape[1:]),
            has_length=long,
            dtype=tf.as_dtype(leaf.dtype),
            limit=limit,
            samples=None if sample is None else sample[:NUM_SAMPLES],
        )
        for name, shape, long, leaf, limit, sample in zip(
            names, fixed, has_length, flat, limits, found, strict=True
        )
    )
    if batch_size is None:
        batch_size = next((shape[0] for shape in shapes if shape[0] is not None), None)
    return Batches(
        structure=structure,
        leaves=leaves,
        batch_size=batch_size,
        length=length,
        num_examples=num_examples,
    )


def _shape(name: str, leaf: Any) -> tuple[int | None, ...]:
    if leaf.shape is None or getattr(leaf.shape, "rank", 1) is None or not len(leaf.shape):
        raise UsageError(
            f"{name} has the shape {leaf.shape}, and memfit must know all of it but the batch. Give shapes: "
            "memfit.estimate(model, (tf.TensorSpec([None, 8]), tf.TensorSpec([None, 1])))"
        )
    return tuple(leaf.shape)


def _look(
    model: Any, data: Any, loss: Any, *, is_peeked: bool
) -> tuple[tuple[Any, ...], list[Any], int | None]:
    """The nesting of a batch with specs for leaves, an array or `None` for each, and how many examples."""
    if data is None:
        structure = _own_spec(model, loss)
        return structure, [None] * len(keras.tree.flatten(structure)), None
    if isinstance(data, tf.data.Dataset):
        return _look_at_set(data, is_peeked=is_peeked)
    if isinstance(data, keras.utils.PyDataset):
        batch = _as_parts(data[0])
        return _specs(batch, is_batched=True), keras.tree.flatten(batch), None
    parts = _as_parts(data)
    leaves = keras.tree.flatten(parts)
    if all(isinstance(leaf, (tf.TensorSpec, keras.KerasTensor)) for leaf in leaves):
        return parts, [None] * len(leaves), None
    _check_arrays(data, leaves)
    return _specs(parts, is_batched=False), leaves, int(leaves[0].shape[0])


def _look_at_set(data: Any, *, is_peeked: bool) -> tuple[tuple[Any, ...], list[Any], int | None]:
    structure = _as_parts(data.element_spec)
    leaves = keras.tree.flatten(structure)
    if not all(isinstance(leaf, tf.TensorSpec) for leaf in leaves):
        raise UsageError(
            f"the data set has sparse tensors ({data.element_spec}), which memfit cannot estimate yet. Give "
            "the shapes of a batch: memfit.estimate(model, (tf.TensorSpec([None, 500]), ...))"
        )
    unknown = any(dimension is None for leaf in leaves for dimension in leaf.shape)
    if not (is_peeked and unknown):
        return structure, [None] * len(leaves), None
    batch = _as_parts(next(iter(data.take(1))))
    return _specs(batch, is_batched=True), [leaf.numpy() for leaf in keras.tree.flatten(batch)], None


def _as_parts(data: Any) -> tuple[Any, ...]:
    if isinstance(data, (tuple, list)):
        parts = tuple(data)
        while parts and parts[-1] is None:
            parts = parts[:-1]
        if not 1 <= len(parts) <= len(NAMES):
            raise UsageError(
                f"data is (x, y) or (x, y, sample_weight). Received: a {type(data).__name__} of {len(data)}."
            )
        return parts
    return (data,)


def _specs(parts: tuple[Any, ...], *, is_batched: bool) -> tuple[Any, ...]:
    """Specs of arrays or tensors. The first axis of a batch is its size, that of a whole array is not."""

    def spec(leaf: Any) -> tf.TensorSpec:
        dtype = tf.as_dtype(leaf.dtype)
        if dtype == tf.float64:  # As Keras does.
            dtype = tf.as_dtype(keras.config.floatx())
        return tf.TensorSpec([leaf.shape[0] if is_batched else None, *leaf.shape[1:]], dtype)

    specs: tuple[Any, ...] = keras.tree.map_structure(spec, parts)
    return specs


def _check_arrays(data: Any, leaves: list[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, (np.ndarray, tf.Tensor, tf.Variable)) or not leaf.shape:
            raise UsageError(
                "data is a tuple (x, y) of arrays or of tf.TensorSpec, a tf.data set or a PyDataset. "
                f"Received: {type(data).__name__} with a {type(leaf).__name__} in it."
            )


def _own_spec(model: Any, loss: Any) -> tuple[Any, ...]:
    """What a model's own inputs and outputs say about its batches."""
    inputs, outputs = inputs_of(model), getattr(model, "outputs", None)
    if inputs is None or not outputs:
        raise UsageError(
            f"{model.name!r} does not say what it takes, so memfit needs data or shapes: "
            "memfit.estimate(model, "
            '(tf.TensorSpec([None, 100, 8], "float32"), tf.TensorSpec([None, 1], "float32")))'
        )
    x = keras.tree.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), input_structure(model))
    x = x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x
    is_sparse = "sparse" in _loss_name(loss).lower()
    y = [
        tf.TensorSpec(each.shape[:-1] if is_sparse else each.shape, "int32" if is_sparse else "float32")
        for each in outputs
    ]
    return x, y[0] if len(y) == 1 else y


def _loss_name(loss: Any) -> str:
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "__name__", type(loss).__name__))


def _limits(model: Any, names: Sequence[str]) -> list[int]:
    """Below which whole numbers are drawn: words for inputs, classes for targets."""
    words = [layer.input_dim for layer in all_layers(model) if isinstance(layer, keras.layers.Embedding)]
    outputs = getattr(model, "outputs", None) or ()
    classes = [each.shape[-1] for each in outputs if each.shape and (each.shape[-1] or 0) > 1]
    own = {"x": min(words, default=2), "y": min(classes, default=2)}
    return [own.get(name, 2) for name in names]


def all_layers(model: Any) -> Iterator[Any]:
    """The layers of a model and of the models in it, as the user wrote them."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from all_layers(layer)
