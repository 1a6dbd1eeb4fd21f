"""Every private name of Keras that splitting and training lean on, in this one file.

`check_versions()` fails with the versions in its message when one of them has moved. Nothing else in
`splitting` and `training` may import from `keras.src` or touch a name that begins with an underscore.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss as loss_module
from keras.src.random.seed_generator import global_seed_generator
from keras.src.trainers.compile_utils import CompileLoss
from keras.src.trainers.trainer import Trainer

from memfit.measuring.versions_tf import check_expectations, takes

REDUCE = "reduce_weighted_values"
REDUCE_ARGUMENTS = ("values", "sample_weight", "mask", "reduction", "dtype")
# What an RNN layer calls to run over time.
INNER_LOOP = "inner_loop"


def check_versions() -> None:
    """Raises a `SetupError` that names the versions when an internal is not as expected."""
    check_expectations("memfit.fit does not know", _expectations())


def _expectations() -> dict[str, bool]:
    trainer = {
        f"keras Trainer.{name}": hasattr(TensorFlowTrainer, name)
        for name in ("_make_function", "_symbolic_build", "_aggregate_additional_loss")
    }
    return {
        **trainer,
        f"keras losses.{REDUCE}": takes(getattr(loss_module, REDUCE, None), *REDUCE_ARGUMENTS),
        "keras losses.apply_mask": takes(
            getattr(loss_module, "apply_mask", None), "sample_weight", "mask", "dtype", "reduction"
        ),
        "keras CompileLoss._metrics": hasattr(CompileLoss("mse"), "_metrics"),
        "keras Operation._inbound_nodes": hasattr(keras.layers.Identity(), "_inbound_nodes"),
        f"keras RNN.{INNER_LOOP}": takes(
            getattr(keras.layers.RNN, INNER_LOOP, None), "sequences", "initial_state", "mask", "training"
        ),
        "keras Trainer._loss_tracker": "_loss_tracker" in inspect.getsource(Trainer.__init__),
    }


def is_given_states(layer: Any) -> bool:
    """Whether an RNN layer is called with an initial state of another layer."""
    calls = [node.arguments for node in layer._inbound_nodes]
    return any(len(each.args) > 1 or each.kwargs.get("initial_state") is not None for each in calls)


@contextmanager
def reducing(weigh: Callable[..., Any]) -> Iterator[None]:
    """Has every Keras loss that is called inside return what `weigh` makes of its reduced value.

    `weigh` is called with the value that Keras would return and with the four things that it was made
    of: `values`, `sample_weight`, `mask` and `reduction`.
    """
    original = getattr(loss_module, REDUCE)

    def reduce(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: Any = "sum_over_batch_size",
        dtype: Any = None,
    ) -> Any:
        value = original(values, sample_weight, mask, reduction, dtype)
        return weigh(value, values, sample_weight, mask, reduction)

    setattr(loss_module, REDUCE, reduce)
    try:
        yield
    finally:
        setattr(loss_module, REDUCE, original)


def merged_weights(sample_weight: Any, mask: Any, reduction: Any) -> Any:
    """Sample weights and mask as Keras multiplies them for a reduction."""
    if sample_weight is not None:
        sample_weight = tf.cast(sample_weight, tf.float32)
    return loss_module.apply_mask(sample_weight, mask, dtype="float32", reduction=reduction)


def compiled_loss(model: Any) -> Any:
    """The losses that `model.compile` was given, as one callable, or `None`."""
    return model._compile_loss


def make_compiled_loss(model: Any, loss: Any) -> Any:
    """What `model.compile(loss=loss)` would make of a loss."""
    return CompileLoss(loss, output_names=getattr(model, "output_names", None))


def loss_classes(compile_loss: Any) -> set[type]:
    """The classes of the losses inside, as far as the user gave instances."""
    given = keras.tree.flatten(compile_loss._user_loss)
    return {type(each) for each in given if isinstance(each, keras.losses.Loss)}


class Recorder:
    """Stands where Keras would count the loss of one output, and keeps the value."""

    def __init__(self) -> None:
        self.value: Any = None

    def update_state(self, value: Any, sample_weight: Any = None) -> None:  # noqa: ARG002
        """Keeps the value that Keras would count."""
        self.value = value


class Recorders:
    """One recorder for each of Keras's metrics, of which a first call of the loss may make more.

    Args:
        metrics: Keras's metrics, which are left alone.
    """

    def __init__(self, metrics: list[Any]) -> None:
        self._metrics = metrics
        self.made: list[Recorder] = []

    def __len__(self) -> int:
        return len(self._metrics)

    def __iter__(self) -> Iterator[Recorder]:
        self.made = [Recorder() for _ in self._metrics]
        return iter(self.made)


@contextmanager
def recording_outputs(compile_loss: Any) -> Iterator[Callable[[], list[Any]]]:
    """Keeps the losses of single outputs out of Keras's running means; what it yields returns them."""
    if compile_loss is None:
        yield list
        return
    metrics = compile_loss._metrics
    recorders = Recorders(metrics)
    compile_loss._metrics = recorders
    try:
        yield lambda: [each.value for each in recorders.made]
    finally:
        compile_loss._metrics = metrics


def output_metrics(compile_loss: Any) -> list[Any]:
    """Keras's running means of the losses of single outputs."""
    return [] if compile_loss is None else list(compile_loss._metrics)


def loss_tracker(model: Any) -> Any:
    """Keras's running mean of the whole loss."""
    return model._loss_tracker


def additional_loss(model: Any, loss: Any) -> Any:
    """A loss from `add_loss` or a regularizer as Keras adds it."""
    return model._aggregate_additional_loss(loss)


def takes_training(model: Any) -> bool:
    """Whether `model.call` has a `training` argument."""
    return bool(model._call_has_training_arg)


def make_function(model: Any, step: Callable[..., Any], spec: Any = None) -> Callable[[Any], Any]:
    """Keras's own function around a step: traced or eager, compiled or not, as the model was compiled.

    Args:
        model: The model.
        step: Takes a batch.
        spec: What is known of all batches. Keras traces once for all of them, and so does this.

    Returns:
        A function of one batch.
    """
    function = model._make_function(step)

    def run(batch: Any) -> Any:
        return function(iter((batch,)))

    if model.run_eagerly or spec is None:
        return run
    traced: Callable[[Any], Any] = tf.function(run, input_signature=[spec], autograph=False)
    return traced


def make_predict_function(model: Any) -> Callable[[Any], Any]:
    """Keras's own function that predicts a list of batches."""
    previous = model.predict_function
    model.make_predict_function(force=True)
    made, model.predict_function = model.predict_function, previous
    function: Callable[[Any], Any] = made
    return function


def overrides(model: Any, name: str) -> bool:
    """Whether a model's class, or the model itself, has its own version of one of Keras's methods."""
    if name in vars(model):
        return True
    return getattr(type(model), name) is not getattr(TensorFlowTrainer, name)


def build_from(model: Any, batch: Any) -> None:
    """Creates the variables of a model, its metrics and its optimizer without running anything."""
    model._symbolic_build(data_batch=batch)


def all_layers(model: Any) -> list[Any]:
    """A model and everything inside it, each once."""
    found = {id(each): each for each in model._flatten_layers(include_self=True, recursive=True)}
    return list(found.values())


@contextmanager
def before_update(optimizer: Any, change: Callable[[Any], Any]) -> Iterator[None]:
    """Has an optimizer update by what `change` makes of the list of gradients."""
    original = optimizer.apply

    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        return original(change(list(grads)), trainable_variables)

    object.__setattr__(optimizer, "apply", apply)  # Past Keras, which tracks attributes.
    try:
        yield
    finally:
        object.__delattr__(optimizer, "apply")


def seed_states() -> list[Any]:
    """The state that random layers without a seed of their own draw from."""
    return [global_seed_generator().state]


def is_replicated(model: Any) -> bool:
    """Whether the model is trained by several replicas."""
    return int(model.distribute_strategy.num_replicas_in_sync) > 1


def raw(variable: Any) -> Any:
    """TensorFlow's variable behind one of Keras's."""
    return getattr(variable, "_value", variable)
