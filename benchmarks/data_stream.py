"""Streaming for the benchmark of data: a large `.npy` file through an LSTM(128), against rows in memory.

    make bench TARGET="data stream"                              a file of 4 GiB, which is deleted at the end
    MEMFIT_STREAM_SIZE=256MiB make bench TARGET="data stream"    a smaller one
    TMPDIR=/data make bench TARGET="data stream"                 elsewhere

Each side runs in a fresh process and is warm: the model has made some steps, traced for the batches that it
gets, before anything is counted. The file is streamed once, as a whole. What is in memory are its
first 256 MiB, as arrays and as `from_tensor_slices(...).shuffle(...).batch(...)`, before and after the
stream; the fastest of these four passes counts. Host memory is all that the process holds above what it held
when it was warm. Seconds of the processor are those of all its threads; what of them is for reading is what a
pass over some of the same batches takes without a model.
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

LENGTH, FEATURES, BATCH_SIZE = 100, 64, 64
ROW_BYTES = LENGTH * FEATURES * 4
IN_MEMORY_BYTES = 256 * MIB
NUM_WARM = 8
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
        measured(write, path, size // ROW_BYTES)
        passes = {"in memory, arrays": measured(train_on_arrays, path)}
        passes["streamed"] = streamed = measured(train_streamed, path)
        passes["in memory, tf.data"] = measured(train_on_set, path)
        again = measured(train_on_arrays, path)
    passes["in memory, arrays"] = max(passes["in memory, arrays"], again, key=_rate)
    for name, found in passes.items():
        show(name, found)
    best = max(_rate(found) for name, found in passes.items() if name != "streamed")
    print(
        f"reading alone took {1000 * streamed['reading_seconds']:.2f} ms of the processor a batch, "
        f"{streamed['reading_seconds'] / streamed['processor_seconds']:.1%} of all\n"
        f"streamed at {_rate(streamed) / best:.0%} of the best throughput in memory (asked for: "
        f"{LEAST_SHARE:.0%}), host memory {format_bytes(streamed['host_bytes'])} above the start (asked for: "
        f"under {format_bytes(MOST_BYTES)})",
        flush=True,
    )


def show(name: str, found: dict[str, Any]) -> None:
    """A line on a pass."""
    print(
        f"{name:18} {format_bytes(found['data_bytes']):>9}: {_rate(found):7,.0f} rows a second, "
        f"{1000 * found['processor_seconds']:6.1f} ms of the processor a batch, host "
        f"{format_bytes(found['host_bytes'])} above the start",
        flush=True,
    )


def _rate(found: dict[str, Any]) -> float:
    return float(found["rows_per_second"])


def measured(run: Callable[..., Any], *arguments: Any) -> Any:
    """What something returns in a fresh process."""
    found = memfit.measure(run, *arguments, timeout_seconds=7200)
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
    """An epoch on the whole file, and what reading takes without a model."""
    import numpy as np

    num_rows = len(np.load(path, mmap_mode="r"))
    batches = memfit.stream((path, np.zeros(num_rows, np.float32)), batch_size=BATCH_SIZE, tell=None)
    model = make_model()
    warm_up(model, batches)
    found = trained(lambda: model.fit(batches, shuffle=False, verbose=0), num_rows)
    some = min(len(batches), IN_MEMORY_BYTES // ROW_BYTES // BATCH_SIZE)
    start = time.process_time()
    for _ in batches.take(some):
        pass
    return {**found, "reading_seconds": (time.process_time() - start) / some}


def train_on_arrays(path: str) -> dict[str, Any]:
    """An epoch on the first rows, which are in memory before."""
    x, y = first_rows(path)
    model = make_model()
    model.fit(x[: NUM_WARM * BATCH_SIZE], y[: NUM_WARM * BATCH_SIZE], batch_size=BATCH_SIZE, verbose=0)
    return trained(lambda: model.fit(x, y, batch_size=BATCH_SIZE, verbose=0), len(x))


def train_on_set(path: str) -> dict[str, Any]:
    """The same from a `tf.data` set."""
    import tensorflow as tf

    x, y = first_rows(path)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1)
    batches = rows.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    model = make_model()
    warm_up(model, batches)
    return trained(lambda: model.fit(batches, shuffle=False, verbose=0), len(x))


def first_rows(path: str) -> tuple[Any, Any]:
    """Rows of the file, in memory, and labels."""
    import numpy as np

    x = np.array(np.load(path, mmap_mode="r")[: IN_MEMORY_BYTES // ROW_BYTES])
    return x, np.zeros(len(x), np.float32)


def make_model() -> Any:
    """Compiled, and not yet traced."""
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.Input((LENGTH, FEATURES)), keras.layers.LSTM(128), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    return model


def warm_up(model: Any, batches: Any) -> None:
    """Some steps on zeros that TensorFlow takes for such batches, so that none of these is read yet."""
    import numpy as np
    import tensorflow as tf

    zeros = np.zeros((BATCH_SIZE, LENGTH, FEATURES), np.float32), np.zeros(BATCH_SIZE, np.float32)
    alike = tf.data.Dataset.from_generator(lambda: [zeros] * NUM_WARM, output_signature=batches.element_spec)
    model.fit(alike, shuffle=False, verbose=0)


def trained(run: Callable[[], Any], num_rows: int) -> dict[str, Any]:
    """How fast a pass was, what it took of the processor and what it held at most above the start."""
    start_bytes = resident_bytes()
    readings = [start_bytes]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            readings.append(resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    start, processor = time.perf_counter(), time.process_time()
    try:
        run()
    finally:
        seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor
        is_over.set()
        thread.join()
    return {
        "rows_per_second": num_rows / seconds,
        "processor_seconds": processor_seconds / (num_rows / BATCH_SIZE),
        "host_bytes": max(readings) - start_bytes,
        "data_bytes": num_rows * ROW_BYTES,
    }


def resident_bytes() -> int:
    """What the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
