"""Batches by length: nothing lost, nothing mixed up, nothing that a model could take for a step."""

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import memfit

Batches = list[tuple[Any, ...]]


def quiet(data: Any, **arguments: Any) -> tf.data.Dataset:
    return memfit.batch_by_length(data, tell=None, **arguments)


def arrays(dataset: tf.data.Dataset) -> Batches:
    return [tf.nest.map_structure(lambda leaf: leaf.numpy(), batch) for batch in dataset]


def numbered(lengths: list[int]) -> tuple[list[list[int]], Any]:
    """Sequences that consist of their own number, from 1, which is their label, too."""
    return [[number] * length for number, length in enumerate(lengths, start=1)], np.arange(
        1, len(lengths) + 1
    )


def check_whole(batches: Batches, lengths: list[int]) -> None:
    """Every sequence is there once, whole, with its own label, and padded with zeros."""
    seen = {}
    for x, y, *_ in batches:
        for row, label in zip(x, y, strict=True):
            assert int(label) not in seen
            seen[int(label)] = int((row == label).sum())
            assert set(row[seen[int(label)] :]) <= {0}
            assert set(row[: seen[int(label)]]) <= {label}
    assert [seen[number] for number in range(1, len(lengths) + 1)] == lengths


as_generator: Callable[..., Any] = lambda x, y: tf.data.Dataset.from_generator(  # noqa: E731
    lambda: zip(x, y, strict=True),
    output_signature=(tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int64)),
)
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "lists": lambda x, y: (x, y),
    "ragged": lambda x, y: (tf.ragged.constant(x, tf.int32, ragged_rank=1), y),
    "padded": lambda x, y: (keras.utils.pad_sequences(x), y),
    "tf.data": as_generator,
    "slices": lambda x, y: tf.data.Dataset.from_tensor_slices(
        (tf.ragged.constant(x, tf.int32, ragged_rank=1), y)
    ),
}
lists_of_lengths = st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=6)
@given(
    lengths=lists_of_lengths,
    buckets=st.integers(1, 6) | st.sets(st.integers(1, 50), min_size=1, max_size=4).map(sorted),
    tokens=st.integers(1, 200),
    seed=st.integers(0, 3),
    shuffle=st.booleans(),
)
def test_every_sequence_is_seen_once_an_epoch_with_its_own_label(
    form: str, lengths: list[int], buckets: Any, tokens: int, seed: int, shuffle: bool
) -> None:
    data = FORMS[form](*numbered(lengths))
    batches = quiet(data, buckets=buckets, tokens=tokens, seed=seed, shuffle=shuffle)
    for _ in range(2):
        found = arrays(batches)
        check_whole(found, lengths)
        assert all(x.size <= tokens or len(x) == 1 for x, *_ in found)
        if isinstance(buckets, int):
            assert len({x.shape[1] for x, *_ in found}) <= buckets
    if form not in ("tf.data", "slices"):
        assert int(batches.cardinality()) == len(found)


@pytest.mark.parametrize("num_workers", [2, 3])
def test_workers_that_share_an_epoch_see_everything_once(num_workers: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 300).tolist()
    data = numbered(lengths)
    # Each worker makes the same set and takes every nth batch of it.
    shares = [arrays(quiet(data, tokens=200).shard(num_workers, index)) for index in range(num_workers)]
    check_whole(list(itertools.chain(*shares)), lengths)


def test_epochs_differ_and_processes_do_not() -> None:
    data = numbered(list(range(1, 80)))
    first, second = quiet(data, tokens=100, seed=5), quiet(data, tokens=100, seed=5)
    orders = [[y.tolist() for _, y, *_ in arrays(first)] for _ in range(3)]
    assert orders == [[y.tolist() for _, y, *_ in arrays(second)] for _ in range(3)]
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != [y.tolist() for _, y, *_ in arrays(quiet(data, tokens=100, seed=6))]


def test_a_pass_can_begin_anywhere() -> None:
    data = numbered(list(range(1, 80)))
    whole, again = quiet(data, tokens=100), quiet(data, tokens=100)
    _, second = ([y.tolist() for _, y, *_ in arrays(whole)] for _ in range(2))
    iter(again)  # The first pass is over, as a resumed run would say.
    assert [y.tolist() for _, y, *_ in arrays(again.skip(7))] == second[7:]


def test_long_and_short_batches_are_mixed() -> None:
    x, y = numbered(list(range(1, 400)))
    widths = [batch.shape[1] for batch, *_ in arrays(quiet((x, y), tokens=400))]
    rises = sum(one < two for one, two in itertools.pairwise(widths))
    assert 0.3 < rises / len(widths) < 0.7
    in_order = [batch.shape[1] for batch, *_ in arrays(quiet((x, y), tokens=400, shuffle=False))]
    assert in_order == sorted(in_order)


def test_labels_and_weights_a_step_are_padded_alike_and_weigh_nothing() -> None:
    x = [[1, 2, 3], [4], [5, 6]]
    y = [[[1.0, 1], [2, 2], [3, 3]], [[4, 4]], [[5, 5], [6, 6]]]
    ((inputs, labels, weights),) = arrays(quiet((x, y), buckets=1, batch_size=3, shuffle=False))
    assert inputs.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    assert labels[..., 0].tolist() == labels[..., 1].tolist() == inputs.tolist()
    assert weights.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    own = [[0.5, 1, 2], [3.0], [4.0, 5]]
    ((*_, weights),) = arrays(quiet((x, y, own), buckets=1, batch_size=3, shuffle=False))
    assert weights.tolist() == [[0.5, 1, 2], [3, 0, 0], [4, 5, 0]]
    ((*_, weights),) = arrays(quiet((x, y, [1.0, 2, 3]), buckets=1, batch_size=3, shuffle=False))
    assert weights.tolist() == [[1, 1, 1], [2, 0, 0], [3, 3, 0]]


def test_a_set_gets_the_same_weights() -> None:
    x = [[1, 2, 3], [4], [5, 6]]
    signature = (tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32))
    data = tf.data.Dataset.from_generator(lambda: zip(x, x, strict=True), output_signature=signature)
    ((inputs, labels, weights),) = arrays(quiet(data, buckets=1, batch_size=3, shuffle=False))
    assert inputs.tolist() == labels.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    assert weights.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]


def test_several_features_and_labels() -> None:
    words, speech = [[1, 2], [3]], [np.ones((5, 2)), np.full((1, 2), 3.0)]
    x = {"words": words, "speech": speech, "age": np.array([30.0, 40.0])}
    y = {"tags": [[1, 2], [3]], "kind": [0, 1]}
    ((inputs, labels, weights),) = arrays(
        quiet(
            (x, y), buckets=1, batch_size=2, shuffle=False, padding_value={"words": 0, "speech": -1, "age": 0}
        )
    )
    assert inputs["words"].tolist() == [[1, 2, 0, 0, 0], [3, 0, 0, 0, 0]]
    assert inputs["speech"][1, :, 0].tolist() == [3, -1, -1, -1, -1]
    assert inputs["age"].tolist() == [30, 40]
    assert labels["tags"].tolist() == inputs["words"].tolist()
    assert weights["tags"].tolist() == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert weights["kind"].tolist() == [1, 1]


def test_padded_arrays_are_freed_of_padding_on_both_sides() -> None:
    x = np.array([[0, 0, 5, 6], [0, 0, 0, 7], [8, 0, 9, 0]])
    ((inputs, labels, _),) = arrays(
        quiet((x, x * 10), labels_per_step=True, buckets=1, batch_size=3, shuffle=False)
    )
    assert inputs.tolist() == [[5, 6, 0], [7, 0, 0], [8, 0, 9]]
    assert labels.tolist() == [[50, 60, 0], [70, 0, 0], [80, 0, 90]]


def test_padded_features_with_paddings_of_their_own() -> None:
    x = {"a": np.array([[1, 2, 0], [3, 0, 0]]), "b": np.array([[7.0, -1, -1], [8, -1, -1]])}
    data = (x, np.array([1, 2]))
    ((inputs, _),) = arrays(quiet(data, buckets=1, shuffle=False, padding_value={"a": 0, "b": -1}))
    assert inputs["a"].tolist() == [[1, 2], [3, 0]]
    assert inputs["b"].tolist() == [[7, -1], [8, -1]]
    assert inputs["b"].dtype == "float32"


@pytest.mark.parametrize("form", ["lists", "tf.data"])
def test_longer_than_the_last_boundary(form: str) -> None:
    data = FORMS[form](*numbered([2, 9, 3]))
    own = {x.shape for x, *_ in arrays(quiet(data, buckets=[4], tokens=8))}
    assert own == {(2, 4), (1, 9)}
    told: list[str] = []
    cut = memfit.batch_by_length(data, buckets=[4], batch_size=2, longer="truncate", tell=told.append)
    assert sorted(int((row != 0).sum()) for x, *_ in arrays(cut) for row in x) == [2, 3, 4]
    assert "Cut to 4 steps: 1, which loses 5 steps" in told[0]
    with pytest.raises((memfit.UsageError, tf.errors.InvalidArgumentError), match=r"(?s)sample.*1.*has.*9"):
        arrays(quiet(data, buckets=[4], batch_size=2, longer="error"))


def test_a_giant_is_a_batch_of_its_own_and_said() -> None:
    told: list[str] = []
    data = numbered([3] * 20 + [5000])
    found = arrays(memfit.batch_by_length(data, tokens=12, tell=told.append))
    assert sorted({x.shape for x, *_ in found}) == [(1, 5000), (4, 3)]
    assert "Longer than that, and batches of their own: 1." in told[0]


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "labels of another length": (
        ([[1, 2], [3]], [[1, 2], [3, 4, 5]]),
        {},
        "label of sample 1 has 3 steps.*has 1",
    ),
    "weights of another length": (
        ([[1, 2], [3]], [[1, 2], [3]], [[1.0], [1.0, 2]]),
        {},
        "weight of sample 0 has 1 steps",
    ),
    "fewer labels": (([[1, 2], [3]], [1]), {}, "y has 1 samples, but the sequences are 2"),
    "a missing sequence": (([[1, 2], None], [1, 2]), {}, "sample 1 is not a sequence"),
    "a number for a sequence": (([[1, 2], float("nan")], [1, 2]), {}, "sample 1 is not a sequence"),
    "steps of other shapes": (
        ([np.ones((2, 3)), np.ones((2, 4))], [1, 2]),
        {},
        "sample 1 has steps of the shape",
    ),
    "a boundary of 0": (([[1, 2], [3]], [1, 2]), {"buckets": [0, 5]}, "must be at least 1"),
    "weights alone": (([[1, 2], [3]], None, [1.0, 2.0]), {}, "weights but no labels"),
    "no sequences": (([], []), {}, "there are no sequences"),
    "text": ((["a b", "c"], [1, 2]), {}, "x has no steps"),
    "who knows": ((np.ones((3, 4)), np.ones((3, 4))), {}, "Pass labels_per_step=True, or False"),
    "half a padding": (([[1, 2], [3]], [1, 2]), {"padding_value": 0.5}, "cannot be padded with 0.5"),
    "both sizes": (([[1], [3]], [1, 2]), {"tokens": 5, "batch_size": 5}, "both say"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case: str) -> None:
    data, arguments, message = CASES[case]
    with pytest.raises(memfit.UsageError, match=message):
        quiet(data, **arguments)


def test_bad_sets() -> None:
    x, y = numbered([2, 3])
    with pytest.raises(memfit.UsageError, match=r"dataset\.unbatch\(\)"):
        quiet(as_generator(x, y).padded_batch(2))
    signature = (tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32))
    other = tf.data.Dataset.from_generator(
        lambda: iter([([1], [1]), ([1], [1, 2])]), output_signature=signature
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"sample.*1.*label or weight of.*2.*but.*1"):
        arrays(quiet(other))


def make_model() -> Any:
    keras.utils.set_random_seed(1)
    hidden = keras.layers.SimpleRNN(4)
    layers = [keras.layers.Embedding(100, 4, mask_zero=True), hidden, keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    return model


def test_what_the_model_masks_is_what_sequences_are_padded_with() -> None:
    masked = keras.Sequential([keras.Input((None, 1)), keras.layers.Masking(-7.0), keras.layers.LSTM(2)])
    x = [np.ones((2, 1)), np.ones((1, 1))]
    ((inputs, _),) = arrays(quiet((x, [1, 2]), buckets=1, shuffle=False, model=masked))
    assert inputs[..., 0].tolist() == [[1, 1], [1, -7]]
    plain = keras.Sequential([keras.Input((None, 1)), keras.layers.LSTM(2)])
    with pytest.warns(memfit.MemfitWarning, match="no mask"):
        quiet((x, [1, 2]), model=plain)


def test_padding_changes_no_result() -> None:
    model, (x, y) = make_model(), numbered([1, 7, 3, 9, 2])
    alone = {
        int(label): model.predict(np.array([row]), verbose=0)[0] for row, label in zip(x, y, strict=True)
    }
    for inputs, labels, _ in arrays(quiet((x, y), buckets=2, tokens=30)):
        for output, label in zip(model.predict(inputs, verbose=0), labels, strict=True):
            np.testing.assert_allclose(output, alone[int(label)], rtol=1e-4, atol=1e-6)


PER_STEP = ([[1, 2, 3], [4], [5, 6]], [[3.0, 1, 2], [5], [4, 1]])


@pytest.mark.parametrize("is_masked", [True, False])
def test_the_loss_is_the_mean_over_real_steps(is_masked: bool) -> None:
    keras.utils.set_random_seed(1)
    embedding = keras.layers.Embedding(10, 4, mask_zero=is_masked)
    lstm = keras.layers.LSTM(4, return_sequences=True)
    model = keras.Sequential([embedding, lstm, keras.layers.Dense(1)])
    reduction = "sum_over_batch_size" if is_masked else "mean_with_sample_weight"
    model.compile("sgd", keras.losses.MeanSquaredError(reduction=reduction))
    ((x, y, weights),) = arrays(quiet(PER_STEP, buckets=1, shuffle=False, model=model if is_masked else None))
    squares = (model.predict(x, verbose=0)[..., 0] - y) ** 2
    real = squares[weights == 1].mean()
    labels = y[..., np.newaxis]
    assert model.evaluate(x, labels, sample_weight=weights, verbose=0) == pytest.approx(real, rel=1e-5)


def test_micro_batches_of_padded_batches_make_the_same_step() -> None:
    def trained(plan: memfit.Plan) -> Any:
        keras.utils.set_random_seed(1)
        embedding = keras.layers.Embedding(10, 4, mask_zero=True)
        hidden = keras.layers.SimpleRNN(4, return_sequences=True)
        model = keras.Sequential([embedding, hidden, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        labels = [np.array(each)[:, np.newaxis] for each in PER_STEP[1]]
        batches = quiet((PER_STEP[0], labels), buckets=1, model=model)
        run = memfit.fit(model, batches, plan=plan, epochs=2, verbose=0, shuffle=False)
        return run.history.history["loss"], model.get_weights()

    (losses, weights), (others, same) = trained(memfit.Plan()), trained(memfit.Plan(micro_batch=1))
    assert losses == pytest.approx(others, rel=1e-5)
    for one, two in zip(weights, same, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_a_run_that_was_stopped_goes_on_at_the_same_sample(tmp_path: Path) -> None:
    data = numbered(list(range(1, 40)))

    def run(folder: str, epochs: int) -> tuple[Any, Any]:
        model = make_model()
        resume = memfit.Resume(tmp_path / folder, every_steps=3)
        batches = quiet(data, tokens=80, model=model)
        with warnings.catch_warnings():
            warnings.simplefilter("error", memfit.MemfitWarning)
            done = memfit.fit(
                model, batches, plan=memfit.Plan(), epochs=epochs, verbose=0, shuffle=False, resume=resume
            )
        return done, model.get_weights()

    whole, weights = run("whole", 2)
    run("stopped", 1)
    resumed, same = run("stopped", 2)
    assert whole.num_samples == 2 * 39
    assert resumed.history.history["loss"] == whole.history.history["loss"]
    for one, two in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, two)


def test_lengths_of_sets_and_arrays(tmp_path: Path) -> None:
    x, y = numbered([1, 5, 2, 2])
    found = memfit.lengths(as_generator(x, y))
    assert (found.num_steps, found.longest, found.step_bytes) == (10, 5, 4)
    batched = memfit.lengths(as_generator(x, y).padded_batch(2))
    assert (batched.num_steps, batched.longest) == (10, 5)
    assert batched.paddings[1].num_steps == 2 * 5 + 2 * 2
    assert memfit.lengths(as_generator(x, y), limit=2).is_sample
    padded = keras.utils.pad_sequences(x, maxlen=8)
    assert memfit.lengths((padded, y)).paddings[0].num_steps == 4 * 8
    assert memfit.lengths(padded).num_steps == 10
    assert memfit.lengths(padded, padding_value=None).num_steps == 32
    assert memfit.lengths(np.array([3, 4])).num_steps == 7
    with pytest.raises(memfit.UsageError, match="sample 1 has the length nan"):
        memfit.lengths(np.array([3, np.nan]))
    np.save(tmp_path / "x.npy", padded)
    assert memfit.lengths(tmp_path / "x.npy").num_steps == 10
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-9])
    with pytest.raises(memfit.UsageError, match="may end in the middle of a record"):
        memfit.lengths(tmp_path / "x.npy")
