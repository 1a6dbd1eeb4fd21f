"""`memfit.stream`: a `tf.data` set of batches that are read while they are trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from memfit.budgeting.budget import budget as find_budget
from memfit.errors import UsageError
from memfit.streaming.blocks import batches_ahead, block_bytes, window_for
from memfit.streaming.columns import Names
from memfit.streaming.generating_tf import GeneratedRows
from memfit.streaming.opening_tf import How, open_data
from memfit.streaming.rows_tf import Leaf
from memfit.streaming.windows_tf import Windows, make_windows
from memfit.units import format_bytes, parse_bytes

# What stages are called whose Python reads files, so that resuming knows that it gives the same every time.
REPEATABLE: Final = "memfit_stream"


def stream(
    data: Any,
    *,
    batch_size: int | None = 32,
    columns: Names = None,
    labels: Names = None,
    weights: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    stack: bool = False,
    kind: str | None = None,
    shuffle: bool = True,
    seed: int = 0,
    window: str | int | None = None,
    host_budget: str | int | None = None,
    readers: int = 2,
    num_rows: int | None = None,
    tell: Callable[[str], None] | None = print,
) -> tf.data.Dataset:
    """Batches from files or a generator, read while they are used, in a host memory that stays flat.

    Every row is in exactly one batch of an epoch, with its own label. Each epoch has another order; the same
    seed gives the same epochs in every process.

    Args:
        data: `x`, `(x, y)` or `(x, y, weights)`. Each is a file, a list of files or a pattern such as
            `"part-*.npy"`, which are read as one; an array, mapped from a file or in memory; or a dict or
            tuple of these. Files are `.npy`, `.npz`, `.csv`, `.parquet`, `.tfrecord` or text, a row a line.
            Or a function that makes a generator of rows.
        batch_size: Rows of a batch; `None` for single rows.
        columns: The columns of a `.csv`, `.parquet` or `.npz` file that are inputs: one name for the column
            itself, several for a dict; `None` for a dict of all others.
        labels: The column of labels, or several.
        weights: The column of weights.
        dtypes: Types of columns of a CSV file, such as `{"age": "float32", "name": "string"}`.
        stack: Whether input columns are put side by side as one float32 array.
        kind: What files are, if their endings do not tell: `"npy"`, `"csv"`, `"text"` and so on.
        shuffle: Whether each epoch has another order.
        seed: What the order depends on, beside TensorFlow's global seed.
        window: The bytes of rows that are mixed among themselves; two windows are held at once. `None`: 64
            MiB, or a quarter of the host's budget where that is less.
        host_budget: What may be used on the host, as in `memfit.budget`; batches are kept ready up to an
            eighth of it.
        readers: Threads that read at once.
        num_rows: How many rows a generator has, if you know: Keras then shows progress.
        tell: Called with a line on what is read; `None` for silence.

    Returns:
        A `tf.data.Dataset` of batches whose number is known, unless it comes from a generator.

    Raises:
        UsageError: If the data is broken or does not fit together, with the row or line.

    Example:
    ```python
    batches = memfit.stream(("x.npy", "y.npy"), batch_size=64)
    memfit.fit(model, batches, epochs=10)
    ```
    """
    _check_numbers(batch_size=batch_size, readers=readers, num_rows=num_rows)
    host_bytes = find_budget(host=host_budget).host_bytes
    window_bytes = (
        window_for(host_bytes) if window is None else parse_bytes(window, available_bytes=host_bytes)
    )
    if 2 * window_bytes > host_bytes:
        raise UsageError(
            f"two windows of {format_bytes(window_bytes)} are held at once, but the host's budget is "
            f"{format_bytes(host_bytes)}. Pass a smaller window=."
        )
    say = tell or (lambda _: None)
    if callable(data):
        rows = GeneratedRows(data, window_bytes=window_bytes, is_shuffled=shuffle)
        return generated_set(
            rows,
            batch_size=batch_size,
            seed=seed if shuffle else None,
            host_bytes=host_bytes,
            num_rows=num_rows,
        )
    how = How(
        block_bytes=block_bytes(window_bytes),
        kind=kind,
        columns=columns,
        labels=labels,
        weights=weights,
        dtypes=dtypes,
    )
    opened = open_data(data, how)
    windows = make_windows(opened.parts, window_bytes=window_bytes, is_shuffled=shuffle, num_readers=readers)
    say(in_words(windows, window_bytes))
    structure = _stacked(opened.structure, windows.leaves) if stack else opened.structure
    return window_set(
        windows, structure, batch_size=batch_size, seed=seed if shuffle else None, host_bytes=host_bytes
    )


class _Stack(dict[str, int]):
    """Columns that are put side by side."""


def _stacked(structure: Any, leaves: list[Leaf]) -> Any:
    x, *rest = structure if isinstance(structure, tuple) else (structure,)
    if not isinstance(x, dict):
        raise UsageError("stack=True needs several columns of a table. Leave it out, or pass columns=[...].")
    for name, place in x.items():
        if leaves[place].dtype == object or leaves[place].shape:
            raise UsageError(
                f"stack=True cannot put the column {name!r} beside others: it is no single number."
            )
    return (_Stack(x), *rest) if rest else _Stack(x)


def window_set(
    windows: Windows,
    structure: Any,
    *,
    batch_size: int | None,
    seed: int | None,
    host_bytes: int,
    cast: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> tf.data.Dataset:
    """Batches from windows that are read by their number.

    Args:
        windows: What to read.
        structure: Of a batch, with places of leaves for leaves.
        batch_size: Rows of a batch; `None` for single rows.
        seed: Of the order of passes; `None` for the order of the data.
        host_bytes: What may be used on the host.
        cast: Applied to each tensor of a batch.
    """
    leaves = windows.leaves
    types = [*(_type(leaf) for leaf in leaves), tf.int64]

    def read(number: Any, index: Any) -> list[Any]:
        return windows.read(int(number), int(index))

    def of_pass(number: tf.Tensor) -> tf.data.Dataset:
        indices = tf.data.Dataset.range(windows.blocks.num_windows)
        # One is read while another is used: parallel, but one at a time.
        return indices.map(
            lambda index: tuple(tf.numpy_function(read, [number, index], types)),
            num_parallel_calls=1,
            deterministic=True,
        ).flat_map(lambda *arrays: _slices(arrays, leaves, batch_size))

    total_bytes = sum(part.bytes_between(0, windows.num_rows) for part in windows.parts)
    return _finished(
        _numbers(seed).flat_map(of_pass, name=REPEATABLE),
        lambda *tensors: _packed(structure, [cast(tensor) for tensor in tensors]),
        batch_size=batch_size,
        num_rows=windows.num_rows,
        row_bytes=total_bytes / windows.num_rows,
        host_bytes=host_bytes,
    )


def generated_set(
    rows: GeneratedRows, *, batch_size: int | None, seed: int | None, host_bytes: int, num_rows: int | None
) -> tf.data.Dataset:
    """Batches from windows that come one after the other."""
    signature = (
        *(tf.TensorSpec([None, *leaf.shape], _type(leaf)) for leaf in rows.leaves),
        tf.TensorSpec([None], tf.int64),
    )

    def of_pass(number: tf.Tensor) -> tf.data.Dataset:
        windows = tf.data.Dataset.from_generator(rows.windows, args=(number,), output_signature=signature)
        return windows.prefetch(1).flat_map(lambda *arrays: _slices(arrays, rows.leaves, batch_size))

    return _finished(
        _numbers(seed).flat_map(of_pass),
        lambda *tensors: tf.nest.pack_sequence_as(rows.structure, tensors),
        batch_size=batch_size,
        num_rows=num_rows,
        row_bytes=rows.row_bytes,
        host_bytes=host_bytes,
    )


def in_words(windows: Windows, window_bytes: int) -> str:
    """A line on what will be read."""
    total = sum(part.bytes_between(0, windows.num_rows) for part in windows.parts)
    blocks = windows.blocks
    line = (
        f"memfit: {windows.num_rows:,} rows, {format_bytes(total)}, in {blocks.num_windows:,} windows of "
        f"{min(blocks.per_window, blocks.num_blocks):,} blocks of up to {format_bytes(blocks.largest_bytes)}"
    )
    if blocks.largest_bytes > window_bytes:
        asked = format_bytes(window_bytes)
        line += f". A block is larger than the window of {asked}, so it is a window of its own"
    return line + "."


def _numbers(seed: int | None) -> tf.data.Dataset:
    """One number a pass, by the seed."""
    if seed is None:
        return tf.data.Dataset.from_tensors(np.int64(0))
    return tf.data.Dataset.random(seed=seed + 1, rerandomize_each_iteration=True).take(1)


def _slices(arrays: Any, leaves: list[Leaf], batch_size: int | None) -> tf.data.Dataset:
    """A window in pieces of a batch, or of all that there is where single rows are asked for."""
    *window, order = arrays
    order = tf.ensure_shape(order, [None])
    shaped = [tf.ensure_shape(array, [None, *leaf.shape]) for array, leaf in zip(window, leaves, strict=True)]
    size = tf.constant(batch_size or 256, tf.int64)
    num = -(-tf.size(order, out_type=tf.int64) // size)

    def piece(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        chosen = order[index * size : (index + 1) * size]
        return tuple(tf.gather(array, chosen) for array in shaped)

    return tf.data.Dataset.range(num).map(piece)


def _finished(
    pieces: tf.data.Dataset,
    pack: Callable[..., Any],
    *,
    batch_size: int | None,
    num_rows: int | None,
    row_bytes: float,
    host_bytes: int,
) -> tf.data.Dataset:
    batches = pieces.unbatch() if batch_size is None else pieces.rebatch(batch_size)
    packed = batches.map(pack)
    if num_rows is not None:
        total = num_rows if batch_size is None else -(-num_rows // batch_size)
        packed = packed.apply(tf.data.experimental.assert_cardinality(total))
    return packed.prefetch(batches_ahead(host_bytes, row_bytes * (batch_size or 1)))


def _packed(structure: Any, tensors: list[tf.Tensor]) -> Any:
    if isinstance(structure, _Stack):
        columns = [tf.cast(tensors[place], tf.float32) for place in structure.values()]
        return tf.stack(columns, axis=-1)
    if isinstance(structure, dict):
        return {name: _packed(each, tensors) for name, each in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_packed(each, tensors) for each in structure)
    return tensors[structure]


def _type(leaf: Leaf) -> tf.DType:
    return tf.string if leaf.dtype == object else tf.as_dtype(leaf.dtype)


def _check_numbers(**numbers: Any) -> None:
    for name, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"{name} must be a whole number of at least 1. Received: {value!r}.")
