"""One training step in windows of time: states go on from window to window, gradients stop between them.

This is truncated backpropagation through time, and inexact: what a step far back contributed is not learnt.
The optimizer still makes one update a batch, with the sum of the gradients of all windows. Where there is one
label a sequence, the windows before the last only carry the state, and sequences are aligned at their end, so
that the last window has the last steps of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.data.masking_tf import has_mask, padding_values_of
from memfit.errors import UsageError
from memfit.splitting import internals_tf as internals
from memfit.splitting.gradients_tf import Gradients, SparseGradient
from memfit.splitting.slicing_tf import num_examples
from memfit.splitting.step_tf import (
    Batch,
    Books,
    Piece,
    Trainee,
    compiled,
    count_divisors,
    part_of,
    shown,
    zero,
)
from memfit.splitting.weighing_tf import Divisors, Kind, weighing

TIME_LOCAL: Final = (
    keras.layers.InputLayer,
    keras.layers.Embedding,
    keras.layers.Masking,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.GaussianNoise,
    keras.layers.Activation,
    keras.layers.ReLU,
    keras.layers.LeakyReLU,
    keras.layers.LayerNormalization,
    keras.layers.Identity,
    keras.layers.TimeDistributed,
    keras.layers.Add,
    keras.layers.Multiply,
    keras.layers.Average,
    keras.layers.Concatenate,
)
"""Layers that treat every step alike."""


def why_not_windows(model: Any) -> str:
    """Why a model cannot be trained in windows of time; empty if it can."""
    inputs, outputs = (keras.tree.flatten(getattr(model, name, None) or ()) for name in ("inputs", "outputs"))
    if not inputs or not outputs:
        return f"{model.name!r} is neither Sequential nor Functional, so it cannot be told what crosses time."
    if not any(_is_open(each) for each in inputs):
        return (
            f"{model.name!r} takes sequences of one length only. Build it for any: keras.Input((None, ...))."
        )
    if len({_is_open(each) for each in outputs}) > 1:
        return f"{model.name!r} has outputs with a value a step and outputs with one a sequence."
    layers = _layers(model)
    reason = next(filter(None, map(_why_not_layer, layers)), "")
    if not reason and not any(isinstance(layer, keras.layers.RNN) for layer in layers):
        return f"{model.name!r} has no RNN layer that could carry a state from window to window."
    return reason


def _why_not_layer(layer: Any) -> str:
    name = f"the layer {layer.name!r} ({type(layer).__name__})"
    if isinstance(layer, keras.layers.RNN):
        if layer.go_backwards or layer.stateful:
            return f"{name} runs backwards, or keeps its own state."
        return f"{name} begins with a state of another layer." if internals.is_given_states(layer) else ""
    is_even = not isinstance(layer, (keras.layers.Concatenate, keras.layers.LayerNormalization))
    if isinstance(layer, TIME_LOCAL) and (is_even or layer.axis not in (1, [1], (1,))):
        return ""
    return f"{name} is not known to treat every step alike."


def windowed_train_step(model: Any, window: Any) -> Callable[[Any], Any]:
    """A `train_step` for a compiled model whose gradients go back through at most `window` steps.

    Args:
        model: A model that `why_not_windows` has nothing against.
        window: A number, or a variable that holds it.
    """

    def train_step(data: Any) -> Any:
        batch = keras.utils.unpack_x_y_sample_weight(data)
        size = window if isinstance(window, int) else window.read_value()
        train_in_windows(compiled(model), batch, size)
        return model.get_metrics_result()

    return train_step


def train_in_windows(trainee: Trainee, batch: Batch, window: Any) -> tf.Tensor:
    """Trains on one batch in windows of time and returns its loss."""
    train = _train_many if _is_open(keras.tree.flatten(trainee.model.outputs)[0]) else _train_one
    try:
        return train(trainee, batch, window, {})
    except SparseGradient as found:  # Known only once the backward pass was traced.
        rows = found.rows
    return train(trainee, batch, window, rows)


def _train_many(trainee: Trainee, batch: Batch, window: Any, rows: Mapping[int, tf.DType]) -> tf.Tensor:
    """Where there is a label a step: the loss of each window, as its part of the whole."""
    model, variables = trainee.model, trainee.model.trainable_weights
    books, gradients = Books(trainee, batch), Gradients(variables, rows)
    layers, num_steps = _recurrent(model), _num_steps(model, batch[0])
    whole = _count(trainee, batch, window, num_steps)

    def body(start: tf.Tensor, states: Any, loss: tf.Tensor, outputs: Any, sums: Any) -> Any:
        piece = _piece(model, batch, start, tf.minimum(start + window, num_steps), num_steps)
        with tf.GradientTape() as tape, carried(layers, states) as after:
            weighed = weighing(whole, piece.share)
            part = part_of(trainee, piece.batch, training=True, share=piece.share, weighed=weighed)
            scaled = trainee.optimizer.scale_loss(part.loss)
        sums = gradients.add(sums, tape.gradient(scaled, variables), start // window)
        return (
            piece.stop,
            after(),
            loss + shown(part.loss, piece.share),
            books.add(outputs, part, piece),
            sums,
        )

    states = [_first_state(layer, num_examples(batch)) for layer in layers]
    room = gradients.zeros(-(-num_steps // window))
    _, _, loss, outputs, sums = _loop(num_steps, body, states, zero(), books.zeros(), room)
    trainee.optimizer.apply_gradients(zip(gradients.whole(sums), variables, strict=True))
    books.close(loss, outputs)
    return loss


def _train_one(trainee: Trainee, batch: Batch, window: Any, rows: Mapping[int, tf.DType]) -> tf.Tensor:
    """Where there is a label a sequence: the state up to the last window, and the gradient of that."""
    del rows
    model, variables = trainee.model, trainee.model.trainable_weights
    batch = (_aligned(model, batch[0]), *batch[1:])
    books = Books(trainee, batch)
    layers, num_steps = _recurrent(model), _num_steps(model, batch[0])
    last = tf.maximum(num_steps - window, 0)

    def body(start: tf.Tensor, states: Any) -> Any:
        stop = tf.minimum(start + window, last)
        with carried(layers, states) as after:
            model(_taken(model, batch[0], start, stop), training=True)
        return stop, after()

    states = [_first_state(layer, num_examples(batch)) for layer in layers]
    _, states = _loop(last, body, states)
    x = _taken(model, batch[0], last, num_steps)
    with tf.GradientTape() as tape, carried(layers, states):
        piece = Piece(batch=(x, *batch[1:]), share=tf.ones([]), stop=num_steps)
        part = part_of(trainee, piece.batch, training=True, share=piece.share, weighed=nullcontext())
        scaled = trainee.optimizer.scale_loss(part.loss)
    trainee.optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
    loss = shown(part.loss, piece.share)
    books.close(loss, books.add(books.zeros(), part, piece))
    return loss


def _count(trainee: Trainee, batch: Batch, window: Any, num_steps: tf.Tensor) -> Divisors:
    """The divisors of the whole batch, counted window by window.

    Where a mask must be counted, Keras's losses check shapes, and TensorFlow computes the outputs for that.
    """

    def of(start: Any) -> tuple[tf.Tensor, Divisors]:
        piece = _piece(trainee.model, batch, start, tf.minimum(start + window, num_steps), num_steps)
        return piece.stop, count_divisors(trainee, piece.batch, num_examples(batch))

    def body(start: tf.Tensor, sums: list[tf.Tensor]) -> Any:
        stop, found = of(start)
        return stop, [one + two for one, two in zip(sums, _counted(found), strict=True)]

    stop, first = of(tf.zeros([], tf.int32))
    if first.are_known:
        return first
    _, sums = _loop(num_steps, body, _counted(first), begin=stop)
    rest = iter(sums)
    return Divisors([each if isinstance(each, Kind) else next(rest) for each in first.found])


def _counted(divisors: Divisors) -> list[tf.Tensor]:
    return [each for each in divisors.found if not isinstance(each, Kind)]


@contextmanager
def carried(layers: Sequence[Any], states: Sequence[Any]) -> Iterator[Callable[[], list[Any]]]:
    """RNN layers that begin with given states while the context lasts; yields how to get the last ones."""
    found: dict[int, Any] = {}
    before = [vars(layer).get(internals.INNER_LOOP) for layer in layers]

    def install(place: int, layer: Any) -> None:
        own = getattr(layer, internals.INNER_LOOP)

        def inner_loop(sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
            given = keras.tree.pack_sequence_as(initial_state, keras.tree.flatten(states[place]))
            last, outputs, after = own(sequences, given, mask, training=training)
            if place in found:
                raise UsageError(
                    f"the layer {layer.name!r} is called more than once, so its state cannot go on from "
                    "window to window. Leave gradient_window out of the plan."
                )
            found[place] = after
            return last, outputs, after

        object.__setattr__(layer, internals.INNER_LOOP, inner_loop)

    def after() -> list[Any]:
        return [
            keras.tree.map_structure(
                _like, given, keras.tree.pack_sequence_as(given, keras.tree.flatten(found[place]))
            )
            for place, given in enumerate(states)
        ]

    try:
        for place, layer in enumerate(layers):
            install(place, layer)
        yield after
    finally:
        for layer, own in zip(layers, before, strict=True):
            if own is None:
                object.__delattr__(layer, internals.INNER_LOOP)
            else:
                object.__setattr__(layer, internals.INNER_LOOP, own)


def _like(given: tf.Tensor, found: Any) -> tf.Tensor:
    """A state with the static shape and type of the one before, as a loop needs it."""
    state = tf.cast(tf.stop_gradient(found), given.dtype)
    state.set_shape(given.shape)
    return state


def _first_state(layer: Any, num: Any) -> Any:
    return keras.tree.map_structure(
        tf.convert_to_tensor, list(keras.tree.flatten(layer.get_initial_state(num)))
    )


def _layers(model: Any) -> list[Any]:
    """The layers of a model and of the models in it, as the user wrote them."""
    found = []
    for layer in model.layers:
        found += _layers(layer) if isinstance(layer, keras.Model) else [layer]
    return found


def _recurrent(model: Any) -> list[Any]:
    return [layer for layer in _layers(model) if isinstance(layer, keras.layers.RNN)]


def _is_open(tensor: Any) -> bool:
    return len(tensor.shape) > 1 and tensor.shape[1] is None


def _longs(model: Any, x: Any) -> list[bool]:
    inputs = keras.tree.flatten(model.inputs)
    if isinstance(x, dict):
        by_name = {each.name: each for each in inputs}
        inputs = [by_name[name] for name in sorted(x)] if set(x) <= set(by_name) else inputs
    return [_is_open(each) for each in inputs]


def _num_steps(model: Any, x: Any) -> tf.Tensor:
    leaves = zip(keras.tree.flatten(x), _longs(model, x), strict=True)
    return tf.shape(next(leaf for leaf, long in leaves if long))[1]


def _taken(model: Any, x: Any, start: Any, stop: Any) -> Any:
    """Inputs from one step to before another."""
    leaves = zip(keras.tree.flatten(x), _longs(model, x), strict=True)
    cut = [tf.convert_to_tensor(leaf)[:, start:stop] if long else leaf for leaf, long in leaves]
    return keras.tree.pack_sequence_as(x, cut)


def _piece(model: Any, batch: Batch, start: Any, stop: Any, num_steps: Any) -> Piece:
    x, y, weights = batch
    share = tf.cast(stop - start, tf.float32) / tf.cast(num_steps, tf.float32)

    def cut(leaf: Any) -> Any:
        tensor = tf.convert_to_tensor(leaf)
        return tensor[:, start:stop] if tensor.shape.rank is None or tensor.shape.rank > 1 else tensor

    y, weights = (None if part is None else keras.tree.map_structure(cut, part) for part in (y, weights))
    return Piece(batch=(_taken(model, x, start, stop), y, weights), share=share, stop=stop)


def _aligned(model: Any, x: Any) -> Any:
    """Inputs whose padding is in front: an RNN passes over it there as well."""
    if not has_mask(model):
        return x
    flat, longs, values = keras.tree.flatten(x), _longs(model, x), padding_values_of(model, x)
    tensors = [tf.convert_to_tensor(leaf) for leaf in flat]
    num_steps = _num_steps(model, x)
    real = tf.reduce_any(
        [
            tf.reduce_any(leaf != tf.cast(value, leaf.dtype), axis=list(range(2, leaf.shape.rank)))
            for leaf, long, value in zip(tensors, longs, values, strict=True)
            if long
        ],
        axis=0,
    )
    behind = tf.argmax(real[:, ::-1], axis=1, output_type=tf.int32)
    # What moves out at the end comes in again in front: it is padding.
    places = (tf.range(num_steps)[tf.newaxis] - behind[:, tf.newaxis]) % num_steps
    moved = [
        tf.gather(leaf, places, axis=1, batch_dims=1) if long else leaf
        for leaf, long in zip(tensors, longs, strict=True)
    ]
    return keras.tree.pack_sequence_as(x, moved)


def _loop(end: Any, body: Callable[..., Any], *start: Any, begin: Any = None) -> Any:
    variables = (tf.zeros([], tf.int32) if begin is None else begin, *start)
    return tf.while_loop(lambda at, *_: at < end, body, variables, parallel_iterations=1)
