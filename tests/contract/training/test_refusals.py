"""What cannot be gone on with exactly is refused before the first step, with what to type; nothing lost."""

import json
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import memfit
from memfit.errors import MemfitWarning, ResumeError, UsageError
from memfit.training import resuming_internals_tf
from memfit.training.store import Store
from tests.contract.training.runs import BATCH_SIZE, Batches, Case, bits, data, dataset, fit, make_model


def slices() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(data())


def random_layer() -> tf.data.Dataset:
    layer = keras.layers.GaussianNoise(0.1, seed=1)
    return slices().map(lambda x, y: (layer(x, training=True), y)).batch(8)


class Restless(Batches):
    """Another batch each time."""

    def __getitem__(self, index: int) -> Any:
        self.x = self.x + 1
        return super().__getitem__(index)


def shared() -> dict[str, Any]:
    made = slices().shuffle(46, seed=1)
    return {"x": made.skip(8).batch(8), "validation_data": made.take(8).batch(8)}


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "generator": (lambda: {"x": (data() for _ in range(9))}, "only gives its next batch.*from_generator"),
    "nothing": (lambda: {"x": None}, "x is a NoneType"),
    "empty arrays": (lambda: {"x": data()[0][:0], "y": data()[1][:0]}, "the data is empty: x has 0 samples"),
    "empty tf.data": (lambda: {"x": dataset().take(0)}, "the data is empty: the tf.data set has 0 batches"),
    "empty PyDataset": (lambda: {"x": Batches(length=0)}, "the data is empty: the PyDataset has 0 batches"),
    "batch_size with tf.data": (
        lambda: {"x": dataset(), "batch_size": 8},
        r"batch_size=8 was given together with a tf.data set.*dataset.batch\(8\)",
    ),
    "batch_size with PyDataset": (lambda: {"x": Batches(), "batch_size": 8}, "together with a PyDataset"),
    "targets with PyDataset": (lambda: {"x": Batches(), "y": data()[1]}, "part of a PyDataset's batches"),
    "endless tf.data": (lambda: {"x": dataset(repeat=True)}, "no end.*steps_per_epoch="),
    "endless PyDataset": (lambda: {"x": Batches(length=None)}, "no end.*steps_per_epoch="),
    "steps of an unknown length": (
        lambda: {"x": dataset(is_known=False), "steps_per_epoch": 3},
        "does not say how long it is",
    ),
    "restless PyDataset": (lambda: {"x": Restless()}, "another batch when number 0 was asked for twice"),
    "shuffle in any order": (
        lambda: {"x": slices().map(lambda x, y: (x, y), num_parallel_calls=2, deterministic=False).batch(8)},
        "deterministic=False",
    ),
    "random function": (
        lambda: {
            "x": slices().map(lambda x, y: (x + tf.random.normal([5]), y), num_parallel_calls=2).batch(8)
        },
        "draws at random.*stateless",
    ),
    "random layer": (lambda: {"x": random_layer()}, "changes a variable"),
    "shuffle in a function": (
        lambda: {
            "x": slices().batch(8).flat_map(lambda x, y: tf.data.Dataset.from_tensors((x, y)).shuffle(2))
        },
        "Shuffle outside of the function",
    ),
    "one shuffled set for both": (shared, "x and validation_data are made from one tf.data set"),
    "BackupAndRestore": (
        lambda: {"x": data()[0], "y": data()[1], "callbacks": [keras.callbacks.BackupAndRestore("backup")]},
        "Leave BackupAndRestore out",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    model = make_model()
    before = bits(model)
    arguments = {"y": None} | make()
    with pytest.raises(UsageError, match=message):
        fit(model, arguments.pop("x"), arguments.pop("y"), tmp_path / "run", **arguments)
    assert bits(model) == before
    assert not (tmp_path / "run").exists()


def test_a_shuffle_without_a_seed(tmp_path: Path) -> None:
    """In a process of its own, since other tests set TensorFlow's global seed."""
    code = """
import tensorflow as tf
from memfit.training.dataset_source_tf import check_dataset
from memfit.errors import UsageError
try:
    check_dataset(tf.data.Dataset.range(4).shuffle(4).batch(2), None)
except UsageError as fault:
    print(fault)
check_dataset(tf.data.Dataset.range(4).shuffle(4, seed=1).batch(2), None)
tf.random.set_seed(1)
check_dataset(tf.data.Dataset.range(4).shuffle(4).batch(2), None)
"""
    answer = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert "without a seed (ShuffleDataset)" in answer.stdout
    assert ".shuffle(n, seed=1)" in answer.stdout


def test_a_python_function_is_warned_of(tmp_path: Path) -> None:
    x, y = data()
    specs = (tf.TensorSpec((5,), tf.float32), tf.TensorSpec((1,), tf.float32))
    made = tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=specs).batch(8)
    made = made.apply(tf.data.experimental.assert_cardinality(6))
    with pytest.warns(MemfitWarning, match="runs Python, which memfit cannot look into"):
        fit(make_model(), made, None, tmp_path)


def test_a_callback_that_starts_anew_is_warned_of(tmp_path: Path) -> None:
    class Counter(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

    quiet = [keras.callbacks.TerminateOnNaN(), keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)]
    with pytest.warns(MemfitWarning, match="these callbacks start anew: Counter"):
        fit(make_model(), *data(), tmp_path, callbacks=[*quiet, Counter()])


def test_a_model_that_is_not_compiled(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not compiled"):
        fit(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]), *data(), tmp_path)


class Late(keras.Model):
    """Makes a variable in its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.second = keras.optimizers.SGD()

    def call(self, values: Any) -> Any:
        return self.dense(values)


def test_a_second_optimizer_that_is_not_built(tmp_path: Path) -> None:
    model = Late()
    model.compile("sgd", loss="mse", jit_compile=False)
    with pytest.raises(UsageError, match=r"the optimizer sgd\w* of the model is not built"):
        fit(model, *data(), tmp_path)


CASE = Case(batch_size=BATCH_SIZE)


@pytest.fixture(scope="module")
def cut_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cut") / "run"
    CASE.cut(folder, 1, 3)
    return folder


@pytest.fixture
def folder(cut_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(cut_run, tmp_path / "run")


def test_a_folder_of_another_model(folder: Path) -> None:
    keras.utils.set_random_seed(5)
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7), keras.layers.Dense(1)])
    other.compile("adam", loss="mse", jit_compile=False)
    weights = [each.tobytes() for each in other.get_weights()]
    with pytest.raises(ResumeError, match=r"another model.*float32\[5, 16\] there.*float32\[5, 7\] here"):
        fit(other, *data(), folder, batch_size=BATCH_SIZE, epochs=3)
    assert [each.tobytes() for each in other.get_weights()] == weights
    CASE.run(folder)


def test_a_folder_of_another_optimizer(folder: Path) -> None:
    with pytest.raises(ResumeError, match="another model or optimizer"):
        fit(make_model(optimizer=keras.optimizers.SGD()), *data(), folder, batch_size=BATCH_SIZE, epochs=3)


def test_a_folder_of_another_memfit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memfit, "__version__", "9.0")
    with pytest.raises(ResumeError, match=r"memfit 0.1.0, and this is memfit 9.0.*memfit==0.1.0"):
        CASE.run(folder)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batch_size": 4}, "a run with batch_size=8, but received batch_size=4"),
        ({"shuffle": False}, "a run with shuffle=True, but received shuffle=False"),
        ({"steps_per_epoch": 3}, "a run with steps_per_epoch=None, but received steps_per_epoch=3"),
    ],
)
def test_a_folder_of_other_arguments(changed: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(ResumeError, match=message):
        CASE.run(folder, **changed)


def test_a_folder_of_other_data(folder: Path) -> None:
    x, y = data()
    with pytest.raises(ResumeError, match="other data: checksum"):
        fit(make_model(), x + 1, y, folder, batch_size=BATCH_SIZE, epochs=3)


def test_a_folder_in_use(folder: Path) -> None:
    store = Store(folder)
    with pytest.raises(ResumeError, match="another process is training"):
        CASE.run(folder)
    store.close()
    CASE.run(folder)


@pytest.mark.parametrize("damage", ["cut short", "one bit"])
def test_a_broken_checkpoint(damage: str, folder: Path) -> None:
    whole = CASE.whole()
    newest = max(folder.glob("checkpoint-*.zip"))
    content = bytearray(newest.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 1
    newest.write_bytes(content if damage == "one bit" else content[:-100])
    with pytest.warns(MemfitWarning, match=rf"not whole \({newest.name} .*the one before it is taken"):
        pieces, found = CASE.run(folder)
    assert (bits(pieces), found) == whole


@pytest.mark.filterwarnings("ignore::memfit.errors.MemfitWarning")
def test_no_checkpoint_is_whole(folder: Path) -> None:
    for path in folder.glob("checkpoint-*.zip"):
        path.write_bytes(b"nothing")
    with pytest.raises(ResumeError, match="none of the 2 checkpoints"):
        CASE.run(folder)


def test_a_checkpoint_in_an_unknown_form(folder: Path) -> None:
    for path in folder.glob("checkpoint-*.zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("state.json", json.dumps({"position": 3}))
    with pytest.raises(ResumeError, match="a form that this memfit does not know"):
        CASE.run(folder)


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """As if the disk were full beyond that: the kernel refuses to let a file grow further."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class FillsDisk(keras.callbacks.Callback):
    """Lets no file grow from one step on, for some steps."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            self.limit = files_of_at_most(1000)
            self.limit.__enter__()
        if batch == 4:
            self.limit.__exit__(None, None, None)


def test_a_full_disk_in_the_middle(tmp_path: Path) -> None:
    case = Case(batch_size=BATCH_SIZE, epochs=1)
    whole = case.whole()
    with pytest.warns(
        MemfitWarning, match=r"no checkpoint could be written.*File too large.*Training goes on"
    ):
        model, history = case.run(tmp_path / "run", FillsDisk())
    assert (bits(model), history) == whole
    assert not list((tmp_path / "run").glob(".*.part"))


def test_a_full_disk_at_the_beginning(tmp_path: Path) -> None:
    with files_of_at_most(1000), pytest.raises(ResumeError, match=r"cannot write checkpoints in .*Make room"):
        CASE.run(tmp_path / "run")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(folder))
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(("umount", str(folder)), check=True)


def test_a_disk_with_room_for_two_checkpoints(small_disk: Path) -> None:
    """The older one makes room for the new one; the newer one stays until that is whole."""
    case = Case(batch_size=BATCH_SIZE)
    case.cut(small_disk / "run", 1, 3)
    assert len(list((small_disk / "run").glob("checkpoint-*.zip"))) == 2
    pieces, history = case.run(small_disk / "run")
    assert (bits(pieces), history) == CASE.whole()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResumeError, match="cannot keep checkpoints in"):
        CASE.run(tmp_path / "file" / "run")


def test_what_is_said_when_a_private_name_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resuming_internals_tf.DataAdapter, "on_epoch_begin")
    with pytest.raises(memfit.SetupError, match=f"Keras {keras.__version__}.*keras DataAdapter moved"):
        resuming_internals_tf.check_versions()


def test_state_that_cannot_be_kept(tmp_path: Path) -> None:
    class Odd(keras.callbacks.Callback):
        def get_state(self) -> dict[str, Any]:
            return {"thing": object()}

        def set_state(self, state: dict[str, Any]) -> None:
            pass

    with pytest.raises(UsageError, match=r"Odd.get_state\(\) holds a object"):
        fit(make_model(), *data(), tmp_path, callbacks=[Odd()])


def test_state_of_a_callback_of_ones_own(tmp_path: Path) -> None:
    class Own(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, Any] = {"steps": 0, "rates": [0.1, None], "values": np.zeros(2, "float32")}

        def get_state(self) -> dict[str, Any]:
            return self.kept

        def set_state(self, state: dict[str, Any]) -> None:
            self.kept = state

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.kept["steps"] += 1
            self.kept["values"] = self.kept["values"] + 1

    CASE.cut(tmp_path, 1, 3, Own())
    own = Own()
    CASE.run(tmp_path, own)
    assert own.kept["steps"] == 18
    assert own.kept["rates"] == [0.1, None]
    assert own.kept["values"].tolist() == [18.0, 18.0]
