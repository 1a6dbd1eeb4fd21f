"""Streaming for the benchmark of data: a large `.npy` file through an LSTM(128), against rows in memory.

    make bench TARGET="data stream"                              a file of 4 GiB, which is deleted at the end
    MEMFIT_STREAM_SIZE=256MiB make bench TARGET="data stream"    a smaller one
    TMPDIR=/data make bench TARGET="data stream"                 elsewhere

Each side runs in a fresh process. The file is streamed once, as a whole; what is in memory are its first 256
MiB, before and after, and the faster of both counts. Rows a second are those of the epoch, after a first step
that is not counted. Host memory is all that the process holds above what it held after that step.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memfit
from memfit.units import MIB, format_bytes, parse_bytes

LENGTH, FEATURES, BATCH_SIZE = 100, 32, 64
ROW_BYTES = LENGTH * FEATURES * 4
IN_MEMORY_BYTES = 256 * MIB
# What is to be reached.
MOST_BYTES, LEAST_SHARE = 300 * MIB, 0.8


def show_stream() -> None:
    """Host memory and rows a second of a file that is streamed, and of rows in memory."""
    size = parse_bytes(os.environ.get("MEMFIT_STREAM_SIZE", "4GiB"))
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < size + 1024 * MIB:
        print(
            f"stream: left out. A file of {format_bytes(size)} is needed in {folder}, which has "
            f"{format_bytes(free)} free, and 1 GiB is to stay. Set MEMFIT_STREAM_SIZE=1GiB, or TMPDIR."
        )
        return
    with tempfile.TemporaryDirectory() as own:
        path = str(Path(own, "x.npy"))
        measured("write", path, size // ROW_BYTES)
        in_memory = [measured("in memory", path)]
        streamed = measured("streamed", path)
        in_memory.append(measured("in memory", path))
    best = max(in_memory, key=lambda each: each["rows_per_second"])
    share = streamed["rows_per_second"] / best["rows_per_second"]
    for name, found in (("in memory", best), ("streamed", streamed)):
        print(
            f"{name:10} {format_bytes(found['data_bytes']):>9}: {found['rows_per_second']:8,.0f} rows a "
            f"second, host {format_bytes(found['host_bytes'])} above the start",
            flush=True,
        )
    print(
        f"streamed at {share:.0%} of the throughput in memory (asked for: {LEAST_SHARE:.0%}), host memory "
        f"{format_bytes(streamed['host_bytes'])} (asked for: under {format_bytes(MOST_BYTES)})",
        flush=True,
    )


def measured(way: str, *arguments: Any) -> Any:
    """What a way says, from a fresh process."""
    found = memfit.measure(WAYS[way], *arguments, timeout_seconds=7200)
    assert found.outcome is memfit.Outcome.OK, found.output
    return found.value


def write(path: str, num_rows: int) -> None:
    """Random rows, so that nothing of the file is sparse."""
    import numpy as np

    random = np.random.default_rng(0)
    with Path(path).open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (num_rows, LENGTH, FEATURES)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, num_rows, 1024):
            shape = (min(1024, num_rows - start), LENGTH, FEATURES)
            file.write(random.random(shape, np.float32).tobytes())
        file.flush()
        os.fsync(file.fileno())


def train_streamed(path: str) -> dict[str, Any]:
    """An epoch on the whole file."""
    import numpy as np

    num_rows = len(np.load(path, mmap_mode="r"))
    model = make_model()
    labels = np.zeros(num_rows, np.float32)

    def run() -> None:
        batches = memfit.stream((path, labels), batch_size=BATCH_SIZE)
        model.fit(batches, shuffle=False, verbose=0)

    return trained(run, num_rows)


def train_in_memory(path: str) -> dict[str, Any]:
    """Epochs on the first rows, which are in memory before."""
    import numpy as np

    x = np.array(np.load(path, mmap_mode="r")[: IN_MEMORY_BYTES // ROW_BYTES])
    labels = np.zeros(len(x), np.float32)
    model = make_model()
    return trained(lambda: model.fit(x, labels, batch_size=BATCH_SIZE, verbose=0), len(x))


def make_model() -> Any:
    """Compiled, and with its first step behind it."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    layers = [keras.Input((LENGTH, FEATURES)), keras.layers.LSTM(128), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    rows = np.zeros((3 * BATCH_SIZE + 1, LENGTH, FEATURES), np.float32)
    model.fit(rows, np.zeros(len(rows), np.float32), batch_size=BATCH_SIZE, verbose=0)
    return model


def trained(run: Callable[[], Any], num_rows: int) -> dict[str, Any]:
    """How fast a run was and what it held at most above the start."""
    start_bytes = resident_bytes()
    readings = [start_bytes]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            readings.append(resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    try:
        run()
    finally:
        seconds = time.perf_counter() - start
        is_over.set()
        thread.join()
    return {
        "rows_per_second": num_rows / seconds,
        "host_bytes": max(readings) - start_bytes,
        "data_bytes": num_rows * ROW_BYTES,
    }


def resident_bytes() -> int:
    """What the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


WAYS: dict[str, Callable[..., Any]] = {
    "write": write,
    "in memory": train_in_memory,
    "streamed": train_streamed,
}
