"""Unmodified scripts that die under plain Python, and what `memfit run` makes of them, in real processes."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from memfit.guarding.first_epoch import Cause
from memfit.records import Outcome, Session, Source
from memfit.units import MIB

# A real limit with clean errors: oneDNN would turn a failed request into a crash.
CLEAN = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_ENABLE_ONEDNN_OPTS": "0"}


def limited(limit_mib: int) -> dict[str, str]:
    return {**CLEAN, "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)}


def python(
    *words: object, folder: Path, variables: dict[str, str] | None = None, typed: str | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, *map(str, words)),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(variables or {})},
        input=typed,
    )


def memfit(
    *words: object, folder: Path, variables: dict[str, str] | None = None, typed: str | None = None
) -> "subprocess.CompletedProcess[str]":
    return python("-m", "memfit", "run", *words, folder=folder, variables=variables, typed=typed)


Done = subprocess.CompletedProcess[str]
AT_ONCE = 3  # A request that fails waits 10 s, and does nothing meanwhile.


def together(*runs: Callable[[], Done]) -> list[Done]:
    """Several processes side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [each.result() for each in [pool.submit(run) for run in runs]]


OWN_LOOP = """
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((1000, 8)), keras.layers.LSTM(64), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
x = np.random.default_rng(0).normal(size=(32, 1000, 8)).astype("float32")

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss

print("losses", *(f"{float(step(x)):.3f}" for _ in range(2)))
"""


def test_a_loop_of_ones_own_that_dies_and_does_not_under_memfit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OWN_LOOP)
    died, ended, plenty = together(
        lambda: python("train.py", folder=tmp_path, variables=limited(32)),
        lambda: memfit("train.py", folder=tmp_path, variables=limited(32)),
        lambda: memfit("--observe", "train.py", folder=tmp_path, variables=limited(2000)),
    )
    assert died.returncode == 1
    assert "ResourceExhaustedError" in died.stderr
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == plenty.stdout
    assert ended.stdout.startswith("losses 0.")


IN_VALIDATION = """
import numpy as np
import keras

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(1040, 8)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(4096, activation="relu", name="wide"), keras.layers.Dense(1)]
)
model.compile("sgd", "mse")
history = model.fit(
    x[:16], y[:16], batch_size=8, epochs=2, verbose=0, shuffle=False,
    validation_data=(x[16:], y[16:]), validation_batch_size=1024,
)
print(type(history).__name__, *(f"{value:.4f}" for value in history.history["val_loss"]))
together = model.predict(x[:1024], batch_size=1024, verbose=0)
print(abs(together - model.predict(x[:1024], batch_size=64, verbose=0)).max() < 1e-4)
"""


def test_a_fit_that_dies_in_validation_and_does_not_under_memfit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IN_VALIDATION)
    record, limit = ("--record", "died.json"), limited(14)
    died, ended = together(
        lambda: memfit("--observe", *record, "train.py", folder=tmp_path, variables=limit),
        lambda: memfit("--record", "run.json", "train.py", folder=tmp_path, variables=limit),
    )
    assert died.returncode == 1
    assert "ResourceExhaustedError" in died.stderr
    autopsy = Session.load(tmp_path / "died.json").autopsy
    assert autopsy is not None
    assert autopsy.cause == f"{Cause.VALIDATION.value}."
    assert autopsy.phase == "validation, epoch 0, after 0 batches"
    assert autopsy.place == "train.py:12"
    assert autopsy.limit_bytes == 14 * MIB
    assert autopsy.in_use_bytes is not None and 0 < autopsy.in_use_bytes < 16 * MIB
    assert autopsy.layers[0].name == "wide"
    # The step was measured again when it was dead: what it held by layer, and what would have fitted.
    assert {"weights", "activations of wide, by estimate"} <= {each.name for each in autopsy.held}
    planned, smaller, more = autopsy.ways_out
    assert [each.source for each in autopsy.ways_out] == [Source.MEASURED] * 3
    assert planned.predicted_bytes is not None and planned.predicted_bytes < 14 * MIB
    assert smaller.predicted_bytes is not None and smaller.predicted_bytes < 14 * MIB
    assert more.predicted_bytes is not None and more.predicted_bytes > 16 * MIB
    assert "way out 1" in died.stderr
    assert ended.returncode == 0, ended.stderr
    session = Session.load(tmp_path / "run.json")
    assert session.autopsy is not None and session.autopsy.is_survived
    (run,) = session.runs
    assert [each.where for each in run.incidents] == ["evaluation"] * len(run.incidents) != []
    assert ended.stdout.startswith("History ")
    assert ended.stdout.endswith("True\n")
    assert "train.py:17: MemfitWarning: out of memory in predict" in ended.stderr


KEEPS = """
import numpy as np
import keras
import tensorflow as tf

kept = []
class Keep(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        kept.append(tf.ones([2**21]))

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 4)), np.ones((64, 1)), batch_size=8, epochs=99, verbose=0, callbacks=[Keep()])
"""
CACHES = """
import tensorflow as tf
import keras

def element(number):
    return tf.random.stateless_uniform([4, 2**19], [number, 0]), tf.zeros([4, 1])

data = tf.data.Dataset.range(400).map(element).cache()
few = keras.layers.Lambda(lambda x: x[:, :8])
model = keras.Sequential([keras.Input((2**19,)), few, keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(3):
    model.fit(data.take(200).repeat(), steps_per_epoch=10, epochs=20, verbose=0)
"""
RETRACES = """
import numpy as np
import keras
import tensorflow as tf

class Score(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        score(epoch)

@tf.function
def score(epoch):
    return tf.reduce_sum(tf.constant(np.full([2**22], epoch, "float32")))  # 16 MiB in every graph.

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 4)), np.ones((64, 1)), batch_size=8, epochs=99, verbose=0, callbacks=[Score()])
"""
LOOPS = """
import numpy as np
import keras

x = np.ones((32, 1024), "float32")
for fold in range(99):
    model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(512), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0)
    del model
    keras.utils.clear_session()
"""
LENGTHENS = """
import numpy as np
import keras

def batches():
    for step in range(99):
        x = np.ones((4, 4096 if step == 25 else 8 + step % 5, 8), "float32")
        yield x, x[:, :, :1]

model = keras.Sequential([keras.Input((None, 8)), keras.layers.Dense(256, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(batches(), steps_per_epoch=10, epochs=9, verbose=0)
"""
# The sixth, a validation that is bigger than training, is above.
HOST = ("--host-budget", "1100MiB")
CAUSES = {
    Cause.KEPT_TENSORS: (KEEPS, HOST, {}),
    Cause.DATA_BUFFER: (CACHES, HOST, {}),
    Cause.RETRACING: (RETRACES, HOST, {}),
    Cause.NEXT_MODEL: (LOOPS, (), limited(32)),
    Cause.LONG_BATCH: (LENGTHENS, (), limited(32)),
}
PIECES = """
import tensorflow as tf

pieces = [tf.ones([2**18]) for _ in range(60)]
del pieces[::2]
tf.ones([2**21])
"""


def test_why_it_died_after_the_first_epoch_or_of_fragmentation(tmp_path: Path) -> None:
    def run(cause: Cause) -> Done:
        source, options, variables = CAUSES[cause]
        (tmp_path / f"{cause.name}.py").write_text(source)
        words = ("--observe", *options, "--record", f"{cause.name}.json", f"{cause.name}.py")
        return memfit(*words, folder=tmp_path, variables=variables)

    (tmp_path / "pieces.py").write_text(PIECES)
    words = ("--observe", "--budget", "64MiB", "--record", "pieces.json", "pieces.py")
    in_pieces, *done = together(
        lambda: memfit(*words, folder=tmp_path), *(partial(run, cause) for cause in CAUSES)
    )
    assert in_pieces.returncode == 1, in_pieces.stderr
    check_memory_in_pieces(Session.load(tmp_path / "pieces.json"))
    for cause, ended in zip(CAUSES, done, strict=True):
        session = Session.load(tmp_path / f"{cause.name}.json")
        autopsy = session.autopsy
        assert autopsy is not None, ended.stderr
        assert autopsy.cause == f"{cause.value}.", ended.stderr
        if CAUSES[cause][1] == HOST:
            assert ended.returncode == 128 + 9, ended.stderr
            assert session.measurement.outcome is Outcome.HOST_OUT_OF_MEMORY
            assert autopsy.host_readings[0].host_bytes < autopsy.host_readings[-1].host_bytes
            assert "host memory, after" in ended.stderr
        else:
            assert ended.returncode == 1, ended.stderr
            assert session.measurement.outcome is Outcome.DEVICE_OUT_OF_MEMORY
        if cause is Cause.LONG_BATCH:
            assert "were [4, 4096, 8] against [4, 12, 8] of the largest" in autopsy.evidence[0]
            (smaller,) = (way for way in autopsy.ways_out if "batch_size=" in way.command)
            assert smaller.source is Source.MEASURED


def check_memory_in_pieces(session: Session) -> None:
    autopsy = session.autopsy
    assert autopsy is not None
    assert autopsy.cause == "the memory was in pieces (fragmentation)."
    assert autopsy.free_bytes is not None and autopsy.free_bytes >= 8 * MIB
    assert autopsy.largest_free_bytes is not None and autopsy.largest_free_bytes < 8 * MIB
    assert autopsy.place == "pieces.py:6"


RESTARTED = """
import os, pathlib, signal
import numpy as np
import keras

import memfit.training.resuming
memfit.training.resuming.DEFAULT_SECONDS = 1e-9  # A checkpoint after every step, not after a minute.

keras.utils.set_random_seed(0)
class Die(keras.callbacks.Callback):
    def get_state(self): return {}
    def set_state(self, state): pass
    def on_train_batch_end(self, batch, logs=None):
        with open("steps", "a") as file:
            file.write("x")
        if pathlib.Path("steps").stat().st_size == 3:
            os.kill(os.getpid(), signal.SIGKILL)

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.default_rng(0).normal(size=(64, 4))
history = model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0, callbacks=[Die()])
print("ended", len(history.history["loss"]))
"""


def test_a_killed_script_is_started_again_and_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RESTARTED)
    ended = memfit("--restarts", 1, "--record", "run.json", "train.py", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "ended 2\n"), ended.stderr
    assert "memfit: restart 1 of 1: killed: it was killed with SIGKILL" in ended.stderr
    # Two steps and the one that died, and then the other six of eight.
    assert (tmp_path / "steps").stat().st_size == 9
    session = Session.load(tmp_path / "run.json")
    assert len(session.restarts) == 1
    assert session.runs[0].num_steps == 8


SHOW = """
import json, os, sys
import __main__
print(json.dumps([sys.argv, __name__, __spec__ and __spec__.name, sys.path[0]]))
print(json.dumps([__main__ is sys.modules[__name__], globals().get("__file__"), sys.stdin.read()]))
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "tool.py").write_text(SHOW)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(SHOW)
    (tmp_path / "wrong.py").write_text("print('no')\nx = = 1\n")
    (tmp_path / "leave.py").write_text("import sys\nprint('out')\nsys.exit(3)\n")
    (tmp_path / "words.py").write_text("import sys\nsys.exit('said')\n")
    (tmp_path / "fork.py").write_text(
        "import os, sys\npid = os.fork()\nif pid == 0:\n    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    (tmp_path / "pool.py").write_text(
        "import multiprocessing, sys\ndef square(x):\n    return x * x\n"
        "if __name__ == '__main__':\n    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:\n"
        "        print(pool.map(square, range(5)))\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (("-m", "package.tool", "-m", "--budget", "1"), ""),
        (("folder", "a", "-h"), ""),
        (("archive.zip",), ""),
        (("-", "a", "--record"), SHOW),
        (("wrong.py",), ""),
        (("leave.py",), ""),
        (("words.py",), ""),
        (("fork.py",), ""),
        (("pool.py", "fork"), ""),
        (("pool.py", "spawn"), ""),
        (("-m", "no.such.module"), ""),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_script_behaves_as_under_plain_python(scripts: Path, words: tuple[str, ...], typed: str) -> None:
    with zipfile.ZipFile(scripts / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    plain, ended = together(
        lambda: python(*words, folder=scripts, typed=typed),
        lambda: memfit(*words, folder=scripts, typed=typed),
    )
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout), ended.stderr
    *lines, closing = ended.stderr.splitlines()
    assert closing.startswith("memfit: no TensorFlow device was used")
    assert lines == plain.stderr.splitlines()


GRAPH_MODE = """
import importlib
name = importlib.import_module("tensorflow.compat.v1")
name.disable_eager_execution()
with name.Session() as session:
    print(session.run(name.ones([3]) + 1))
"""
OWN_VARIABLES = """
import os
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "false"
import keras
import numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0)
print(model.predict(np.zeros((8, 4)), verbose=0).shape)
"""


def test_a_script_in_graph_mode_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GRAPH_MODE)
    ended = memfit("train.py", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "[2. 2. 2.]\n"), ended.stderr
    assert "memfit: Eager mode is off" in ended.stderr


def test_a_script_with_an_allocator_of_its_own_runs_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OWN_VARIABLES)
    ended = memfit("--budget", "1GiB", "--record", "run.json", "train.py", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "(8, 1)\n"), ended.stderr
    assert "The script sets TF_CPU_ALLOCATOR_USE_BFC itself" in ended.stderr
    record = json.loads((tmp_path / "run.json").read_text())
    assert any("sets TF_CPU_ALLOCATOR_USE_BFC itself" in note for note in record["notes"])
