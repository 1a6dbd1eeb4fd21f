"""What a layer or model computes, as numbers to compare: outputs, states, gradients and changed variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from memfit.rnn.layer_tf import checkpoint_layer

Numbers = list[np.ndarray]


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
    mask: Any = None,
    training: bool = True,
    is_traced: bool = True,
) -> Numbers:
    """Everything that a call of the layer and its gradient give; its seeds are put back afterwards."""
    before = [variable.numpy() for variable in layer.non_trainable_variables]

    def run(inputs: Any, states: Any, mask: Any) -> Any:
        watched = [inputs, *tf.nest.flatten(states or [])]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            found = layer(inputs, initial_state=states, mask=mask, training=training)
            loss = weighted_sum(tf.nest.flatten(found))
        gradients = tape.gradient(loss, [*watched, *layer.trainable_variables])
        return [*tf.nest.flatten(found), *(each for each in gradients if each is not None)]

    function = tf.function(run, autograph=False) if is_traced else run
    found = function(inputs, states, None if mask is None else tf.constant(mask))
    changed = [variable.numpy() for variable in layer.non_trainable_variables]
    for variable, value in zip(layer.non_trainable_variables, before, strict=True):
        variable.assign(value)
    return [np.asarray(each, np.float64) for each in (*found, *changed)]


def assert_same(
    make: Callable[[], keras.layers.RNN],
    *ways: Way,
    length: int = 5,
    shape: Sequence[int] = (3,),
    with_states: bool = False,
    mask: np.ndarray | None = None,
    training: bool = True,
    is_traced: bool = True,
    tolerance: float = 1e-5,
    num_lanes: int | None = 1,
    batch: int = 4,
    is_undone: bool = False,
) -> str:
    """Runs the layer plain and in each way, asserts that all numbers are the same; the kind of path taken.

    The plain layer runs eagerly: a few steps one by one are much cheaper than tracing its loop. Lanes and
    segments multiply what is traced, so a test takes more of them only where they are what it is about.
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
    given: dict[str, Any] = {"states": states, "mask": mask, "training": training}
    plain = numbers_of(layer, inputs, **given, is_traced=False)
    kinds = set()
    for way in ways:
        with checkpoint_layer(layer, way.segment, num_lanes=num_lanes, compiled=way.compiled) as handle:
            found = numbers_of(layer, inputs, **given, is_traced=is_traced)
        kinds.add(handle.paths[0].kind)
        assert_close(plain, found, tolerance, str(way))
    if is_undone:
        assert_close(plain, numbers_of(layer, inputs, **given, is_traced=False), 0.0, "undone")
    (kind,) = kinds
    return kind


def holes(batch: int, length: int) -> np.ndarray:
    """A mask with holes everywhere, and nothing at all in the last of several examples."""
    mask: np.ndarray = np.random.RandomState(2).rand(batch, length) > 0.5
    mask[1:][-1:] = False
    return mask


def assert_close(expected: Numbers, found: Numbers, tolerance: float, what: str = "") -> None:
    """Every tensor within `tolerance` of the other, against its largest element."""
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape
        scale = np.abs(one).max() if one.size else 0.0
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * scale, err_msg=what)
