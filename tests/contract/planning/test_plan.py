"""Plans for real models: measured, rehearsed, and with nothing left behind."""

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.units import MIB
from tests.contract.training.faults import everything

BATCH_SIZE, LENGTH, FEATURES = 64, 60, 8


def make_rnn() -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            layers.Dropout(0.1),
            layers.GRU(64),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"])
    return model


def make_dense(*, has_statistics: bool = False) -> Any:
    keras.utils.set_random_seed(3)
    hidden = [layer for _ in range(4) for layer in (layers.Dense(256, "gelu"),)]
    last = [layers.BatchNormalization()] if has_statistics else []
    model = keras.Sequential([keras.Input((64,)), *hidden, *last, layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def make_sequences(num_examples: int = 160) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(num_examples, LENGTH, FEATURES)).astype("float32")
    return x, random.normal(size=(num_examples, 64)).astype("float32")


def test_what_fits_as_it_is_is_left_as_it_is() -> None:
    found = memfit.plan(make_dense(), None, budget="1GiB", batch_size=64)
    assert found.in_words() == "whole batches"
    assert found.rehearsed_bytes is not None
    assert found.rehearsed_bytes < memfit.budget("1GiB").device_bytes
    assert [each.verdict for each in found.considered] == ["chosen"]


def test_a_small_model_is_not_even_measured() -> None:
    found = memfit.plan(make_dense(), None, batch_size=64)
    assert found.in_words() == "whole batches"
    assert found.rehearsed_bytes is None
    assert found.notes == ("Nothing was measured: whatever it takes is far below the budget.",)


def test_a_plan_fits_its_budget_and_leaves_no_trace_and_trains() -> None:
    model, data = make_rnn(), make_sequences()
    model.fit(*data, batch_size=BATCH_SIZE, verbose=0)
    plain = memfit.plan(model, data, budget="1GiB", batch_size=BATCH_SIZE)
    assert plain.rehearsed_bytes is not None
    before, attributes = everything(model), sorted(vars(model))
    alive = tf.config.experimental.get_memory_info("CPU:0")["current"]
    told: list[str] = []
    # Of what the step takes beside all that other tests have left.
    budget_bytes = alive + (plain.rehearsed_bytes - alive) * 6 // 10
    found = memfit.plan(model, data, budget=budget_bytes, batch_size=BATCH_SIZE, tell=told.append)
    for one, other in zip(everything(model), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert sorted(vars(model)) == attributes
    assert found.in_words() != "whole batches"
    assert found.rehearsed_bytes is not None
    assert found.high_bytes is not None
    assert found.rehearsed_bytes < found.high_bytes <= budget_bytes
    assert tf.config.experimental.get_memory_info("CPU:0")["current"] < alive + MIB
    assert told[0] == "measuring the model as it is at small batches"
    assert told[-1].startswith(("rehearsing", "measuring validation"))
    assert "chosen" in str(found) and "does not fit" in str(found)
    assert memfit.Plan.from_json(found.to_json()) == found
    run = memfit.fit(model, *data, plan=found, batch_size=BATCH_SIZE, verbose=0)
    assert (run.num_steps, run.num_samples) == (3, 160)
    with pytest.raises(memfit.UsageError, match="made for a model with"):
        memfit.fit(make_dense(), np.ones((64, 64)), np.ones((64, 1)), plan=found, verbose=0)


def test_a_plan_is_refused_for_another_model_of_as_many_parameters() -> None:
    def images(size: int, activation: str = "relu") -> Any:
        stack = [layers.Conv2D(2, 3), layers.Activation(activation), layers.GlobalAveragePooling2D()]
        model = keras.Sequential([keras.Input((size, size, 1)), *stack])
        model.compile("sgd", "mse")
        return model

    found = memfit.plan(images(8), None, batch_size=4)
    assert memfit.Plan.from_json(found.to_json()) == found
    y = np.ones((4, 2), "float32")
    memfit.fit(images(8), np.ones((4, 8, 8, 1), "float32"), y, plan=found, verbose=0)
    frozen = images(8)
    frozen.layers[0].trainable = False
    for other, size in ((images(16), 16), (frozen, 8)):
        with pytest.raises(memfit.UsageError, match="another model with as many parameters"):
            memfit.fit(other, np.ones((4, size, size, 1), "float32"), y, plan=found, verbose=0)
    old = {name: value for name, value in found.to_dict().items() if name != "model_digest"}
    assert memfit.Plan.from_dict(old).model_digest is None


def test_a_fit_with_a_budget_plans_by_itself() -> None:
    model = make_dense()
    x, y = np.ones((4096, 64), "float32"), np.ones((4096, 1), "float32")
    whole = memfit.plan(model, (x, y), budget="1GiB", batch_size=2048).rehearsed_bytes
    assert whole is not None
    run = memfit.fit(model, x, y, budget=whole * 7 // 10, batch_size=2048, verbose=0)
    assert run.plan.in_words() != "whole batches"
    assert run.incidents == ()
    assert run.num_steps == 2


def test_micro_batches_of_other_sizes_are_rehearsed_too() -> None:
    model = make_dense()
    gc.collect()
    alive = tf.config.experimental.get_memory_info("CPU:0")["current"]
    whole = memfit.plan(model, None, budget="1GiB", batch_size=2048).rehearsed_bytes
    assert whole is not None
    for tenths in (6, 5, 4, 3):  # Until computing again is not enough.
        told: list[str] = []
        budget = alive + (whole - alive) * tenths // 10
        found = memfit.plan(model, None, budget=budget, batch_size=2048, tell=told.append)
        if found.micro_batch is not None:
            break
    assert found.micro_batch is not None
    kinds = Counter(re.sub(r"of \d+", "", each) for each in set(told) if "rehearsing micro" in each)
    assert max(kinds.values()) >= 2, told


def test_arrays_that_keras_keeps_on_the_device_count() -> None:
    model, batch = make_dense(), (tf.TensorSpec([None, 64]), tf.TensorSpec([None, 1]))
    arrays = np.ones((40_000, 64), "float32"), np.ones((40_000, 1), "float32")
    found = [
        memfit.plan(model, data, budget="1GiB", batch_size=64).rehearsed_bytes or 0
        for data in (batch, arrays)
    ]
    # What other tests have left may go meanwhile.
    assert 0.9 * arrays[0].nbytes <= found[1] - found[0] <= 2.2 * arrays[0].nbytes


def test_when_nothing_fits_it_says_what_the_tightest_needs() -> None:
    with pytest.raises(memfit.BudgetError, match=r"nothing fits 1\.00 MiB: the tightest plan, .* needs"):
        memfit.plan(make_dense(), None, budget="1MiB", batch_size=64)


def test_batch_normalization_is_not_split_unless_that_is_allowed() -> None:
    model = make_dense(has_statistics=True)
    gc.collect()
    budget = tf.config.experimental.get_memory_info("CPU:0")["current"] + 20 * MIB
    with pytest.raises(memfit.BudgetError, match=r'or allow="split_batch_norm"'):
        memfit.plan(model, None, budget=budget, batch_size=2048)
    found = memfit.plan(model, None, budget=budget, batch_size=2048, allow="split_batch_norm")
    assert found.micro_batch is not None
    assert found.allow == ("split_batch_norm",)
    assert "changed: split_batch_norm" in str(found)


class Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.inner = layers.Dense(8)

    def call(self, values: Any) -> Any:
        return self.inner(values)


def test_a_model_of_ones_own_and_a_loss_and_an_optimizer_for_one_that_is_not_compiled() -> None:
    model = Own()
    model(np.ones((1, 4)))
    x, y = np.ones((8, 4), "float32"), np.ones((8, 8), "float32")
    with pytest.raises(memfit.UsageError, match="is not compiled"):
        memfit.plan(model, (x, y), budget="1GiB")
    found = memfit.plan(model, (x, y), budget="1GiB", loss="mse", optimizer="adam")
    assert found.batch_size == 8


def test_the_longest_of_the_first_batches_is_rehearsed() -> None:
    def batches() -> Iterator[Any]:
        for length in (10, 300, 20):
            yield np.ones((4, length, FEATURES), "float32"), np.ones((4, 64), "float32")

    signature = (tf.TensorSpec([4, None, FEATURES]), tf.TensorSpec([4, 64]))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    model = make_rnn()
    short = memfit.plan(model, dataset, budget="1GiB", length=10)
    found = memfit.plan(model, dataset, budget="1GiB")
    assert short.rehearsed_bytes is not None and found.rehearsed_bytes is not None
    assert found.rehearsed_bytes > short.rehearsed_bytes + MIB // 2


def test_a_generator_cannot_be_planned_for_and_that_is_said() -> None:
    model = make_dense()
    batches = ((np.ones((4, 64)), np.ones((4, 1))) for _ in range(2))
    with pytest.warns(memfit.MemfitWarning, match="no plan was made for budget='1GiB': x is a generator"):
        memfit.fit(model, batches, budget="1GiB", steps_per_epoch=2, verbose=0, shuffle=False)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: memfit.plan(make_dense(), None, batch_size=8, allow="magic"),
            "allow= does not know 'magic'",
        ),
        (lambda: memfit.plan(keras.Sequential([layers.Dense(1)]), None, batch_size=8), "never built"),
        (lambda: memfit.plan(make_dense(), (np.ones((8, 3)), np.ones((8, 1)))), r"takes \[None, 64\]"),
        (lambda: memfit.plan(make_rnn(), None, batch_size=8), "length=500"),
        (lambda: memfit.plan("model", None), "takes a Keras model"),
    ],
)
def test_bad_input(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(memfit.UsageError, match=said):
        call()
