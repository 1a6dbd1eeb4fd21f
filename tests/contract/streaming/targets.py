"""What runs in a fresh process, where the host's memory can be measured."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_ROWS, WIDTH = 24_576, 1024


def host_bytes() -> list[int]:
    """What three ways of training on 192 MiB of float64 held at most: a stream, `memfit.fit`, plain Keras."""
    import keras
    import numpy as np

    import memfit

    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        array = np.lib.format.open_memmap(path, "w+", np.float64, (NUM_ROWS, WIDTH))
        for start in range(0, NUM_ROWS, 1024):
            array[start : start + 1024] = start / NUM_ROWS / WIDTH
        del array
        mapped, y = np.load(path, mmap_mode="r"), np.zeros(NUM_ROWS, "float32")
        model.fit(np.zeros((64, WIDTH)), np.zeros(64), verbose=0)
        batches = memfit.stream((path, y), batch_size=64, window="4MiB", tell=None)
        plan = memfit.Plan(stream_window_bytes=2**22)
        return [
            _most_above(lambda: model.fit(batches, shuffle=False, verbose=0)),
            _most_above(lambda: memfit.fit(model, mapped, y, plan=plan, batch_size=64, verbose=0)),
            _most_above(lambda: model.fit(mapped, y, batch_size=64, verbose=0)),
        ]


def _most_above(run: Callable[[], Any]) -> int:
    """The most that the process held while something ran, above what it held before."""
    before = resident_bytes()
    readings = [before]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.01):
            readings.append(resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        run()
    finally:
        is_over.set()
        thread.join()
    return max(readings) - before


def resident_bytes() -> int:
    """What the process holds, mapped files included."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
