"""Rehearsed steps hold what the steps of `memfit.fit` will hold."""

import keras
import numpy as np
from keras import layers

from memfit.estimating.batches_tf import describe
from memfit.estimating.probing_tf import find_subject
from memfit.planning.bench_tf import bench
from memfit.records import Plan
from memfit.units import MIB


def test_where_old_weights_are_not_kept_all_gradients_are_held_at_once() -> None:
    """`memfit.fit` then marks where updates begin, which it can tell only when all gradients are there."""
    model = keras.Sequential([keras.Input((512,)), *(layers.Dense(512, use_bias=False) for _ in range(12))])
    model.compile("sgd", "mse")
    data = (np.zeros((8, 512), "float32"), np.zeros((8, 512), "float32"))
    batches = describe(model, data, batch_size=8)
    with bench(find_subject(model), batches, data, budget_bytes=30 * MIB) as lean:
        found = lean.rehearse(Plan(), 8)
    assert found is not None
    assert found.peak_bytes >= 2 * 12 * MIB, "weights and gradients of a MiB a layer"
    # Running out of memory in the update would end the training there: temporaries must find a place.
    assert found.high_bytes >= found.peak_bytes + 3 * MIB
    with bench(find_subject(model), batches, data, budget_bytes=300 * MIB) as ample:
        kept = ample.rehearse(Plan(), 8)
    assert kept is not None
    assert (found.spare_bytes, kept.spare_bytes) == (3 * MIB, 0)
