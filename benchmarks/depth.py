"""Depth checkpointing against plain Keras: bytes and seconds of a training step as `fit` runs it.

    make bench TARGET=depth                     the table
    make bench TARGET="depth resnet"            one row
    make bench TARGET="depth curve"             limits of 90, 72, 54 and 36 %, and the least

Activation bytes are the peak of a step less what is alive between steps, from the allocator, the median of
several steps, each row in a fresh process. Seconds are the least of several steps, plain and checkpointed in
turn in one process, so that whatever else the machine does hits both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import memfit

MEBIBYTE = 2**20
NUM_REPEATS = 5
PLAIN, LEAST = "plain", "least"
CURVE = ("90%", "72%", "54%", "36%", LEAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One row of the table.

    Args:
        name: What the command line takes, a key of `MODELS`.
        title: What the table says.
        limit: As in `checkpoint_depth`.
        bytes_target: Per cent of plain Keras's activation bytes to stay within.
        seconds_target: Times plain Keras's seconds to stay within.
    """

    name: str
    title: str
    limit: str
    bytes_target: float
    seconds_target: float = 1.35


WORKS = (
    Work(name="dense", title="24 x Dense(1024, gelu), batch 1024", limit="23%", bytes_target=25),
    Work(name="encoder", title="Transformer encoder, 8 blocks, batch 16", limit="30%", bytes_target=35),
    Work(name="resnet", title="ResNet50, 96 x 96, batch 16", limit="34%", bytes_target=50),
    Work(name="mobilenet", title="MobileNetV3Small, 96 x 96, batch 32", limit="36%", bytes_target=50),
)


def make_dense() -> tuple[Any, tuple[int, ...]]:
    """24 layers of 1,024 units."""
    import keras

    body = [keras.layers.Dense(1024, activation="gelu") for _ in range(24)]
    return keras.Sequential([keras.Input((1024,)), *body, keras.layers.Dense(10)]), (1024, 1024)


def make_encoder() -> tuple[Any, tuple[int, ...]]:
    """A Transformer encoder of 8 blocks, width 256, 8 heads, inner width 1,024, with dropout."""
    import keras
    from keras import layers

    values = inputs = keras.Input((256, 256))
    for _ in range(8):
        normal = layers.LayerNormalization()(values)
        attended = layers.MultiHeadAttention(8, 32, dropout=0.1)(normal, normal)
        values = layers.Add()([values, attended])
        inner = layers.Dense(1024, activation="gelu")(layers.LayerNormalization()(values))
        values = layers.Add()([values, layers.Dropout(0.1)(layers.Dense(256)(inner))])
    outputs = layers.Dense(10)(layers.GlobalAveragePooling1D()(values))
    return keras.Model(inputs, outputs), (16, 256, 256)


def make_resnet() -> tuple[Any, tuple[int, ...]]:
    """Keras's ResNet50."""
    import keras

    options = {"weights": None, "input_shape": (96, 96, 3), "classes": 10, "classifier_activation": None}
    return keras.applications.ResNet50(**options), (16, 96, 96, 3)


def make_mobilenet() -> tuple[Any, tuple[int, ...]]:
    """Keras's MobileNetV3Small."""
    import keras

    options = {"weights": None, "input_shape": (96, 96, 3), "classes": 10, "classifier_activation": None}
    return keras.applications.MobileNetV3Small(**options), (32, 96, 96, 3)


MODELS: dict[str, Callable[[], tuple[Any, tuple[int, ...]]]] = {
    "dense": make_dense,
    "encoder": make_encoder,
    "mobilenet": make_mobilenet,
    "resnet": make_resnet,
}


def make_step(name: str, limit: str) -> Callable[[], float]:
    """A function that trains one step on a fixed batch, as Keras's `fit` does, and returns the loss."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model, shape = MODELS[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss)
    if limit != PLAIN:
        memfit.checkpoint_depth(model, limit)
    inputs, labels = tf.random.normal(shape, seed=1), tf.range(shape[0]) % 10
    return lambda: float(model.train_on_batch(inputs, labels))


def measure_bytes(name: str, limit: str) -> dict[str, float]:
    """The activation bytes of a step, in this (fresh) process."""
    import tensorflow as tf

    step = make_step(name, limit)
    losses = [step(), step()]
    peaks = []
    for _ in range(NUM_REPEATS):
        between = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        step()
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"] - between)
    return {"bytes": sorted(peaks)[len(peaks) // 2], "most_bytes": max(peaks), "loss": losses[1]}


def measure_seconds(name: str, limits: Sequence[str]) -> dict[str, float]:
    """The least seconds of a step, all limits in turn."""
    steps = {limit: make_step(name, limit) for limit in limits}
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {limit: [] for limit in steps}
    for _ in range(NUM_REPEATS):
        for limit, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[limit].append(time.perf_counter() - start)
    return {limit: min(found) for limit, found in seconds.items()}


def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fresh process."""
    measured = memfit.measure(function, *arguments, timeout_seconds=1800)
    if measured.outcome is not memfit.Outcome.OK:
        raise SystemExit(f"{function.__name__}{arguments}: {measured.reason}\n{measured.output}")
    return measured.value


def show(work: Work) -> bool:
    """Measures and prints one row; whether it meets its targets."""
    plain, found = fresh(measure_bytes, work.name, PLAIN), fresh(measure_bytes, work.name, work.limit)
    seconds = fresh(measure_seconds, work.name, [PLAIN, work.limit])
    share = 100 * found["bytes"] / plain["bytes"]
    ratio = seconds[work.limit] / seconds[PLAIN]
    is_met: bool = share <= work.bytes_target and ratio <= work.seconds_target
    print(
        f"{work.title:42} {work.limit:>6} {plain['bytes'] / MEBIBYTE:8.1f} {found['bytes'] / MEBIBYTE:8.1f} "
        f"{share:5.1f} % (<= {work.bytes_target:g}) {seconds[PLAIN]:7.3f} {seconds[work.limit]:7.3f} "
        f"{ratio:5.2f}x (<= {work.seconds_target:g}) {'met' if is_met else 'NOT MET'}"
        f"   losses {plain['loss']:.6f} {found['loss']:.6f}",
        flush=True,
    )
    return is_met


def show_curve(work: Work) -> None:
    """Measures and prints what each limit of the curve gives."""
    plain = fresh(measure_bytes, work.name, PLAIN)["bytes"]
    seconds = fresh(measure_seconds, work.name, [PLAIN, *CURVE])
    cells = []
    for limit in CURVE:
        share = 100 * fresh(measure_bytes, work.name, limit)["bytes"] / plain
        cells.append(f"{limit:>5}: {share:5.1f} % {seconds[limit] / seconds[PLAIN]:5.2f}x")
    print(f"{work.title:42} {' | '.join(cells)}", flush=True)


def main(names: Sequence[str] = ()) -> None:
    """Prints the rows named, or all; with "curve", the curve of those instead."""
    rows = [work for work in WORKS if work.name in names] if set(names) - {"curve"} else WORKS
    print("a training step as in fit, Adam, float32; activation MiB, and seconds, plain Keras and memfit")
    if "curve" in names:
        for work in rows:
            show_curve(work)
        return
    met = [show(work) for work in rows]
    print(f"{sum(met)} of {len(met)} rows meet both targets")
