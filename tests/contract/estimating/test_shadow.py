"""What stands in for an optimizer: it updates copies, tiny ones plainly where there are many."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from memfit.estimating.shadow_tf import FEW_VARIABLES, TINY_ELEMENTS, shadowed


def make_model(num_tiny: int) -> keras.Model:
    keras.utils.set_random_seed(0)
    wide = layers.Dense(TINY_ELEMENTS // 2, use_bias=False)
    tiny = [layers.Dense(1, kernel_initializer="ones") for _ in range(num_tiny // 2)]
    model = keras.Sequential([keras.Input((2,)), wide, *tiny])
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), "mse")
    return model


def changes(model: keras.Model, *, is_terse: bool) -> tuple[list[bool], list[bool]]:
    """Of each variable, whether a step with what stands in changes it, and its momentum."""
    before = model.get_weights()
    with shadowed(model, model.optimizer, is_terse=is_terse) as shadow:
        model.train_step((tf.ones([4, 2]), tf.ones([4, 1]) * 3.0))
        moved = [not np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True)]
        momentums = [bool(tf.reduce_any(each.value != 0)) for each in shadow.variables[2:]]
    assert all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
    return moved, momentums


def test_many_tiny_variables_are_updated_plainly_and_large_ones_as_the_optimizer_does() -> None:
    model = make_model(FEW_VARIABLES)
    num = len(model.trainable_variables)
    moved, momentums = changes(model, is_terse=True)
    assert moved == [True] * num
    assert momentums == [True] + [False] * (num - 1)


def test_few_variables_are_all_updated_as_the_optimizer_does() -> None:
    moved, momentums = changes(make_model(4), is_terse=True)
    assert moved == momentums == [True] * 5
