"""What a traced step puts aside can be had when the step dies, and is gone when it does not."""

from typing import Any

import pytest
import tensorflow as tf

from memfit.training.holding_tf import Hold


def make_step(hold: Hold, total: tf.Variable) -> Any:
    @tf.function
    def step(values: Any, is_fatal: tf.Tensor) -> Any:
        rows = tf.RaggedTensor.from_row_lengths(values, [1, 2])
        sparse = tf.SparseTensor([[0]], values[:1], [3])
        with tf.control_dependencies(
            [hold.put({"rows": rows, "sparse": sparse, "total": total.read_value()})]
        ):
            total.assign_add(tf.reduce_sum(values))
            with tf.control_dependencies([tf.debugging.assert_equal(is_fatal, False)]):
                result = 2 * values
        with tf.control_dependencies([result]):
            hold.drop()
        return result

    return step


def test_what_a_dead_step_began_with() -> None:
    hold, total = Hold(), tf.Variable(5.0)
    assert hold.take() is None
    step = make_step(hold, total)
    step(tf.constant([1.0, 2.0, 3.0]), tf.constant(False))
    assert hold.take() is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant([4.0, 5.0, 6.0]), tf.constant(True))
    held = hold.take()
    assert held["rows"].to_list() == [[4.0], [5.0, 6.0]]
    assert held["sparse"].values.numpy().tolist() == [4.0]
    assert float(held["total"]) == 11
    assert hold.take() is None


def test_places_are_used_again_and_are_empty_then() -> None:
    hold = Hold()
    name = hold._name
    with pytest.raises(tf.errors.InvalidArgumentError):
        make_step(hold, tf.Variable(0.0))(tf.constant([1.0, 2.0, 3.0]), tf.constant(True))
    hold.close()
    again = Hold()
    assert again._name == name
    step = make_step(again, tf.Variable(0.0))
    step(tf.constant([1.0, 2.0, 3.0]), tf.constant(False))
    assert again.take() is None
    again.close()
