"""A run that is killed again and again.

The server has imported TensorFlow and not started it; each life of the run is a fork of the server.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_KILLS = 20
MOST_STEPS = 20  # of a life: two epochs have 26


def train(folder: Path, notify: Callable[[], object]) -> None:
    """The user's script: the same command in every life."""
    import keras
    import numpy as np

    import memfit
    from memfit.training.resuming_tf import resumable_fit

    class Notify(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            notify()

    keras.utils.set_random_seed(11)
    numbers = np.random.default_rng(2)
    x = numbers.normal(size=(200, 6)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    model = keras.Sequential(  # Most of a short life is tracing, so no more than one of each kind of state.
        [
            keras.Input((6,)),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.003, use_ema=True), "mse", metrics=["mae"], jit_compile=False)

    def drive(x: Any, y: Any, arguments: dict[str, Any], callbacks: Any) -> Any:
        return model.fit(x, y, callbacks=callbacks, **arguments)

    arguments = {
        "batch_size": 16,
        "epochs": 60,
        "verbose": 0,
        "validation_data": (x[:32], y[:32]),
        "callbacks": [Notify(), keras.callbacks.ReduceLROnPlateau(patience=5)],
    }
    resume = memfit.Resume(folder, every_steps=7)
    history = resumable_fit(model, drive, x, y, resume, arguments)
    values = [
        np.asarray(each.value).tobytes().hex() for each in [*model.variables, *model.optimizer.variables]
    ]
    text = json.dumps({"variables": values, "history": history.history, "epochs": history.epoch})
    folder.with_suffix(".json").write_text(text)


def be_born(folder: Path) -> tuple[int, int]:
    """Forks a process that trains; its id, and a pipe with a byte for every step that it takes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    try:
        train(folder, lambda: os.write(writer, b"."))
        os._exit(0)
    except BaseException:  # noqa: BLE001  # whatever it was, the fork ends here
        import traceback

        traceback.print_exc()
        os._exit(1)


def live_on(folder: Path) -> None:
    """A life that ends by itself."""
    pid, reader = be_born(folder)
    while os.read(reader, 65536):
        pass
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the run ended with status {status}"


def be_killed(folder: Path, moments: random.Random) -> str:
    """A life that ends by SIGKILL at a random moment, within some steps; what it was doing."""
    pid, reader = be_born(folder)
    has_stepped = False
    if moments.random() < 0.2:
        select.select([reader], [], [], moments.uniform(0.0, 1.5))  # while it starts, or at its first step
    else:
        for _ in range(moments.randrange(1, MOST_STEPS)):
            has_stepped = bool(os.read(reader, 1))
        time.sleep(moments.uniform(0.0, 0.02))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    has_stepped = has_stepped or bool(os.read(reader, 1))
    os.close(reader)
    assert os.WIFSIGNALED(status), f"the run ended by itself, with status {status}, before it was killed"
    assert os.WTERMSIG(status) == signal.SIGKILL
    if list(folder.glob(".*.part")):
        return "writing"
    return "training" if has_stepped else "starting"


def main(folder: Path) -> None:
    """Prints what each killed life was doing, and whether the last one ended as the run that was not."""
    import memfit  # before TensorFlow
    import memfit.training.resuming_tf  # noqa: F401

    live_on(folder / "whole")
    moments = random.Random(7)
    ends = [be_killed(folder / "pieces", moments) for _ in range(NUM_KILLS)]
    live_on(folder / "pieces")
    whole, pieces = (json.loads((folder / f"{name}.json").read_text()) for name in ("whole", "pieces"))
    print(json.dumps({"ends": ends, "is_same": {name: whole[name] == pieces[name] for name in whole}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
