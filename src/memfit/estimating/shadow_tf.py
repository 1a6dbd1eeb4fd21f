"""A model that can be trained for a step with nothing applied to it.

The optimizer's update takes memory like the rest of a step, also because it may have to leave values alone
that the backward pass still needs. So it must run, on what the forward pass reads: while it is measured,
the model's variables stand for copies of their values, and a second optimizer with slots of its own stands
for the first. Both are gone afterwards. What else a step changes (statistics, metrics, seeds) is put back.

Half of the time that it takes to trace a step of MobileNetV2 goes into the update of its variables, most of
them tiny. Where it is only recorded what a step holds, those get a plain update in place of the optimizer's:
their new values must find a place like any other's, and there are fewer numbers on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import keras

from memfit.errors import UsageError, reason_of
from memfit.estimating.internals_tf import copied_values, forgetting_gradients
from memfit.splitting import internals_tf as internals

# Variables of fewer numbers are tiny.
TINY_ELEMENTS: Final = 1024


@contextmanager
def shadowed(model: Any, optimizer: Any, *, is_terse: bool = False) -> Iterator[Any]:
    """A model whose steps leave no trace once the context is left.

    Args:
        model: A built model.
        optimizer: What it is trained with, or `None` where nothing is trained.
        is_terse: Whether tiny variables get a plain update.

    Yields:
        What stands in for the optimizer, or `None`.
    """
    kept = _kept(model)
    values = [variable.numpy() for variable in kept]
    trained = [] if optimizer is None else model.trainable_variables
    with forgetting_gradients(), copied_values(trained):
        shadow = None if optimizer is None else _copied(optimizer)
        if shadow is not None:
            shadow.build(trained)
            if is_terse:
                _simplify(shadow)
        with _standing_in(model, shadow):
            try:
                yield shadow
            finally:
                for variable, value in zip(kept, values, strict=True):
                    internals.raw(variable).assign(value)


@contextmanager
def _standing_in(model: Any, shadow: Any) -> Iterator[None]:
    if shadow is None or not model.compiled:
        yield
        return
    own = model.optimizer
    # Past Keras, which would track the second optimizer as a part of the model.
    object.__setattr__(model, "optimizer", shadow)
    try:
        yield
    finally:
        object.__setattr__(model, "optimizer", own)


def _kept(model: Any) -> list[Any]:
    """The variables that a step may change although it trains copies."""
    found = [*model.variables, *model.metrics_variables, *internals.seed_states()]
    if internals.overrides(model, "train_step"):  # It may have more optimizers than one.
        for each in vars(model).values():
            found += each.variables if isinstance(each, keras.optimizers.Optimizer) else ()
    trained = {id(variable) for variable in model.trainable_variables}
    return [each for each in {id(v): v for v in found}.values() if id(each) not in trained]


def _simplify(optimizer: Any) -> None:
    """Has an optimizer update tiny variables plainly."""
    update = optimizer.update_step

    def update_step(gradient: Any, variable: Any, learning_rate: Any) -> None:
        if math.prod(variable.shape) < TINY_ELEMENTS:
            optimizer.assign_sub(variable, keras.ops.multiply(gradient, learning_rate))
        else:
            update(gradient, variable, learning_rate)

    optimizer.update_step = update_step


def _copied(optimizer: Any) -> Any:
    try:
        return type(optimizer).from_config(optimizer.get_config())
    except Exception as error:
        raise UsageError(
            f"memfit needs a second {type(optimizer).__name__} to measure a step without applying it, and "
            f"could not make one from its config: {reason_of(error)} Give another one: memfit.estimate(..., "
            "optimizer='adam')"
        ) from error
