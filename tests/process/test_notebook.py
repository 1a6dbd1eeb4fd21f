"""A real Jupyter kernel under `memfit run`: it behaves as a plain one, and places are cells and lines."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from memfit.records import Outcome, Session

BOLD = re.compile(r"\x1b\[\d*m")
LIMIT = ("--budget", "400MiB")
SETUP = """
import keras, memfit, numpy as np, time, tensorflow as tf
tf.get_logger().setLevel("ERROR")
losses = []

@tf.function
def train_step(x):
    return x + 1.0

def record(loss):
    losses.append(loss)  # HERE
"""
SHOWN = "losses"  # From now on it is `_` and `_2`, too.
# Steps that take as long as steps do: what is done in the first tenths of a second is not seen.
LEAK = """
for step in range(200):
    time.sleep(0.005)
    record(train_step(tf.ones([1024, 16])))
"""
TIMED = """%%time
kept = {}
with memfit.watch(every=1) as watcher:
    for step in range(60):
        kept[step] = train_step(tf.ones([1024, 16]))
print(watcher)
"""
RETRACED = """
@tf.function
def scaled(x, rate):
    return x * rate

with memfit.watch() as watcher:
    for step in range(30):
        scaled(tf.ones([4]), 0.1 * step)
print(watcher)
"""
FIT = """
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(65536), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((4, 8), "float32")
model.fit(x, x[:, :1], verbose=0)
"""
FAILS = """
def fail():
    held = tf.zeros([8, 1024, 1024])
    raise ValueError("as told")
fail()
"""
TOO_MUCH = """
def widen(x):
    return tf.tile(x, [1, 1024])  # HERE

wide = widen(tf.ones([1024, 256]))
"""
LOOP = """
print("waiting", flush=True)
while True:
    pass
"""
COUNTED = """
import signal
arrived = []
signal.signal(signal.SIGINT, lambda *_: arrived.append(1))
print("waiting", flush=True)
while not arrived:
    pass
time.sleep(0.5)
print(len(arrived))
"""


@dataclass
class Shown:
    """What a notebook shows for a cell."""

    status: str
    text: str = ""
    errors: list[str] = field(default_factory=list)


class Notebook:
    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str, react: Callable[[str], None] = lambda text: None) -> Shown:
        shown = Shown("")

        def show(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "error":
                shown.errors.append(content["ename"])
                shown.text += content["ename"]
            said = content.get("text", "") or content.get("data", {}).get("text/plain", "")
            shown.text += said
            react(said)

        reply = self._client.execute_interactive(code.strip("\n"), output_hook=show, timeout=120)
        shown.status = reply["content"]["status"]
        return shown


@contextmanager
def kernel(folder: Path, *words: str) -> Iterator[tuple[KernelManager, Notebook]]:
    manager = KernelManager()
    manager.connection_file = str(folder / "kernel.json")
    manager.shutdown_wait_time = 60.0  # By then Jupyter ends it, and this machine may be busy.
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [sys.executable, *words, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    variables = os.environ | {"IPYTHONDIR": str(folder / "ipython")}
    with (folder / "errors.txt").open("w") as errors:
        manager.start_kernel(cwd=folder, env=variables, stderr=errors)
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=120)
            yield manager, Notebook(client)
            client.stop_channels()
            manager.shutdown_kernel()
        finally:
            manager.shutdown_kernel(now=True)


def line_of(cell: str, words: str) -> int:
    return next(number for number, line in enumerate(cell.strip("\n").splitlines(), 1) if words in line)


def test_a_kernel(tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    with kernel(tmp_path, "-m", "memfit", "run", *LIMIT, "--record", str(record)) as (manager, notebook):
        assert notebook.run(SETUP).status == "ok"
        assert notebook.run(SHOWN).text == "[]"
        check_leaks(notebook)
        check_what_ipython_keeps(notebook)
        check_the_autopsy_of_a_cell(notebook)
        check_that_an_interrupt_comes_once(manager, notebook)
    session = Session.load(record)
    assert session.measurement.outcome is Outcome.OK
    assert session.measurement.exit_code == 0
    assert len(session.runs) == 1
    assert session.watched is not None
    leak = next(leak for leak in session.watched.leaks if leak.name == "losses")
    assert (leak.file, leak.line) == ("cell In[1]", line_of(SETUP, "# HERE"))
    assert any("A cell ran out of memory" in note and "Tile asked for" in note for note in session.notes)
    said = (tmp_path / "errors.txt").read_text()
    assert "memfit: This was a Jupyter kernel: an error in a cell does not end it" in said
    assert "memfit: peak " in said


def check_leaks(notebook: Notebook) -> None:
    """By the user's own name, in the cell that the function was written in, at the line of the cell."""
    line = line_of(SETUP, "# HERE")
    assert f"memory grows: `losses` in cell In[1], line {line} holds" in notebook.run(LEAK).text
    timed = notebook.run(TIMED).text
    assert f"`kept` in cell In[4], line {line_of(TIMED, 'kept[step]')} holds 60 tensors" in timed
    assert "Wall time" in timed
    assert (
        "`scaled` in cell In[5], line 2 traced 30 times; its argument `rate`" in notebook.run(RETRACED).text
    )


def check_what_ipython_keeps(notebook: Notebook) -> None:
    """A result that was shown keeps its model, and an error that was shown the variables of its frames."""
    assert "History" in notebook.run(FIT).text
    kept = notebook.run("del model\nmemfit.release();").text
    assert "IPython keeps what cells have shown" in kept
    assert "Out[6], 2." in kept
    fails = notebook.run(FAILS)
    assert (fails.status, fails.errors) == ("error", ["ValueError"])
    assert "autopsy" not in fails.text
    freed = notebook.run("%reset -f out\nprint(memfit.release() >= 2**25);").text
    assert "True" in freed
    assert "IPython keeps" not in freed


def check_the_autopsy_of_a_cell(notebook: Notebook) -> None:
    """Below the error, by cell and line; nothing of it where the error is another."""
    shown = notebook.run(TOO_MUCH)
    assert (shown.status, shown.errors) == ("error", ["ResourceExhaustedError"])
    _, after = shown.text.split("ResourceExhaustedError")
    text = " ".join(BOLD.sub("", after).split())  # Whatever lines it was broken into.
    place = f"cell In[10], line {line_of(TOO_MUCH, '# HERE')}"
    assert "autopsy device out of memory" in text
    assert f"Tile asked for 1.00 GiB, shape [1024, 262144] at {place}." in text
    assert f"of {LIMIT[1].removesuffix('MiB')} MiB in use" in text
    assert "tensors that Python keeps" in text
    assert "way out 1" in text
    assert "ipykernel" not in text
    assert "memfit.release()" in text


def check_that_an_interrupt_comes_once(manager: KernelManager, notebook: Notebook) -> None:
    """Jupyter sends it to memfit and to the kernel: passed on, it would come again while IPython shows it."""

    def interrupt(text: str) -> None:
        if "waiting" in text:
            manager.interrupt_kernel()

    assert notebook.run(COUNTED, interrupt).text == "waiting\n1\n"
    looped = notebook.run(LOOP, interrupt)
    assert (looped.status, looped.errors) == ("error", ["KeyboardInterrupt"])
    assert notebook.run("print(__name__, 'goes on')").text == "__main__ goes on\n"
