"""Watching changes nothing, and leaves nothing behind."""

import gc
import warnings
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import memfit
from memfit.errors import SetupError, UsageError
from memfit.guarding import internals_tf
from memfit.guarding.blame_tf import Evidence, blame_heap
from memfit.guarding.census_tf import take_census
from memfit.guarding.clock import Clock
from memfit.guarding.tracing_tf import Tracer
from memfit.records import Growth

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")


def make_model() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def test_functions_are_told_apart_by_the_place_they_were_made_at() -> None:
    tracer = Tracer(Clock())
    first, second = tf.function(lambda: 1), tf.function(lambda: 2)
    anew = [tf.function(lambda: 3) for _ in range(2)]
    numbers = [tracer.number_of(each) for each in (first, first, second, first, *anew)]
    assert numbers == [0, 0, 1, 0, 2, 2]


def listened() -> list[Any]:
    owners = (internals_tf.Function, internals_tf.FuncGraph, keras.optimizers.Optimizer, keras.Model)
    return [dict(vars(owner)) for owner in (*owners, keras.callbacks.CallbackList)]


def test_everything_is_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    internals_tf.check_versions()
    monkeypatch.delattr(keras.callbacks.CallbackList, "on_epoch_end")
    with pytest.raises(SetupError, match=rf"Keras {keras.__version__}.*CallbackList moved"):
        internals_tf.check_versions()


def test_training_is_the_same_and_the_classes_are_put_back() -> None:
    before = listened()
    plain = make_model().fit(X, X[:, :1], batch_size=8, epochs=3, verbose=0).history
    with memfit.watch() as watcher:
        watched = make_model().fit(X, X[:, :1], batch_size=8, epochs=3, verbose=0).history
    assert plain == watched
    assert listened() == before
    result = watcher.result()
    assert (result.num_steps, result.num_epochs) == (24, 3)
    assert not result.leaks


def test_it_is_a_callback() -> None:
    before = listened()
    watcher = memfit.watch(
        every=2, seconds=600.0
    )  # A slow first batch is no second of a program without steps.
    make_model().fit(X, X[:, :1], batch_size=8, epochs=3, verbose=0, callbacks=[watcher])
    assert listened() == before
    # One of every two steps, and one at the end.
    assert (watcher.result().num_steps, watcher.result().num_readings) == (24, 13)


def test_functions_inside_functions_still_convert() -> None:
    """A wrapped `__call__` must not be taken for the user's code by AutoGraph."""

    @tf.function
    def inner(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            x = x + 1
        return x

    @tf.function
    def outer(x: Any) -> Any:
        for _ in tf.range(2):
            x = inner(x)
        return x

    with memfit.watch(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outer(tf.constant(1.0)) == 3


def test_contexts_that_end_in_the_wrong_order_leave_nothing_that_speaks() -> None:
    first, second = memfit.watch(), memfit.watch()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    second.__exit__()
    steps = first.result().num_steps
    make_model().fit(X, X[:, :1], verbose=0)
    assert first.result().num_steps == steps


def test_watching_itself_keeps_nothing() -> None:
    model = make_model()
    with memfit.watch(every=1):
        for _ in range(3):
            model.train_on_batch(X, X[:, :1])
        gc.collect()
        before = len([each for each in gc.get_objects() if isinstance(each, internals_tf.FuncGraph)])
        for _ in range(60):
            model.train_on_batch(X, X[:, :1])
        gc.collect()
        after = len([each for each in gc.get_objects() if isinstance(each, internals_tf.FuncGraph)])
    assert after == before


class Reader:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def read(self, num: int) -> None:
        for _ in range(num):
            self.seen.append(np.ones(2**16, "float32"))


def test_a_container_without_a_name_is_not_taken_for_native_growth() -> None:
    """On a busy machine there may be no time left for its name: it is said when it is found, or as it is."""
    reader = Reader()
    reader.read(20)
    first = take_census(0)
    reader.read(14)
    second = take_census(14, earlier=first)
    slope = 2.0**18
    host = Growth(
        series="host",
        slope=slope,
        low=slope,
        high=slope,
        confidence=1.0,
        is_growing=True,
        num_readings=40,
        last=2**30,
        room=2**34,
    )

    def blamed(evidence: Evidence, seconds: float | None) -> list[tuple[str, str]]:
        return [(leak.kind, leak.name) for leak in blame_heap(first, second, [host], [], evidence, seconds)]

    evidence = Evidence(num_readings=40)
    assert blamed(evidence, 0.0) == []
    evidence.num_readings = 60
    assert blamed(evidence, 0.0) == []
    assert blamed(evidence, None) == [("kept", "Reader.seen")]
    evidence = Evidence(num_readings=40)
    assert blamed(evidence, 0.0) == []
    evidence.num_readings = 80
    assert blamed(evidence, 0.0) == [("objects", "ndarray")]


def test_arguments_are_checked() -> None:
    with pytest.raises(UsageError, match="Received: 0"):
        memfit.watch(0)
    with pytest.raises(UsageError, match="Received: -1"):
        memfit.watch(seconds=-1)
