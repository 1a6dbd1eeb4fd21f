"""Time segments under `tf.distribute`."""

import memfit
from memfit.records import Outcome
from tests.contract import distribution


def test_two_replicas_train_to_the_same_weights() -> None:
    measured = memfit.measure(distribution.compare_replicas)
    assert measured.outcome is Outcome.OK, measured.output
    assert measured.value < 1e-5
