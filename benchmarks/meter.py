"""What the true meter costs, how exact it is, and what a spare thread does under a limit.

    make bench TARGET=meter                     all tables
    make bench TARGET="meter waiting"           one: training, starting, accuracy or waiting

Times are the minimum of interleaved repeats in processes of their own, since machines are shared; each
ratio compares two things measured in the same run. Waiting: training steps of two GRU(192) under limits that
are little above their usual peak, in fresh processes, two for each core at once, since what fails waits most
of the time; with as many threads for ops as cores, which is what TensorFlow has, and with some more, as
memfit gives it under a limit; how many of those runs failed, and what a step takes alone, with room enough.
"""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import memfit
from benchmarks.estimate import SKIPPED_STEPS, keeps_cap, take_steps
from memfit.budgeting import allocator, machine
from memfit.units import MIB, format_bytes, format_seconds

NUM_REPEATS = 5
WAITING, NUM_RUNS, LIMITS = ("gru-2", 64), 6, (1.03, 1.1)
ALONE = """
import memfit
from benchmarks.meter import hold
hold({num_mib}, {num_tensors})
print(memfit.read_memory().devices[0].peak_bytes)
"""


def train_lstm() -> float:
    """Seconds of the fastest of several training steps of an LSTM: many small tensors."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((100, 32)), keras.layers.LSTM(128), keras.layers.Dense(1)])
    return _seconds_a_step(model, np.zeros((32, 100, 32), "float32"), np.zeros((32, 1), "float32"))


def train_convolutions() -> float:
    """The same for a small convolutional network: a few large tensors."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    blocks = [keras.layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(4)]
    model = keras.Sequential(
        [keras.Input((48, 48, 3)), *blocks, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    )
    return _seconds_a_step(model, np.zeros((32, 48, 48, 3), "float32"), np.zeros((32, 1), "float32"))


def read_many_times() -> list[float]:
    """Seconds of one full reading, and of the devices' figures alone."""
    import tensorflow as tf

    from memfit.measuring import device_tf

    tf.ones([3])
    memfit.read_memory()
    return [timeit.timeit(call, number=200) / 200 for call in (memfit.read_memory, device_tf.read_figures)]


def hold(num_mib: int, num_tensors: int) -> None:
    """Holds tensors of known size."""
    import tensorflow as tf

    held = [tf.ones([num_mib * MIB // num_tensors // 4]) for _ in range(num_tensors)]
    assert held


def main(names: Sequence[str] = ()) -> None:
    """Prints the tables named, or all."""
    tables = {"training": _training, "starting": _starting, "accuracy": _accuracy, "waiting": _waiting}
    unknown = [name for name in names if name not in tables]
    if unknown:
        raise SystemExit(f"there is no table {unknown[0]!r}. Choose from: {', '.join(tables)}.")
    for name in names or tables:
        Console().print(tables[name]())


def _training() -> Table:
    table = Table("training step", "default allocator", "true meter", "ratio")
    table.title = f"minimum of {NUM_REPEATS}, interleaved"
    for name, target in {"LSTM(128), T=100": train_lstm, "4 x Conv2D(32)": train_convolutions}.items():
        default, metered = _interleaved(target)
        table.add_row(name, format_seconds(default), format_seconds(metered), f"{metered / default:.2f}")
    return table


def _interleaved(target: Callable[[], float]) -> tuple[float, float]:
    times: dict[str, list[float]] = {"default": [], "bfc": []}
    for _ in range(NUM_REPEATS):
        for choice, seconds in times.items():
            seconds.append(memfit.measure(target, environment=_allocator(choice)).value)
    return min(times["default"]), min(times["bfc"])


def _allocator(choice: str) -> dict[str, str]:
    """The environment of a child; this process has already asked for the true meter, for itself."""
    return {allocator.CHOICE: choice, allocator.USE_BFC: "true" if choice == "bfc" else "false"}


def _starting() -> Table:
    table = Table("what", "time", title=f"minimum of {NUM_REPEATS}")
    for name, words in {
        'python -c ""': ("-c", ""),
        'python -c "import memfit"': ("-c", "import memfit"),
        "memfit --help": ("-m", "memfit", "--help"),
        'python -c "import tensorflow"': ("-c", "import tensorflow"),
    }.items():
        seconds = timeit.repeat(lambda words=words: _python(words), number=1, repeat=NUM_REPEATS)  # type: ignore[misc]
        table.add_row(name, format_seconds(min(seconds)))
    full, figures = memfit.measure(read_many_times).value
    table.add_row("memfit.read_memory()", f"{full * 1e6:.0f} µs")
    table.add_row("  of which the devices' figures", f"{figures * 1e6:.1f} µs")
    return table


def _python(words: tuple[str, ...]) -> bytes:
    return subprocess.run((sys.executable, *words), check=True, capture_output=True).stdout


def _accuracy() -> Table:
    table = Table("tensors held", "limit 2 GiB", "error", "no limit", "error", "import memfit alone", "error")
    table.title = "the meter's peak"
    for num_mib, num_tensors in ((50, 1), (50, 1000), (150, 1), (150, 3), (300, 100), (1500, 5)):
        peaks = [
            memfit.measure(hold, num_mib, num_tensors, device_limit="2GiB").peak_bytes,
            memfit.measure(hold, num_mib, num_tensors).peak_bytes,
            int(_python(("-c", ALONE.format(num_mib=num_mib, num_tensors=num_tensors)))),
        ]
        cells = [(format_bytes(peak or 0), f"{(peak or 0) / (num_mib * MIB) - 1:+.1%}") for peak in peaks]
        table.add_row(f"{num_mib} MiB in {num_tensors}", *chain.from_iterable(cells))
    return table


def _waiting() -> Table:
    num_cores = machine.num_cores()
    ways = {num: {allocator.THREADS: str(num)} for num in (num_cores, num_cores + allocator.SPARE_THREADS)}
    free: dict[int, list[dict[str, Any]]] = {num: [] for num in ways}
    for _ in range(NUM_REPEATS):
        for num, threads in ways.items():
            found = memfit.measure(take_steps, *WAITING, device_limit="3GiB", environment=threads)
            free[num].append(found.value)
    usual = median(chain.from_iterable(each["peaks"][SKIPPED_STEPS:] for each in free[num_cores]))
    limits = [int(share * usual) for share in LIMITS]
    table = Table("threads", "a step", *(f"failed at {format_bytes(limit)}" for limit in limits))
    table.title = f"2 x GRU(192), batch {WAITING[1]}, usual peak {format_bytes(int(usual))}"
    with ThreadPoolExecutor(2 * num_cores) as pool:
        for num, threads in ways.items():
            kept = [
                list(pool.map(keeps_cap, *([each] * NUM_RUNS for each in (*WAITING, limit, threads))))
                for limit in limits
            ]
            seconds = min(each["seconds"] for each in free[num])
            counts = (f"{each.count(False)} of {NUM_RUNS}" for each in kept)
            table.add_row(str(num), format_seconds(seconds), *counts)
    return table


def _seconds_a_step(model: Any, x: Any, y: Any) -> float:
    model.compile("adam", "mse")
    model.train_on_batch(x, y)
    return min(timeit.repeat(lambda: model.train_on_batch(x, y), number=1, repeat=20))
