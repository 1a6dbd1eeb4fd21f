"""Time segments against plain Keras: bytes and seconds of a training step.

    make bench TARGET=rnn                       the whole table
    make bench TARGET="rnn lstm-1000"           one row
    make bench TARGET="rnn longest"             also the longest sequence that trains in 256 MiB (minutes)

Activation bytes are the peak of a step less what is alive between steps, from the allocator, each in a fresh
process. Seconds are the least of several steps, plain and segmented in turn in one process, so that whatever
else the machine does hits both. Where PyTorch is installed, its step time for the same work is printed too.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import memfit

MEBIBYTE = 2**20
NUM_REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One row of the table.

    Args:
        name: What `--only` takes.
        title: What the table says.
        kind: Which model, a key of `MODELS`.
        length: Time steps.
        bytes_target: Per cent of plain Keras's activation bytes to stay within.
        seconds_target: Times plain Keras's seconds to stay within.
        segment: As in `checkpoint_time`.
        torch_kind: The class in `torch.nn`, or `None`.
    """

    name: str
    title: str
    kind: str
    length: int
    bytes_target: float
    seconds_target: float
    segment: int | None = None
    torch_kind: str | None = None


WORKS = (
    Work(
        name="lstm-400",
        title="2 x LSTM(256) T=400",
        kind="LSTM",
        length=400,
        bytes_target=12,
        seconds_target=0.75,
        torch_kind="LSTM",
    ),
    Work(
        name="lstm-1000",
        title="2 x LSTM(256) T=1000",
        kind="LSTM",
        length=1000,
        bytes_target=6.5,
        seconds_target=0.7,
        torch_kind="LSTM",
    ),
    Work(
        name="lstm-4000",
        title="2 x LSTM(256) T=4000",
        kind="LSTM",
        length=4000,
        bytes_target=3,
        seconds_target=0.75,
    ),
    Work(
        name="lstm-kept",
        title="2 x LSTM(256) T=1000, all kept",
        kind="LSTM",
        length=1000,
        segment=1000,
        bytes_target=100,
        seconds_target=0.55,
    ),
    Work(
        name="gru-1000",
        title="2 x GRU(256) T=1000",
        kind="GRU",
        length=1000,
        bytes_target=8,
        seconds_target=0.8,
        torch_kind="GRU",
    ),
    Work(
        name="simple-1000",
        title="2 x SimpleRNN(256) T=1000",
        kind="SimpleRNN",
        length=1000,
        bytes_target=12,
        seconds_target=1.0,
        torch_kind="RNN",
    ),
    Work(
        name="small-1000",
        title="LSTM(64) T=1000",
        kind="small",
        length=1000,
        bytes_target=12,
        seconds_target=0.9,
    ),
    Work(
        name="bidirectional-1000",
        title="Bidirectional LSTM(128) T=1000",
        kind="bidirectional",
        length=1000,
        bytes_target=15,
        seconds_target=0.85,
    ),
    Work(
        name="embedding-2000",
        title="Embedding + 2 x LSTM(256) + Dense T=2000",
        kind="embedding",
        length=2000,
        bytes_target=4,
        seconds_target=0.75,
    ),
    Work(
        name="custom-1000",
        title="a custom cell (general path) T=1000",
        kind="custom",
        length=1000,
        bytes_target=15,
        seconds_target=1.6,
    ),
)

BATCH, FEATURES, UNITS, CLASSES, WORDS = 32, 64, 256, 10, 20_000


def make_model(kind: str, length: int) -> Any:
    """The Keras model of a row."""
    import keras
    from keras import layers

    class MinimalCell(keras.layers.Layer):
        """The example cell of Keras's documentation, with a gate."""

        def __init__(self, units: int) -> None:
            super().__init__()
            self.state_size = self.output_size = units
            self.mix = layers.Dense(2 * units)

        def build(self, input_shape: Any) -> None:
            self.mix.build((None, input_shape[-1] + self.state_size))
            self.built = True

        def call(self, inputs: Any, states: Any) -> Any:
            gate, value = keras.ops.split(self.mix(keras.ops.concatenate([inputs, states[0]], -1)), 2, -1)
            gate = keras.ops.sigmoid(gate)
            h = gate * states[0] + (1 - gate) * keras.ops.tanh(value)
            return h, [h]

    start: list[Any] = [
        layers.Input((length,), dtype="int32") if kind == "embedding" else layers.Input((length, FEATURES))
    ]
    if kind == "embedding":
        body = [layers.Embedding(WORDS, 128), layers.LSTM(UNITS, return_sequences=True), layers.LSTM(UNITS)]
    elif kind == "small":
        body = [layers.LSTM(64)]
    elif kind == "bidirectional":
        body = [layers.Bidirectional(layers.LSTM(128))]
    elif kind == "custom":
        body = [layers.RNN(MinimalCell(UNITS))]
    else:
        layer = getattr(layers, kind)
        body = [layer(UNITS, return_sequences=True), layer(UNITS)]
    return keras.Sequential([*start, *body, layers.Dense(CLASSES)])


def make_step(work: Work, *, is_segmented: bool, length: int | None = None) -> Callable[[], float]:
    """A function that trains one step on a fixed batch and returns the loss."""
    import keras
    import tensorflow as tf

    from memfit.rnn.model_tf import checkpoint_time

    length = length or work.length
    keras.utils.set_random_seed(0)
    model = make_model(work.kind, length)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if is_segmented:
        checkpoint_time(model, work.segment)
    labels = tf.range(BATCH) % CLASSES
    if work.kind == "embedding":
        inputs = tf.random.uniform((BATCH, length), maxval=WORDS, dtype=tf.int32, seed=1)
    else:
        inputs = tf.random.normal((BATCH, length, FEATURES), seed=1)

    @tf.function
    def step(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(inputs, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return lambda: float(step(inputs, labels))


def measure_bytes(work: Work, *, is_segmented: bool, length: int | None = None) -> dict[str, Any]:
    """The activation bytes of a step, in this (fresh) process."""
    import tensorflow as tf

    step = make_step(work, is_segmented=is_segmented, length=length)
    step()
    step()
    peaks = []
    for _ in range(3 if length is None else 1):
        between = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        loss = step()
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    peaks.sort()
    middle = peaks[len(peaks) // 2]
    return {"activation_bytes": middle - between, "peak_bytes": middle, "loss": loss}


def measure_seconds(work: Work, repeats: int) -> dict[str, float]:
    """The least seconds of a step, plain and segmented in turn."""
    steps = {"plain": make_step(work, is_segmented=False), "segmented": make_step(work, is_segmented=True)}
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in seconds.items()}


def measure_torch(work: Work, repeats: int) -> float:
    """The least seconds of PyTorch's step for the same work."""
    import torch

    torch.manual_seed(0)
    body = getattr(torch.nn, str(work.torch_kind))(FEATURES, UNITS, num_layers=2, batch_first=True)
    head = torch.nn.Linear(UNITS, CLASSES)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()])
    inputs, labels = torch.randn(BATCH, work.length, FEATURES), torch.arange(BATCH) % CLASSES
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(body(inputs)[0][:, -1]), labels).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def measure_machine() -> float:
    """Billions of operations a second of a large matrix product."""
    import tensorflow as tf

    left = tf.random.normal((2048, 2048))
    product = tf.function(lambda: tf.matmul(left, left)[0, 0])
    product()
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(seconds) / 1e9


def fresh(*arguments: str) -> Any:
    """What `child` measures, in a fresh process."""
    measured = memfit.measure(child, list(arguments), timeout_seconds=1800)
    if measured.outcome is not memfit.Outcome.OK:
        raise SystemExit(f"{' '.join(arguments)}: {measured.reason}\n{measured.output}")
    return measured.value


def child(arguments: list[str]) -> Any:
    """What a fresh process measures."""
    what, *rest = arguments
    if what == "machine":
        return measure_machine()
    work = next(each for each in WORKS if each.name == rest[0])
    if what == "seconds":
        return measure_seconds(work, int(rest[1]))
    if what == "torch":
        return measure_torch(work, int(rest[1]))
    length = int(rest[1]) if len(rest) > 1 else None
    return measure_bytes(work, is_segmented=what == "segmented", length=length)


def longest(what: str, limit_bytes: int = 256 * MEBIBYTE) -> int:
    """The longest sequence, to within 5 %, whose step of 2 x LSTM(256) peaks within the limit.

    Bytes grow nearly in proportion to the length, so the next guess is on the line through the last two.
    """

    def peak(length: int) -> int:
        return int(fresh(what, "lstm-1000", str(length))["peak_bytes"])

    fits, low_bytes, high = 200, peak(200), 400
    while True:
        high_bytes = peak(high)
        if 0.95 * limit_bytes <= high_bytes <= limit_bytes:
            return high
        slope = (high_bytes - low_bytes) / (high - fits)
        guess = int(fits + (0.98 * limit_bytes - low_bytes) / slope)
        if high_bytes <= limit_bytes:
            fits, low_bytes = high, high_bytes
        high = guess


def show(work: Work, repeats: int) -> bool:
    """Measures and prints one row; whether it meets its targets."""
    plain, segmented = fresh("plain", work.name), fresh("segmented", work.name)
    seconds = fresh("seconds", work.name, str(repeats))
    share = 100 * segmented["activation_bytes"] / plain["activation_bytes"]
    ratio = seconds["segmented"] / seconds["plain"]
    has_torch = work.torch_kind and importlib.util.find_spec("torch")
    torch_text = f"{fresh('torch', work.name, str(repeats)):6.2f} s" if has_torch else "       -"
    is_met: bool = share <= work.bytes_target and ratio <= work.seconds_target
    mebibytes = [found["activation_bytes"] / MEBIBYTE for found in (plain, segmented)]
    print(
        f"{work.title:42} {mebibytes[0]:7.1f} {mebibytes[1]:7.1f} "
        f"{share:5.1f} % (<= {work.bytes_target:g}) {seconds['plain']:6.2f} {seconds['segmented']:6.2f} "
        f"{ratio:5.2f}x (<= {work.seconds_target:g}) {torch_text} {'met' if is_met else 'NOT MET'}",
        flush=True,
    )
    return is_met


def main(names: Sequence[str] = ()) -> None:
    """Prints the rows named, or all; "longest" also searches the longest sequence in 256 MiB."""
    print(
        f"{fresh('machine'):.0f} GFLOP/s in a product of 2048 x 2048 matrices; batch {BATCH}, Adam, float32"
    )
    print(f"{'':42} {'plain':>7} {'memfit':>7} MiB {'':17} {'plain':>6} {'memfit':>6} s {'':13} PyTorch")
    rows = [work for work in WORKS if work.name in names] if set(names) - {"longest"} else WORKS
    met = [show(work, NUM_REPEATS) for work in rows]
    print(f"{sum(met)} of {len(met)} rows meet both targets")
    if "longest" in names:
        print(
            f"longest in 256 MiB: plain Keras {longest('plain')} steps, memfit {longest('segmented')} steps"
        )
