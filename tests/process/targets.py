"""Functions that tests run in fresh processes. TensorFlow is imported inside, as a trial's child would."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_value_error() -> None:
    raise ValueError("no such optimizer")


def fill(num_mib: int) -> float:
    import tensorflow as tf

    return float(tf.reduce_max(tf.ones([num_mib * 2**20 // 4])))


def wait_for_memory(num_waiting: int) -> float:
    """As many ops wait for memory as are said, and one that would give some back comes after them."""
    import tensorflow as tf

    @tf.function
    def step(large: tf.Tensor, small: tf.Tensor) -> tf.Tensor:
        held = tf.fill([large], 1.0)
        with tf.control_dependencies([held]):
            waiting = [tf.reduce_sum(tf.fill([small + number], 1.0)) for number in range(num_waiting)]
            return tf.add_n([*waiting, tf.reduce_sum(held)])

    return float(step(tf.constant(40 * 2**20 // 4), tf.constant(30 * 2**20 // 4)))


def print_a_megabyte() -> str:
    sys.stdout.write("x" * 2**20)
    sys.stderr.write("y" * 2**20 + "the end")
    return "done"


def hang_with_a_daemon(pid_file: str) -> None:
    """Also leaves its session, as daemons do."""
    daemon = subprocess.Popen(("sleep", "600"), start_new_session=True)
    Path(pid_file).write_text(str(daemon.pid))
    threading.Event().wait()


def leave_a_daemon(pid_file: str) -> None:
    daemon = subprocess.Popen(("sleep", "600"), start_new_session=True)
    Path(pid_file).write_text(str(daemon.pid))


def train_dense_network() -> None:
    """Runs out of memory inside a oneDNN matrix product, in most cases as a segmentation fault."""
    import keras
    import numpy as np

    layers = [keras.layers.Dense(1024, "relu") for _ in range(8)]
    model = keras.Sequential([keras.Input((1024,)), *layers])
    model.compile("adam", "mse")
    x = np.ones((2048, 1024), "float32")
    model.fit(x, x, batch_size=2048, verbose=0)


def crash() -> None:
    """A segmentation fault that has nothing to do with memory running out."""
    import ctypes

    ctypes.string_at(0)


def fill_the_disk() -> None:
    """TensorFlow calls this ResourceExhaustedError, too."""
    import tensorflow as tf

    tf.io.write_file("/dev/full", "x" * 100)


def use_host_memory() -> None:
    held = []
    while True:
        held.append(os.urandom(10_000_000))
        time.sleep(0.01)


def raise_memory_error() -> None:
    bytearray(2**62)


def return_an_object() -> Any:
    return object()


def survive_an_oom() -> str:
    import tensorflow as tf

    try:
        tf.ones([200 * 2**20 // 4])
    except tf.errors.ResourceExhaustedError:
        return "survived"
    return "it fitted"


def reset_the_meter() -> int:
    """Holds 40 MiB for a while, then makes TensorFlow forget it."""
    import tensorflow as tf

    tensor = tf.ones([40 * 2**20 // 4])
    time.sleep(0.5)
    del tensor
    tf.config.experimental.reset_memory_stats("CPU:0")
    return int(tf.config.experimental.get_memory_info("CPU:0")["peak"])


def train_by_compiled_segments(units: int, length: int) -> str:
    """One step of an LSTM whose loops are compiled; what it raised."""
    import keras
    import tensorflow as tf

    import memfit

    layer = keras.layers.LSTM(units)
    memfit.checkpoint_time(layer, segment=length // 2)

    @tf.function
    def step(data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(data))
        return tape.gradient(loss, layer.trainable_variables)

    try:
        step(tf.zeros((32, length, 4)))
    except tf.errors.OpError as error:
        return type(error).__name__
    return "trained"


def build_and_drop_models(number: int) -> list[int]:
    """Resident bytes after each of many equal models, trained by compiled segments and dropped."""
    import gc

    import keras
    import numpy as np
    import psutil

    import memfit

    sizes = []
    for _ in range(number):
        model = keras.Sequential(
            [keras.Input((64, 4)), keras.layers.LSTM(128), keras.layers.Dense(1, activation="linear")]
        )
        memfit.checkpoint_time(model, segment=16)
        model.compile("sgd", "mse")
        model.predict(np.zeros((4, 64, 4), "float32"), verbose=0)
        del model
        keras.utils.clear_session()
        gc.collect()
        sizes.append(psutil.Process().memory_info().rss)
    return sizes
