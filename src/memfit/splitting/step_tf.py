"""One training or evaluation step in micro-batches: gradient, loss and metrics of the whole batch.

The micro-batches run one after the other in a loop that is traced once. Their gradients are summed as they
come; what the optimizer does (clipping, averages, schedules, loss scaling, its own accumulation) it does
once, with the gradient of the whole batch. Which model may be split is decided in `checking_tf`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from memfit.splitting import internals_tf as internals
from memfit.splitting.gradients_tf import Gradients, SparseGradient
from memfit.splitting.slicing_tf import num_examples, take
from memfit.splitting.weighing_tf import Divisors, counting, sum_of, weighing

Batch = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainee:
    """What is trained, and how its loss is made.

    Args:
        model: The Keras model.
        losses: What `model.compile` makes of a loss, or `None` if all losses come from the layers.
        optimizer: Applies the gradients; `None` where nothing is trained.
        has_metrics: Whether Keras's running means and metrics of the model are kept up.
    """

    model: Any
    losses: Any
    optimizer: Any
    has_metrics: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one micro-batch adds to the batch.

    Args:
        loss: Its part of the loss: a scalar, or a tensor where nothing is reduced, whose sum is meant.
        outputs: Its part of the loss of each output, where there are several.
        y_pred: What the model said.
    """

    loss: tf.Tensor
    outputs: list[tf.Tensor]
    y_pred: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some examples of a batch.

    Args:
        batch: The examples.
        share: Which part of the batch they are.
        stop: The place after the last of them.
    """

    batch: Batch
    share: tf.Tensor
    stop: tf.Tensor


def compiled(model: Any) -> Trainee:
    """A model with what it was compiled with."""
    losses = internals.compiled_loss(model)
    return Trainee(model=model, losses=losses, optimizer=model.optimizer, has_metrics=True)


def split_train_step(model: Any, micro_batch: Any) -> Callable[[Any], Any]:
    """A `train_step` for a compiled model with at most `micro_batch` examples under way.

    Args:
        model: The model.
        micro_batch: A number, or a variable that holds it and may change without tracing anew, or `None` for
            a quarter of each batch.
    """

    def train_step(data: Any) -> Any:
        batch = keras.utils.unpack_x_y_sample_weight(data)
        train(compiled(model), batch, _quarter(batch) if micro_batch is None else _now(micro_batch))
        return model.get_metrics_result()

    return train_step


def split_test_step(model: Any, micro_batch: Any) -> Callable[[Any], Any]:
    """A `test_step` for a compiled model, as `split_train_step`."""

    def test_step(data: Any) -> Any:
        evaluate(compiled(model), keras.utils.unpack_x_y_sample_weight(data), _now(micro_batch))
        return model.get_metrics_result()

    return test_step


def train(trainee: Trainee, batch: Batch, micro_batch: Any) -> tf.Tensor:
    """Trains on one batch in micro-batches, or whole if `micro_batch` is `None`, and returns its loss."""
    if micro_batch is None:
        return _train_whole(trainee, batch)
    try:
        return _train_split(trainee, batch, micro_batch, rows={})
    except SparseGradient as found:  # Known only once the backward pass was traced.
        rows = found.rows
    return _train_split(trainee, batch, micro_batch, rows=rows)


def _train_whole(trainee: Trainee, batch: Batch) -> tf.Tensor:
    variables = trainee.model.trainable_weights
    with tf.GradientTape() as tape:
        part = part_of(trainee, batch, training=True, share=tf.ones([]), weighed=nullcontext())
        scaled = trainee.optimizer.scale_loss(part.loss)
    trainee.optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
    return shown(part.loss, tf.ones([]))


def _train_split(
    trainee: Trainee, batch: Batch, micro_batch: Any, *, rows: Mapping[int, tf.DType]
) -> tf.Tensor:
    whole = count_divisors(trainee, batch, micro_batch)
    num = num_examples(batch)
    books = Books(trainee, batch)
    variables = trainee.model.trainable_weights
    gradients = Gradients(variables, rows)

    def body(start: tf.Tensor, loss: tf.Tensor, outputs: Any, sums: Any) -> Any:
        piece = _piece(batch, start, micro_batch, num)
        with tf.GradientTape() as tape:
            weighed = weighing(whole, piece.share)
            part = part_of(trainee, piece.batch, training=True, share=piece.share, weighed=weighed)
            scaled = trainee.optimizer.scale_loss(part.loss)
        found = tape.gradient(scaled, variables)
        sums = gradients.add(sums, found, start // micro_batch)
        return piece.stop, loss + shown(part.loss, piece.share), books.add(outputs, part, piece), sums

    zeros = gradients.zeros(-(-num // micro_batch))
    _, loss, outputs, sums = _loop(num, body, zero(), books.zeros(), zeros)
    if variables:
        trainee.optimizer.apply_gradients(zip(gradients.whole(sums), variables, strict=True))
    books.close(loss, outputs)
    return loss


def evaluate(trainee: Trainee, batch: Batch, micro_batch: Any) -> tf.Tensor:
    """Evaluates one batch in micro-batches and returns its loss."""
    whole = count_divisors(trainee, batch, micro_batch)
    num = num_examples(batch)
    books = Books(trainee, batch)

    def body(start: tf.Tensor, loss: tf.Tensor, outputs: Any) -> Any:
        piece = _piece(batch, start, micro_batch, num)
        weighed = weighing(whole, piece.share)
        part = part_of(trainee, piece.batch, training=False, share=piece.share, weighed=weighed)
        return piece.stop, loss + shown(part.loss, piece.share), books.add(outputs, part, piece)

    _, loss, outputs = _loop(num, body, zero(), books.zeros())
    books.close(loss, outputs)
    return loss


class Books:
    """Keras's running means of the loss, brought up to date once a batch.

    Args:
        trainee: Whose means they are.
        batch: The batch.
    """

    def __init__(self, trainee: Trainee, batch: Batch) -> None:
        self._trainee = trainee
        self._num = num_examples(batch)
        self._metrics = internals.output_metrics(trainee.losses)
        self._are_reduced = [True] * len(self._metrics)

    def zeros(self) -> list[tf.Tensor]:
        """The loss of each output before the first micro-batch; empty where there is only one."""
        return [zero() for _ in self._metrics]

    def add(self, outputs: list[tf.Tensor], part: Part, piece: Piece) -> list[tf.Tensor]:
        """The losses of the outputs with those of a micro-batch, which the metrics count."""
        if self._trainee.has_metrics:
            x, y, sample_weight = piece.batch
            self._trainee.model.compute_metrics(x, y, part.y_pred, sample_weight=sample_weight)
        self._are_reduced = [each.shape.rank == 0 for each in part.outputs]
        return [one + shown(two, piece.share) for one, two in zip(outputs, part.outputs, strict=True)]

    def close(self, loss: tf.Tensor, outputs: list[tf.Tensor]) -> None:
        """Tells Keras, with the weights that it would have used itself."""
        if not self._trainee.has_metrics:
            return
        internals.loss_tracker(self._trainee.model).update_state(loss, sample_weight=self._num)
        for metric, value, is_reduced in zip(self._metrics, outputs, self._are_reduced, strict=True):
            # Keras weighs the loss of an output by examples only where their number is known while tracing.
            is_weighed = isinstance(self._num, int) or not is_reduced
            metric.update_state(value, sample_weight=self._num if is_weighed else None)


def count_divisors(trainee: Trainee, batch: Batch, micro_batch: Any) -> Divisors:
    """The divisors of the whole batch. In a graph, only as much of the forward pass is run as masks need."""
    if trainee.losses is None:
        return Divisors()

    def count(some: Batch) -> Divisors:
        x, y, sample_weight = some
        y_pred = _call(trainee.model, x, training=False)
        with counting() as divisors, internals.recording_outputs(trainee.losses):
            trainee.losses(y, y_pred, sample_weight)
        return divisors

    if not tf.executing_eagerly():
        # First in a graph that never runs: most losses need no counting, and then no forward pass at all.
        divisors = _traced_aside(count, batch)
        return divisors if divisors.are_known else count(batch)
    num = int(num_examples(batch))
    size = int(micro_batch)
    return sum_of([count(take(batch, start, min(start + size, num))) for start in range(0, num, size)])


def _traced_aside(count: Callable[[Batch], Divisors], batch: Batch) -> Divisors:
    found = []
    aside = tf.function(lambda some: found.append(count(some)), autograph=False)
    aside.get_concrete_function(batch)
    return found[-1]


def part_of(
    trainee: Trainee,
    batch: Batch,
    *,
    training: bool,
    share: tf.Tensor,
    weighed: AbstractContextManager[None],
) -> Part:
    """What some examples, or steps of them, add to the batch: one forward pass with its losses."""
    x, y, sample_weight = batch
    model = trainee.model
    y_pred = _call(model, x, training=training)
    losses = []
    with internals.recording_outputs(trainee.losses) as outputs:
        if trainee.losses is not None:
            with weighed:
                loss = trainee.losses(y, y_pred, sample_weight)
            if loss is not None:
                losses.append(loss)
    losses += [_additional(model, loss, share) for loss in model.losses]
    total = losses[0] if len(losses) == 1 else keras.ops.sum(losses)
    return Part(loss=total, outputs=outputs(), y_pred=y_pred)


def _additional(model: Any, loss: Any, share: tf.Tensor) -> tf.Tensor:
    """A loss from `add_loss` or a regularizer.

    Keras sums what has one value per example. A single number is the same for all examples (a regularizer),
    or their mean (an activity regularizer): a micro-batch counts by its share of the examples.
    """
    value = internals.additional_loss(model, loss)
    shape = tf.convert_to_tensor(loss).shape
    is_per_example = shape.rank is None or (shape.rank > 0 and shape[0] is None)
    return value if is_per_example else value * tf.cast(share, value.dtype)


def _call(model: Any, x: Any, *, training: bool) -> Any:
    return model(x, training=training) if internals.takes_training(model) else model(x)


def shown(loss: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """A loss as it is logged: the mean, where Keras leaves it unreduced."""
    loss = tf.cast(loss, keras.config.floatx())
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss) * tf.cast(share, loss.dtype)


def zero() -> tf.Tensor:
    """A loss before the first part of a batch."""
    return tf.zeros([], keras.config.floatx())


def _now(micro_batch: Any) -> Any:
    return micro_batch if isinstance(micro_batch, int) else micro_batch.read_value()


def _quarter(batch: Batch) -> Any:
    return tf.maximum(1, num_examples(batch) // 4)


def _piece(batch: Batch, start: tf.Tensor, micro_batch: Any, num: Any) -> Piece:
    stop = tf.minimum(start + micro_batch, num)
    share = tf.cast(stop - start, tf.float32) / tf.cast(num, tf.float32)
    return Piece(batch=take(batch, start, stop), share=share, stop=stop)


def _loop(num: Any, body: Callable[..., Any], *start: Any) -> Any:
    variables = (tf.zeros([], tf.int32), *start)
    return tf.while_loop(lambda at, *_: at < num, body, variables, parallel_iterations=1)
