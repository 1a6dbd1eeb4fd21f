"""A model that can be trained for a step with nothing applied to it.

The optimizer's update takes memory like the rest of a step, so it must run; but on copies: variables of the
same shapes, an optimizer of the same kind with slots of its own, both gone afterwards. What else a step
changes (statistics, metrics, seeds) is small and is put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from memfit.errors import UsageError
from memfit.estimating.internals_tf import forgetting_gradients
from memfit.splitting import internals_tf as internals


class Shadow:
    """Stands where a model's optimizer would, and updates copies.

    Args:
        optimizer: The optimizer, which is left alone.
        variables: The variables that the model trains.
    """

    def __init__(self, optimizer: Any, variables: Sequence[Any]) -> None:
        self.optimizer = _copied(optimizer)
        self._places = {id(variable): place for place, variable in enumerate(variables)}
        self._copies = [
            keras.Variable(tf.zeros(each.shape, each.dtype), dtype=each.dtype, name=each.name)
            for each in variables
        ]
        self.optimizer.build(self._copies)

    def __getattr__(self, name: str) -> Any:
        """Anything else that a step may ask of an optimizer."""
        return getattr(self.optimizer, name)

    def read(self) -> list[tf.Tensor]:
        """The values of copies and slots. Nothing is copied as long as nothing is written."""
        variables = [*self._copies, *self.optimizer.variables]
        return [tf.convert_to_tensor(internals.raw(variable)) for variable in variables]

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Updates the copies."""
        given = list(self._places) if trainable_variables is None else [id(v) for v in trainable_variables]
        copies = [self._copies[self._places[each]] for each in given]
        return self.optimizer.apply_gradients(list(zip(grads, copies, strict=True)))

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Updates the copies."""
        pairs = list(grads_and_vars)
        return self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])


@contextmanager
def shadowed(model: Any, optimizer: Any) -> Iterator[Shadow | None]:
    """A model whose steps leave no trace once the context is left.

    Args:
        model: A built model.
        optimizer: What it is trained with, or `None` where nothing is trained.

    Yields:
        What stands in for the optimizer, or `None`.
    """
    kept = _kept(model)
    values = [variable.numpy() for variable in kept]
    shadow = None if optimizer is None else Shadow(optimizer, model.trainable_variables)
    with forgetting_gradients(), _standing_in(model, shadow):
        try:
            yield shadow
        finally:
            for variable, value in zip(kept, values, strict=True):
                internals.raw(variable).assign(value)


@contextmanager
def _standing_in(model: Any, shadow: Shadow | None) -> Iterator[None]:
    if shadow is None or not model.compiled:
        yield
        return
    own = model.optimizer
    # Past Keras, which would track the shadow as a part of the model.
    object.__setattr__(model, "optimizer", shadow)
    try:
        yield
    finally:
        object.__setattr__(model, "optimizer", own)


def _kept(model: Any) -> list[Any]:
    """The variables that a step may change although the optimizer is a shadow."""
    found = [*model.variables, *model.metrics_variables, *internals.seed_states()]
    trained = {id(variable) for variable in model.trainable_variables}
    if internals.overrides(model, "train_step"):  # It may have more optimizers than one.
        trained = set()
        for each in vars(model).values():
            found += each.variables if isinstance(each, keras.optimizers.Optimizer) else ()
    return [each for each in {id(v): v for v in found}.values() if id(each) not in trained]


def _copied(optimizer: Any) -> Any:
    try:
        return type(optimizer).from_config(optimizer.get_config())
    except Exception as error:
        raise UsageError(
            f"memfit needs a second {type(optimizer).__name__} to measure a step without applying it, and "
            f"could not make one from its config: {error}. Give another one: memfit.estimate(..., "
            "optimizer='adam')"
        ) from error
