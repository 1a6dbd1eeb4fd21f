"""What a layer or model computes, as numbers to compare: outputs, states, gradients and changed variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from memfit.rnn.layer_tf import checkpoint_layer

Numbers = list[np.ndarray]
BATCH = 5


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
    mask: Any = None,
    training: bool = True,
    is_traced: bool = True,
) -> Numbers:
    """Everything that a call of the layer and its gradient give, from the same random seeds each time."""
    before = [variable.numpy() for variable in layer.non_trainable_variables]

    def run(inputs: Any, states: Any) -> Any:
        watched = [inputs, *tf.nest.flatten(states or [])]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            found = layer(inputs, initial_state=states, mask=mask, training=training)
            loss = weighted_sum(tf.nest.flatten(found))
        gradients = tape.gradient(loss, [*watched, *layer.trainable_variables])
        return [*tf.nest.flatten(found), *(each for each in gradients if each is not None)]

    found = (tf.function(run) if is_traced else run)(inputs, states)
    changed = [variable.numpy() for variable in layer.non_trainable_variables]
    for variable, value in zip(layer.non_trainable_variables, before, strict=True):
        variable.assign(value)
    return [np.asarray(each, np.float64) for each in found] + [each.astype(np.float64) for each in changed]


def assert_same(
    make: Callable[[], keras.layers.RNN],
    *,
    segment: int | None,
    length: int = 11,
    shape: Sequence[int] = (3,),
    with_states: bool = False,
    mask: np.ndarray | None = None,
    tolerance: float = 1e-5,
    num_lanes: int | None = 2,
    compiled: bool | None = None,
    batch: int = BATCH,
    **options: Any,
) -> str:
    """Runs the layer plain and by segments, asserts that all numbers are the same; the kind of path taken."""
    keras.utils.set_random_seed(1)
    layer = make()
    inputs = tf.random.normal((batch, length, *shape), dtype=layer.compute_dtype)
    layer.build(inputs.shape)
    states = None
    if with_states:
        states = tf.nest.map_structure(
            lambda each: tf.random.normal(each.shape, dtype=each.dtype), layer.get_initial_state(batch)
        )
    given: dict[str, Any] = {"states": states, "mask": None if mask is None else tf.constant(mask), **options}
    plain = numbers_of(layer, inputs, **given)
    with checkpoint_layer(layer, segment, num_lanes=num_lanes, compiled=compiled) as handle:
        segmented = numbers_of(layer, inputs, **given)
    assert_close(plain, segmented, tolerance)
    assert_close(plain, numbers_of(layer, inputs, **given), 0.0)
    return handle.paths[0].kind


def assert_close(expected: Numbers, found: Numbers, tolerance: float) -> None:
    """Every tensor within `tolerance` of the other, against its largest element."""
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape
        scale = np.abs(one).max() if one.size else 0.0
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * scale)
