"""Ragged data straight in: the losses, metrics and weights of plain Keras on the same data padded by hand."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit

LENGTHS = [3, 7, 1, 5, 9, 2, 8, 4, 6, 9, 1, 3]
NUM, LONGEST, BATCH = len(LENGTHS), max(LENGTHS), 5
RANDOM = np.random.default_rng(0)


def ragged(*tail: int, whole: int | None = None) -> tf.RaggedTensor:
    steps = sum(LENGTHS)
    values = RANDOM.integers(1, whole, (steps, *tail)) if whole else RANDOM.normal(size=(steps, *tail))
    return tf.RaggedTensor.from_row_lengths(values.astype("int32" if whole else "float32"), LENGTHS)


WORDS, SPEECH = ragged(whole=9), ragged(4)
TAGS, TRACK, STEP_WEIGHTS = ragged(whole=3), ragged(2), tf.abs(ragged())
KINDS, AGES = np.arange(NUM) % 2, np.linspace(-1, 1, NUM).astype("float32")[:, None]
WEIGHTS = np.linspace(0.2, 2, NUM).astype("float32")
REAL = tf.sequence_mask(LENGTHS, LONGEST, tf.float32).numpy()


def compiled(model: Any, loss: Any, metric: str) -> Any:
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=[metric], weighted_metrics=[metric])
    return model


def classifier() -> Any:
    inputs = keras.Input((None,), dtype="int32")
    hidden = layers.LSTM(4)(layers.Embedding(9, 3, mask_zero=True)(inputs))
    model = keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden))
    return compiled(model, "binary_crossentropy", "accuracy")


def tagger() -> Any:
    hidden = [layers.Embedding(9, 3, mask_zero=True), layers.GRU(4, return_sequences=True)]
    return compiled(
        keras.Sequential([*hidden, layers.Dense(3, "softmax")]), "sparse_categorical_crossentropy", "accuracy"
    )


def follower() -> Any:
    hidden = [layers.Masking(-2.0), layers.SimpleRNN(4, return_sequences=True), layers.Dense(2)]
    return compiled(keras.Sequential([keras.Input((None, 4)), *hidden]), "mse", "mae")


def several() -> Any:
    words, speech = keras.Input((None,), name="words"), keras.Input((None, 4), name="speech")
    age = keras.Input((1,), name="age")
    read = layers.SimpleRNN(3)(layers.Embedding(9, 3, mask_zero=True)(words))
    heard = layers.SimpleRNN(3)(layers.Masking(-2.0)(speech))
    model = keras.Model(
        [words, speech, age], layers.Dense(1, "sigmoid")(layers.concatenate([read, heard, age]))
    )
    return compiled(model, "binary_crossentropy", "accuracy")


def dense(value: tf.RaggedTensor, padding: float = 0.0) -> Any:
    return value.to_tensor(tf.cast(padding, value.dtype)).numpy()


# The model, and (x, y, weights) as memfit gets it and as plain Keras gets it.
CASES: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "labels": (classifier, (WORDS, KINDS), (dense(WORDS), KINDS)),
    "weighed": (classifier, (WORDS, KINDS, WEIGHTS), (dense(WORDS), KINDS, WEIGHTS)),
    "labels a step": (tagger, (WORDS, TAGS), (dense(WORDS), dense(TAGS), REAL)),
    "weights a step": (
        tagger,
        (WORDS, TAGS, STEP_WEIGHTS),
        (dense(WORDS), dense(TAGS), dense(STEP_WEIGHTS)),
    ),
    "weights a sequence": (
        follower,
        (SPEECH, TRACK, WEIGHTS),
        (dense(SPEECH, -2.0), dense(TRACK), REAL * WEIGHTS[:, None]),
    ),
    "a dict": (
        several,
        ({"words": WORDS, "speech": SPEECH, "age": AGES}, KINDS),
        ({"words": dense(WORDS), "speech": dense(SPEECH, -2.0), "age": AGES}, KINDS),
    ),
    "a tuple": (
        several,
        ((WORDS, SPEECH, AGES), KINDS),
        ((dense(WORDS), dense(SPEECH, -2.0), AGES), KINDS),
    ),
}


def arguments_of(data: Any) -> dict[str, Any]:
    return dict(zip(("x", "y", "sample_weight"), data, strict=False))


def as_set(data: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(data).batch(BATCH)


def trained(
    fit: Callable[..., Any], make: Callable[[], Any], *, is_traced: bool = True, **arguments: Any
) -> tuple[Any, Any]:
    """What a fit ends with. A few steps that are not traced take less time than their trace."""
    keras.utils.set_random_seed(1)
    model = make()
    model.run_eagerly = not is_traced
    if not model.built:
        model.build((None, None))
    found = fit(model, verbose=0, **arguments).history
    return getattr(found, "history", found), model.get_weights()


def check_same(ours: tuple[Any, Any], plain: tuple[Any, Any], names: tuple[str, ...] = ()) -> None:
    (history, weights), (plain_history, plain_weights) = ours, plain
    assert set(history) == set(plain_history)
    for name in names or plain_history:
        np.testing.assert_allclose(history[name], plain_history[name], rtol=2e-5, err_msg=name)
    for one, other in zip(weights, plain_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def keras_fit(model: Any, **arguments: Any) -> Any:
    return model.fit(**arguments)


def trimmed_set(padded: Any) -> tf.data.Dataset:
    """Batches of padded arrays, each trimmed by hand to its longest sequence, for plain Keras."""

    def cut(leaf: Any, start: int) -> Any:
        rows = leaf[start : start + BATCH]
        is_long = leaf.ndim > 1 and leaf.shape[1] == LONGEST
        return rows[:, : max(LENGTHS[start : start + BATCH])] if is_long else rows

    def spec(leaf: Any) -> tf.TensorSpec:
        rest = [None if size == LONGEST else size for size in leaf.shape[1:]]
        return tf.TensorSpec([None, *rest], leaf.dtype)

    def batches() -> Any:
        for start in range(0, NUM, BATCH):
            yield keras.tree.map_structure(lambda leaf: cut(leaf, start), padded)  # noqa: B023

    signature = keras.tree.map_structure(spec, padded)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-NUM // BATCH)))


@pytest.mark.parametrize("case", ["weighed", "labels a step"])
def test_the_same_training_as_plain_keras_on_padded_data(case: str) -> None:
    make, given, padded = CASES[case]
    options: dict[str, Any] = {"epochs": 2, "batch_size": BATCH}
    plain = trained(
        keras_fit, make, is_traced=False, **arguments_of(padded), validation_data=padded, **options
    )
    ours = trained(memfit.fit, make, **arguments_of(given), validation_data=given, **options)
    if case == "weighed":
        check_same(ours, plain)
        return
    check_same(ours, plain, ("loss", "val_loss"))
    # Of a metric a step, Keras divides the sums of each batch by its width: only here is that another one.
    model = make()
    model.build((None, None))
    model.set_weights(ours[1])
    is_right = (model.predict(padded[0], verbose=0).argmax(-1) == padded[1]) * REAL
    starts = range(0, NUM, BATCH)
    for (history, _), widths in (
        (plain, [LONGEST] * len(starts)),
        (ours, [max(LENGTHS[start : start + BATCH]) for start in starts]),
    ):
        right, real = (
            sum(
                values[start : start + BATCH].sum() / width
                for start, width in zip(starts, widths, strict=True)
            )
            for values in (is_right, REAL)
        )
        assert history["val_accuracy"][-1] == pytest.approx(right / real, rel=1e-5)


@pytest.mark.parametrize("case", ["labels", "weights a step", "weights a sequence", "a dict", "a tuple"])
def test_the_same_as_plain_keras_on_batches_padded_by_hand(case: str) -> None:
    make, given, padded = CASES[case]
    batches = trimmed_set(padded)
    plain = trained(keras_fit, make, is_traced=False, x=batches, validation_data=batches, shuffle=False)
    data = {**arguments_of(given), "validation_data": given, "batch_size": BATCH}
    if case in SETS:
        data = {"x": as_set(given), "validation_data": as_set(given)}
    plan = PLANS.get(case)
    ours = trained(memfit.fit, make, **data, shuffle=False, plan=plan, is_traced=plan is not None)
    check_same(ours, plain)


# Where no plan changes the step, it is only the batches that are ours: they need no traced step.
PLANS = {
    "weights a step": memfit.Plan(micro_batch=2, time_segment=3),
    "weights a sequence": memfit.Plan(micro_batch=2),
}
SETS = ("weights a sequence", "a tuple")


def test_a_split_and_class_weights_as_in_keras() -> None:
    options = {"validation_split": 0.25, "batch_size": 4, "class_weight": {0: 0.5, 1: 2.0}}
    plain = trained(keras_fit, classifier, is_traced=False, x=dense(WORDS), y=KINDS, **options)
    check_same(trained(memfit.fit, classifier, x=WORDS, y=KINDS, is_traced=False, **options), plain)


def test_each_batch_is_padded_to_its_own_longest() -> None:
    widths: list[int] = []
    model = classifier()
    own = model.train_step

    def train_step(data: Any) -> Any:
        widths.append(data[0].shape[1])
        return own(data)

    object.__setattr__(model, "train_step", train_step)
    model.run_eagerly = True
    memfit.fit(model, WORDS, KINDS, batch_size=BATCH, shuffle=False, verbose=0, plan=memfit.Plan())
    assert widths == [max(LENGTHS[start : start + BATCH]) for start in range(0, NUM, BATCH)]


@pytest.mark.parametrize("is_set", [False, True])
def test_a_run_goes_on_where_it_was_left(tmp_path: Path, is_set: bool) -> None:
    """As the whole run, whose steps are not traced; those of the set are not, either."""
    data: dict[str, Any] = {"x": SPEECH, "y": TRACK, "batch_size": BATCH, "epochs": 2}
    if is_set:
        data = {"x": as_set((SPEECH, TRACK)), "shuffle": False, "epochs": 2}
    whole = trained(memfit.fit, follower, **data, resume=str(tmp_path / "whole"), is_traced=False)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.model.optimizer.iterations == 5:
                raise KeyboardInterrupt

    part = data | {"resume": memfit.Resume(str(tmp_path / "part"), every_steps=1), "is_traced": not is_set}
    with pytest.raises(KeyboardInterrupt):
        trained(memfit.fit, follower, **part, callbacks=[Stop()])
    check_same(trained(memfit.fit, follower, **part), whole)


def test_plans_and_estimates_are_made_for_the_longest() -> None:
    hidden = [layers.Embedding(9, 3, mask_zero=True), layers.SimpleRNN(4, return_sequences=True)]
    model = keras.Sequential([keras.Input((None,)), *hidden, layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert memfit.plan(model, as_set((WORDS, TAGS)), budget="1GiB").rehearsed_bytes
    found = memfit.estimate(model, (WORDS, TAGS), batch_size=BATCH)
    assert found.length == LONGEST
    run = memfit.fit(model, WORDS, TAGS, budget="1GiB", verbose=0)
    assert run.plan.rehearsed_bytes


def unmasked() -> Any:
    hidden = [keras.Input((None, 4)), layers.SimpleRNN(2, return_sequences=True), layers.Dense(2)]
    return compiled(keras.Sequential(hidden), "mse", "mae")


def test_a_model_without_a_mask_is_a_warning() -> None:
    with pytest.warns(memfit.MemfitWarning, match="no mask") as said:
        memfit.fit(unmasked(), SPEECH, TRACK, verbose=0)
    assert sum("no mask" in str(each.message) for each in said) == 1


BAD: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "labels of another length": (
        tagger,
        {"x": tf.ragged.constant([[1, 2], [3]]), "y": tf.ragged.constant([[1, 2], [1, 2, 1]])},
        "the label of sample 1 has 3 steps, but its input has 1",
    ),
    "ragged labels alone": (tagger, {"x": dense(WORDS), "y": TAGS}, "no input is"),
    "ragged weights alone": (
        classifier,
        {"x": WORDS, "y": KINDS, "sample_weight": STEP_WEIGHTS},
        "one weight",
    ),
    "class weights a step": (tagger, {"x": WORDS, "y": TAGS, "class_weight": {0: 1.0}}, "sample_weight="),
    "two ragged axes": (
        tagger,
        {"x": WORDS, "y": tf.ragged.constant([[[1], [2, 3]]] * NUM)},
        "ragged_rank=2",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_together_is_said(case: str) -> None:
    make, arguments, message = BAD[case]
    with pytest.raises(memfit.UsageError, match=message):
        memfit.fit(make(), **arguments, verbose=0)


def test_empty_sequences_are_padding_alone() -> None:
    words = tf.ragged.constant([[], [], [1, 2], []], dtype=tf.int32)
    model = classifier()
    model.run_eagerly = True
    run = memfit.fit(model, words, KINDS[:4], batch_size=2, shuffle=False, verbose=0)
    assert np.isfinite(run.history.history["loss"][0])


def test_sparse_tensors_as_in_keras() -> None:
    values = np.where(RANDOM.random((NUM, 6)) < 0.4, RANDOM.normal(size=(NUM, 6)), 0).astype("float32")

    def make() -> Any:
        return compiled(keras.Sequential([keras.Input((6,), sparse=True), layers.Dense(1)]), "mse", "mae")

    x = tf.sparse.from_dense(values)
    plain = trained(keras_fit, make, is_traced=False, x=x, y=AGES, batch_size=BATCH)
    for plan in (None, memfit.Plan(micro_batch=2)):
        check_same(trained(memfit.fit, make, x=x, y=AGES, batch_size=BATCH, plan=plan), plain)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trained(memfit.fit, make, x=x, y=AGES, budget="1GiB")
    assert any("x is a SparseTensor" in str(each.message) for each in said)


@pytest.mark.parametrize("library", ["pandas", "scipy.sparse"])
def test_frames_and_matrices_as_in_keras(library: str) -> None:
    module = pytest.importorskip(library)
    values = RANDOM.normal(size=(NUM, 6)).astype("float32")
    x = module.DataFrame(values) if library == "pandas" else module.csr_matrix(values)

    def make() -> Any:
        is_sparse = library != "pandas"
        return compiled(
            keras.Sequential([keras.Input((6,), sparse=is_sparse), layers.Dense(1)]), "mse", "mae"
        )

    plain = trained(keras_fit, make, is_traced=False, x=x, y=AGES, batch_size=BATCH)
    for plan in (None, memfit.Plan(micro_batch=2)):
        check_same(trained(memfit.fit, make, x=x, y=AGES, batch_size=BATCH, plan=plan), plain)
