"""What a layer or model computes, as numbers to compare: outputs, states, gradients and changed variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from memfit.rnn.layer_tf import checkpoint_layer

Numbers = list[np.ndarray]
BATCH = 6


class Way(NamedTuple):
    """A segment, and whether its loops are compiled; `None` is what memfit chooses."""

    segment: int | None
    compiled: bool | None = None


def weighted_sum(values: Sequence[Any]) -> Any:
    """A loss that no two elements go into alike."""
    return tf.add_n(
        [
            tf.reduce_sum(
                tf.cast(value, tf.float64)
                * tf.reshape(tf.cos(tf.range(tf.cast(tf.size(value), tf.float64))), tf.shape(value))
            )
            for value in values
        ]
    )


def numbers_of(
    layer: keras.layers.RNN,
    inputs: Any,
    *,
    states: Any = None,
    masks: Sequence[Any] = (None,),
    training: bool = True,
    is_traced: bool = True,
) -> list[Numbers]:
    """Everything that a call of the layer and its gradient give, from the same random seeds for each mask."""
    before = [variable.numpy() for variable in layer.non_trainable_variables]

    def run(inputs: Any, states: Any, mask: Any) -> Any:
        watched = [inputs, *tf.nest.flatten(states or [])]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            found = layer(inputs, initial_state=states, mask=mask, training=training)
            loss = weighted_sum(tf.nest.flatten(found))
        gradients = tape.gradient(loss, [*watched, *layer.trainable_variables])
        return [*tf.nest.flatten(found), *(each for each in gradients if each is not None)]

    function = tf.function(run) if is_traced else run
    numbers = []
    for mask in masks:
        found = function(inputs, states, None if mask is None else tf.constant(mask))
        changed = [variable.numpy() for variable in layer.non_trainable_variables]
        for variable, value in zip(layer.non_trainable_variables, before, strict=True):
            variable.assign(value)
        numbers.append([np.asarray(each, np.float64) for each in (*found, *changed)])
    return numbers


def assert_same(
    make: Callable[[], keras.layers.RNN],
    *ways: Way,
    length: int = 11,
    shape: Sequence[int] = (3,),
    with_states: bool = False,
    masks: Sequence[np.ndarray | None] = (None,),
    tolerance: float = 1e-5,
    num_lanes: int | None = 2,
    batch: int = BATCH,
    is_undone: bool = False,
    **options: Any,
) -> str:
    """Runs the layer plain and in each way, asserts that all numbers are the same; the kind of path taken.

    With `is_undone`, also that the layer is the plain one again afterwards, bit for bit.
    """
    keras.utils.set_random_seed(1)
    layer = make()
    inputs = tf.random.normal((batch, length, *shape), dtype=layer.compute_dtype)
    layer.build(inputs.shape)
    states = None
    if with_states:
        states = tf.nest.map_structure(
            lambda each: tf.random.normal(each.shape, dtype=each.dtype), layer.get_initial_state(batch)
        )
    given: dict[str, Any] = {"states": states, "masks": masks, **options}
    plain = numbers_of(layer, inputs, **given)
    kinds = set()
    for way in ways:
        with checkpoint_layer(layer, way.segment, num_lanes=num_lanes, compiled=way.compiled) as handle:
            found = numbers_of(layer, inputs, **given)
        kinds.add(handle.paths[0].kind)
        for one, other in zip(plain, found, strict=True):
            assert_close(one, other, tolerance, str(way))
    if is_undone:
        for one, other in zip(plain, numbers_of(layer, inputs, **given), strict=True):
            assert_close(one, other, 0.0, "undone")
    (kind,) = kinds
    return kind


def assert_close(expected: Numbers, found: Numbers, tolerance: float, what: str = "") -> None:
    """Every tensor within `tolerance` of the other, against its largest element."""
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape
        scale = np.abs(one).max() if one.size else 0.0
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * scale, err_msg=what)
