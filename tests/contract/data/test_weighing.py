"""Batches by length as updates: each example counts alike over an epoch, as in random batches."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import memfit

NUM, BATCH_SIZE = 96, 8


def make_data() -> tuple[list[Any], Any]:
    """Many short sequences and few long ones, whose labels differ: an update must not favour either."""
    random = np.random.default_rng(0)
    lengths = [*random.integers(1, 4, 80).tolist(), *random.integers(10, 41, 16).tolist()]
    x = [random.integers(1, 20, length).astype(np.int32) for length in lengths]
    return x, np.array([[length / 10 + x[place][0]] for place, length in enumerate(lengths)], np.float32)


def as_set(x: Any, y: Any) -> tf.data.Dataset:
    signature = (tf.TensorSpec([None], tf.int32), tf.TensorSpec([1], tf.float32))
    return tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=signature)


FORMS: dict[str, Callable[[Any, Any], Any]] = {"lists": lambda x, y: (x, y), "tf.data": as_set}


def make_model(loss: Any = "mse", **arguments: Any) -> Any:
    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Embedding(20, 4, mask_zero=True),
        keras.layers.SimpleRNN(4),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((None,), dtype="int32"), *layers])
    model.compile(keras.optimizers.SGD(0.01), loss, **arguments)
    return model


def by_length(data: Any, **arguments: Any) -> tf.data.Dataset:
    return memfit.batch_by_length(data, batch_size=BATCH_SIZE, buckets=6, tell=None, **arguments)


def random_batches(x: Any, y: Any, num_batches: int) -> list[tuple[Any, ...]]:
    """As many batches, all of one size, each padded to its longest."""
    chosen = np.split(np.random.default_rng(1).permutation(len(x)), num_batches)
    return [(keras.utils.pad_sequences([x[at] for at in each], padding="post"), y[each]) for each in chosen]


def epoch_gradient(model: Any, batches: Any) -> Any:
    """The sum of the gradients of all updates of an epoch, at the weights as they are."""
    total: Any = 0
    for x, y, *weights in batches:
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x, y, y_pred, weights[0] if weights else None)
        found = tape.gradient(loss, [each.value for each in model.trainable_variables])
        total = total + np.concatenate([np.ravel(tf.convert_to_tensor(each)) for each in found])
    return total


@pytest.mark.parametrize("form", FORMS)
def test_an_epoch_has_the_gradient_of_random_batches(form: str) -> None:
    x, y = make_data()
    model = make_model()
    batches = list(by_length(FORMS[form](x, y)))
    sizes = [len(inputs) for inputs, *_ in batches]
    assert max(sizes) > 4 * min(sizes)
    # An update of random batches takes the mean of as many examples as there are on average here.
    usual = epoch_gradient(model, random_batches(x, y, NUM // BATCH_SIZE)) * len(batches) * BATCH_SIZE / NUM
    np.testing.assert_allclose(epoch_gradient(model, batches), usual, rtol=1e-3, atol=1e-3)
    plain = epoch_gradient(model, by_length(FORMS[form](x, y), weigh_alike=False))
    assert np.linalg.norm(plain - usual) > 0.2 * np.linalg.norm(usual)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [{"tokens": 60, "buckets": (4, 20, 30)}, {"tokens": 50}, {"batch_size": 8}])
def test_weights_of_an_epoch_add_up_as_a_batch_counts_by_its_examples(
    form: str, sizes: dict[str, Any]
) -> None:
    for longer in ("own_bucket", "truncate"):
        batches = memfit.batch_by_length(FORMS[form](*make_data()), **sizes, longer=longer, tell=None)
        found = [weights.numpy() for *_, weights in batches]
        mean = NUM / len(found)
        for weights in found:
            np.testing.assert_allclose(weights, len(weights) / mean, rtol=1e-5)
        # What a batch adds to an epoch is the mean of its weights.
        assert sum(weights.mean() for weights in found) == pytest.approx(len(found), rel=1e-5)


def test_workers_and_later_epochs_have_the_same_weights() -> None:
    batches = by_length(make_data())
    mean = NUM / int(batches.cardinality())
    shares = [batch for index in range(2) for batch in batches.shard(2, index)]
    for x, _, weights in [*shares, *batches, *batches.skip(3)]:
        np.testing.assert_allclose(weights, len(x) / mean, rtol=1e-5)


def test_a_set_that_is_not_read_to_its_end_has_about_the_same_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memfit.data.windows_tf.NUM_READ", 200)
    lengths = np.random.default_rng(0).integers(1, 30, 2000)
    x = [np.ones(length, np.int32) for length in lengths]
    batches = list(by_length(as_set(x, np.zeros((2000, 1), np.float32)), seed=1))
    for inputs, _, weights in batches:
        np.testing.assert_allclose(weights, len(inputs) / (2000 / len(batches)), rtol=0.15)


def test_weights_of_ones_own_count_on_top() -> None:
    x, _ = make_data()
    own = np.arange(NUM)  # Whole numbers will do.
    batches = by_length((x, own, own))
    mean = NUM / int(batches.cardinality())
    for inputs, labels, weights in batches:
        np.testing.assert_allclose(weights, labels.numpy() * len(inputs) / mean, rtol=1e-5)


@pytest.mark.parametrize("form", ["lists", "tf.data"])
def test_labels_a_step_count_by_steps(form: str) -> None:
    x, _ = make_data()
    signature = (tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32))
    data: Any = (x, x)
    if form == "tf.data":
        data = tf.data.Dataset.from_generator(lambda: zip(x, x, strict=True), output_signature=signature)
    batches = list(by_length(data))
    mean = sum(map(len, x)) / len(batches)
    for inputs, _, weights in batches:
        is_real = inputs.numpy() != 0
        np.testing.assert_allclose(weights, is_real * is_real.sum() / mean, rtol=1e-5)


def test_each_of_several_labels_counts_by_its_own() -> None:
    x, y = make_data()
    batches = by_length((x, {"tags": x, "kind": y}))
    num_batches = int(batches.cardinality())
    for inputs, _, weights in batches:
        num_steps = np.count_nonzero(inputs)
        of_steps, of_examples = sum(map(len, x)) / num_batches, NUM / num_batches
        assert weights["tags"].numpy().max() == pytest.approx(num_steps / of_steps, rel=1e-5)
        np.testing.assert_allclose(weights["kind"], len(inputs) / of_examples, rtol=1e-5)


def test_what_is_evaluated_is_a_plain_mean() -> None:
    x, y = make_data()
    model = make_model(metrics=["mse"])
    padded = keras.utils.pad_sequences(x, padding="post")
    loss = model.evaluate(padded, y, verbose=0)[0]
    in_order = by_length((x, y), shuffle=False)
    assert len(in_order.element_spec) == 2
    assert model.evaluate(in_order, verbose=0) == pytest.approx([loss, loss], rel=1e-4)
    # With weights, Keras counts an example by its batch's size once more; a metric has no weights.
    weighed_loss, metric = model.evaluate(by_length((x, y)), verbose=0)
    assert metric == pytest.approx(loss, rel=1e-4)
    assert weighed_loss != pytest.approx(loss, rel=0.05)


def test_where_no_weights_are_needed_there_are_none() -> None:
    x, y = make_data()
    summed = make_model(keras.losses.MeanSquaredError(reduction="sum"))
    assert len(by_length((x, y), model=summed).element_spec) == 2
    assert len(by_length((x, y), model=make_model()).element_spec) == 3
    assert len(by_length((x, y), weigh_alike=False).element_spec) == 2
    assert len(by_length((x, y), shuffle=False, weigh_alike=True).element_spec) == 3
    assert len(by_length(x).element_spec) == 1
    inputs = as_set(x, y).map(lambda inputs, _: inputs)
    assert len(by_length(inputs).element_spec) == 1
    with pytest.raises(memfit.UsageError, match=r"weigh_alike is True, False, or None .* Received: 'yes'"):
        by_length((x, y), weigh_alike="yes")


def test_micro_batches_make_the_same_updates() -> None:
    def trained(plan: memfit.Plan) -> Any:
        model = make_model()
        run = memfit.fit(model, by_length(make_data()), plan=plan, epochs=2, verbose=0, shuffle=False)
        return run.history.history["loss"], model.get_weights()

    (losses, weights), (others, same) = trained(memfit.Plan()), trained(memfit.Plan(micro_batch=3))
    assert losses == pytest.approx(others, rel=1e-4)
    for one, two in zip(weights, same, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)


def test_a_plan_that_makes_batches_by_length_weighs_them_and_classes() -> None:
    x, _ = make_data()
    padded = keras.utils.pad_sequences(x, padding="post")
    kinds = np.array([len(each) > 5 for each in x], np.int32)

    def trained(**arguments: Any) -> Any:
        model = make_model()
        if "x" not in arguments:
            arguments |= {
                "x": padded,
                "y": kinds,
                "plan": memfit.Plan(tokens=100),
                "allow": "bucketing",
                "batch_size": 50,
            }
        memfit.fit(model, **arguments, verbose=0)
        return model.get_weights()

    weights = np.where(kinds, 3.0, 0.5)
    batches = memfit.batch_by_length((padded, kinds, weights), tokens=100, tell=None)
    expected = trained(x=batches, shuffle=False, plan=memfit.Plan())
    for given in ({"class_weight": {0: 0.5, 1: 3.0}}, {"sample_weight": weights}):
        for one, two in zip(expected, trained(**given), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
