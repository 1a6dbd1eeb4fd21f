"""`memfit.stream`: every row once an epoch with its own label, from all sources, and what is refused."""

import csv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memfit
from memfit.records import Outcome
from memfit.streaming.npy_tf import mapped_rows
from memfit.streaming.rows_tf import FileRows
from tests.contract.streaming import targets

NUM_ROWS = 1000


def numbered(num: int = NUM_ROWS) -> tuple[Any, Any]:
    """Rows whose every value tells their number, and labels that do."""
    x = np.arange(num, dtype=np.float32)[:, None] + np.zeros((num, 3), np.float32)
    return x, np.arange(num, dtype=np.int64)


def stream(data: Any, **options: Any) -> tf.data.Dataset:
    return memfit.stream(data, **{"tell": None, "window": "32KiB", "batch_size": 7, **options})


def labels_of(batches: tf.data.Dataset, sizes: list[int] | None = None) -> list[int]:
    """All labels, each compared with its row; the sizes of batches are appended to `sizes`."""
    found: list[int] = []
    for x, y in batches:
        first = x if x.shape.rank == 1 else x[:, 0]
        if first.dtype == tf.string:
            first = tf.strings.to_number(first)
        np.testing.assert_array_equal(tf.cast(first, tf.int64), tf.cast(y, tf.int64))
        found += y.numpy().astype(int).tolist()
        if sizes is not None:
            sizes.append(len(y))
    return found


@settings(max_examples=16, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_rows=st.integers(1, 400),
    batch_size=st.integers(1, 70),
    window=st.integers(40, 20_000),
    readers=st.integers(1, 5),
    num_files=st.integers(1, 3),
    seed=st.none() | st.integers(0, 9),
)
def test_every_row_is_seen_once_with_its_own_label(
    tmp_path: Path,
    num_rows: int,
    batch_size: int,
    window: int,
    readers: int,
    num_files: int,
    seed: int | None,
) -> None:
    x, y = numbered(num_rows)
    for place, part in enumerate(np.array_split(x, num_files)):
        np.save(tmp_path / f"{place}.npy", part)
    files = [tmp_path / f"{place}.npy" for place in range(num_files)]
    batches = memfit.stream(
        (files, y),
        batch_size=batch_size,
        window=window,
        readers=readers,
        shuffle=seed is not None,
        seed=seed or 0,
        tell=None,
    )
    sizes: list[int] = []
    found = labels_of(batches, sizes)
    assert sorted(found) == list(range(num_rows))
    assert len(batches) == len(sizes) == -(-num_rows // batch_size)
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    if seed is None:
        assert found == list(range(num_rows))


def write_text(folder: Path, num: int) -> Any:
    (folder / "x.txt").write_bytes(b"\n".join(str(each).encode() for each in range(num)))  # No end of line.
    np.save(folder / "y.npy", np.arange(num))
    return (folder / "x.txt", folder / "y.npy"), {}


def write_csv(folder: Path, num: int) -> Any:
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["value", "said", "label"])
        for each in range(num):
            writer.writerow([each, f'line one,\nline "{each}"', each])
            if each % 50 == 0:
                file.write("\r\n")
    return folder / "t.csv", {"columns": "value", "labels": "label"}


def write_npz(folder: Path, num: int) -> Any:
    x, y = numbered(num)
    np.savez(folder / "t.npz", x=x.astype(">f8"), y=y)
    return folder / "t.npz", {"columns": "x", "labels": "y"}


def write_records(folder: Path, num: int) -> Any:
    for part in range(2):
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrecord")) as writer:
            for each in range(part * num // 2, (part + 1) * num // 2):
                writer.write(str(each).encode())
    return (str(folder / "*.tfrecord"), np.arange(num)), {}


def write_parquet(folder: Path, num: int) -> Any:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table({"x": [[float(each)] * 2 for each in range(num)], "y": list(range(num))})
    parquet.write_table(table, folder / "t.parquet", row_group_size=90)
    return folder / "t.parquet", {"columns": "x", "labels": "y"}


def write_mapped(folder: Path, num: int) -> Any:
    x, y = numbered(num + 10)
    np.save(folder / "x.npy", x - 10)
    return (np.load(folder / "x.npy", mmap_mode="r")[10:], y[:num]), {}


def generate(folder: Path, num: int) -> Any:
    return lambda: ((np.full(3, each, np.float32), each) for each in range(num)), {"num_rows": num}


SOURCES: list[Callable[[Path, int], Any]] = [
    write_text,
    write_csv,
    write_npz,
    write_records,
    write_parquet,
    write_mapped,
    generate,
]


@pytest.mark.parametrize("write", SOURCES)
def test_all_sources_give_each_row_once_in_another_order_each_epoch(
    write: Callable[[Path, int], Any], tmp_path: Path
) -> None:
    data, options = write(tmp_path, NUM_ROWS)
    options = {"batch_size": 29, **options}
    batches = stream(data, window="24KiB", **options)
    assert len(batches) == -(-NUM_ROWS // 29)
    first, second = labels_of(batches), labels_of(batches)
    assert sorted(first) == sorted(second) == list(range(NUM_ROWS))
    assert first != second
    assert first != sorted(first)
    again = stream(data, window="24KiB", **options)
    assert [labels_of(again), labels_of(again)] == [first, second]
    assert labels_of(stream(data, shuffle=False, **options)) == list(range(NUM_ROWS))


def test_a_window_mixes_rows_from_all_over_the_file(tmp_path: Path) -> None:
    x, y = numbered(100_000)
    np.save(tmp_path / "x.npy", x)
    batches = stream((tmp_path / "x.npy", y), window="1MiB", batch_size=64)
    found = np.array(labels_of(batches))
    means = found.reshape(-1, 50)[:, ::5].mean(axis=1)
    # Sorted rows that went through a buffer of a fifth of them would rise from batch to batch.
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_structures_of_arrays_and_weights_keep_their_form(tmp_path: Path) -> None:
    x, y = numbered()
    np.save(tmp_path / "x.npy", x)
    batches = stream(({"a": tmp_path / "x.npy", "b": y}, y, y.astype("float32")))
    inputs, labels, weights = next(iter(batches))
    np.testing.assert_array_equal(inputs["a"][:, 0], weights)
    np.testing.assert_array_equal(inputs["b"], labels)
    assert batches.element_spec[0]["a"].shape.as_list() == [None, 3]
    rows = stream((tmp_path / "x.npy", y), batch_size=None)
    assert len(rows) == NUM_ROWS
    assert rows.element_spec[0].shape.as_list() == [3]


def test_csv_columns_by_name_and_type(tmp_path: Path) -> None:
    data, _ = write_csv(tmp_path, 300)
    x, y = next(iter(stream(data, labels="label", shuffle=False)))
    assert x["value"].dtype == tf.int64
    assert x["said"][3] == b'line one,\nline "3"'
    x, y = next(iter(stream(data, columns=["value", "label"], labels="label", stack=True, shuffle=False)))
    np.testing.assert_array_equal(x, np.stack([y, y], -1).astype("float32"))
    x = next(iter(stream(data, columns="value", dtypes={"value": "float64"}, shuffle=False)))
    assert x.dtype == tf.float64
    with pytest.raises(memfit.UsageError, match="cannot put the column 'said' beside others"):
        stream(data, labels="label", stack=True)


def test_a_mapped_array_is_read_from_its_file(tmp_path: Path) -> None:
    x, _ = numbered()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for part in (mapped, mapped[5:], mapped[100:600]):
        rows = mapped_rows(part, "x")
        assert isinstance(rows, FileRows)
        target = np.empty((2, 3), np.float32)
        rows.read(3, 5, [target])
        np.testing.assert_array_equal(target, part[3:5])
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    assert mapped_rows(private, "x") is None  # What was changed in it is not in the file.
    assert mapped_rows(mapped[::2], "x") is None
    assert labels_of(stream((mapped[::2], np.arange(0, NUM_ROWS, 2)), shuffle=False)) == [
        *range(0, NUM_ROWS, 2)
    ]


def cut_npy(folder: Path) -> Any:
    np.save(folder / "x.npy", numbered()[0])
    content = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(content[: 128 + 12 * 40 + 5])
    return folder / "x.npy"


def cut_records(folder: Path) -> Any:
    write_records(folder, 10)
    content = (folder / "0.tfrecord").read_bytes()
    (folder / "0.tfrecord").write_bytes(content[:-2])
    return folder / "0.tfrecord"


def cut_csv(folder: Path) -> Any:
    (folder / "t.csv").write_text('a,b\n1,2\n3,"4')
    return folder / "t.csv"


def compressed(folder: Path) -> Any:
    np.savez_compressed(folder / "t.npz", x=numbered()[0])
    return folder / "t.npz"


def fortran(folder: Path) -> Any:
    np.save(folder / "x.npy", np.asfortranarray(numbered()[0]))
    return folder / "x.npy"


def unlike(folder: Path) -> Any:
    np.save(folder / "a.npy", np.zeros((3, 4)))
    np.save(folder / "b.npy", np.zeros((3, 5)))
    return str(folder / "?.npy")


def unknown(folder: Path) -> Any:
    (folder / "x.dat").write_text("?")
    return folder / "x.dat"


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (cut_npy, {}, r"ends in the middle of row 40: it is to have 1,000 rows"),
        (cut_records, {}, r"ends in the middle of record 4 "),
        (cut_csv, {}, r"ends inside of quotes that were opened at line 3 or after"),
        (compressed, {}, r"'x' in .* is compressed.*np\.savez instead"),
        (fortran, {}, r"Fortran order"),
        (unlike, {}, r"b\.npy has rows of float64 \(5,\), but .*a\.npy has rows of float64 \(4,\)"),
        (unknown, {}, r"cannot be told by its ending '\.dat'\. Pass kind=, one of: npy"),
        (unknown, {"kind": "banana"}, r"kind='banana'"),
        (lambda _: "missing-*.npy", {}, r"there is no file missing-"),
        (lambda _: np.zeros((0, 3)), {}, r"has no rows"),
        (lambda _: np.zeros(()), {}, r"single value"),
        (lambda _: (np.zeros(3), np.zeros(4)), {}, r"array 1 has 4 rows, but array 0 has 3"),
        (lambda _: np.zeros(3, "datetime64[s]"), {}, r"cannot be streamed"),
        (lambda _: iter([1]), {}, r"Received: list_iterator"),
        (lambda _: np.zeros(3), {"labels": "y"}, r"choose from one table"),
        (lambda _: np.zeros(3), {"batch_size": 0}, r"batch_size must be a whole number"),
        (lambda _: np.zeros(3), {"window": "10GiB", "host_budget": "1GiB"}, r"two windows of 10\.0 GiB"),
        (lambda _: lambda: iter(()), {}, r"the generator has no rows"),
    ],
)
def test_bad_input_is_refused_with_the_place(
    make: Callable[[Path], Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(memfit.UsageError, match=message):
        stream(make(tmp_path), **options)


def uneven_csv(folder: Path) -> Any:
    rows = ["a,b", *(f"{each},{each}" for each in range(2000)), "7"]
    (folder / "t.csv").write_text("\n".join(rows))
    return folder / "t.csv"


def missing_value(folder: Path) -> Any:
    rows = ["a,b", *(f"{each},{each}" for each in range(2000)), ",2"]
    (folder / "t.csv").write_text("\n".join(rows))
    return folder / "t.csv"


def broken_record(folder: Path) -> Any:
    write_records(folder, 10)
    content = bytearray((folder / "0.tfrecord").read_bytes())
    content[12] ^= 255  # The first byte of the first record, which its checksum guards.
    (folder / "0.tfrecord").write_bytes(bytes(content))
    return folder / "0.tfrecord"


def uneven_rows() -> Iterator[Any]:
    yield np.zeros(3)
    yield np.zeros(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (uneven_csv, r"line 2002, has 1 columns, but the header has 2"),
        (missing_value, r"line 2002, has nothing in the column 'a', which is read as int64"),
        (broken_record, r"record 0 of .* is broken"),
        (lambda _: uneven_rows, r"row 1 of the generator is float64 \(4,\), but the first is float64 \(3,\)"),
    ],
)
def test_what_is_found_while_reading_names_its_place(
    make: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(stream(make(tmp_path)))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1.0], [1.0, 2.0]], r"row 1, is a list of 2, but the one before is of 1"),
        ([1, None], r"row 1, has no value"),
    ],
)
def test_parquet_rows_that_are_not_alike_are_refused(column: Any, message: str, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"x": column}), tmp_path / "t.parquet")
    with pytest.raises(memfit.UsageError, match=message):
        stream(tmp_path / "t.parquet", columns="x")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[:-9])
    with pytest.raises(memfit.UsageError, match="may end in the middle"):
        stream(tmp_path / "t.parquet", columns="x")


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=numbered()[0])
    content = (tmp_path / "t.npz").read_bytes()
    (tmp_path / "t.npz").write_bytes(content[: len(content) // 2])
    assert not zipfile.is_zipfile(tmp_path / "t.npz")
    with pytest.raises(memfit.UsageError, match=r"cannot be read as \.npz"):
        stream(tmp_path / "t.npz")


def make_model() -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    return model


class Stop(keras.callbacks.Callback):
    """Ends a run in the middle of its second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.num = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.num += 1
        if self.num == 50:
            raise InterruptedError

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass


def test_a_run_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    x, y = numbered()
    np.save(tmp_path / "x.npy", x / NUM_ROWS)
    np.save(tmp_path / "y.npy", (y / NUM_ROWS).astype("float32"))

    def run(folder: str, *, is_stopped: bool = False) -> Any:
        model = make_model()
        batches = stream((tmp_path / "x.npy", tmp_path / "y.npy"), batch_size=29)
        memfit.fit(
            model,
            batches,
            plan=memfit.Plan(),
            epochs=2,
            shuffle=False,
            verbose=0,
            callbacks=[Stop()] if is_stopped else [],
            resume=memfit.Resume(tmp_path / folder, every_steps=8),
        )
        return model.get_weights()

    whole = run("whole")
    with pytest.raises(InterruptedError):
        run("stopped", is_stopped=True)
    for one, other in zip(run("stopped"), whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shuffle", [False, True])
def test_mapped_arrays_in_fit_train_as_in_keras(shuffle: bool, tmp_path: Path) -> None:
    x, y = numbered()
    np.save(tmp_path / "x.npy", (x / NUM_ROWS).astype("float64"))
    mapped, labels = np.load(tmp_path / "x.npy", mmap_mode="r"), (y / NUM_ROWS).astype("float32")
    arguments: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 64,
        "validation_split": 0.25,
        "sample_weight": labels + 1,
        "shuffle": shuffle,
        "verbose": 0,
    }
    plain = make_model()
    history = plain.fit(mapped, labels, **arguments)
    ours = make_model()
    run = memfit.fit(ours, mapped, labels, plan=memfit.Plan(stream_window_bytes=2**15), **arguments)
    assert run.num_samples == 2 * 750
    if not shuffle:
        np.testing.assert_allclose(run.history.history["val_loss"], history.history["val_loss"], rtol=1e-6)
        for one, other in zip(ours.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_plan_streams_what_the_host_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = numbered()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert memfit.plan(make_model(), (mapped, y.astype("float32"))).stream_window_bytes is None
    monkeypatch.setenv("MEMFIT_HOST_BUDGET", "8KiB")
    plan = memfit.plan(make_model(), (mapped, y.astype("float32")))
    assert plan.stream_window_bytes == 2048
    assert "streamed by windows of 2.00 KiB" in str(plan)
    assert "Keras would hold 43.0 KiB of them, and the host has 8.00 KiB" in plan.notes[-1]
    cached = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(1000, seed=1).batch(8)
    assert "Make it of memfit.stream" in memfit.plan(make_model(), cached).notes[-1]
    with pytest.raises(memfit.UsageError, match="must be NumPy arrays"):
        memfit.fit(make_model(), tf.constant(x), y, plan=plan)


def test_host_memory_stays_flat() -> None:
    """In a fresh process: 192 MiB through windows of 4 MiB, and arrays that Keras would copy."""
    measured = memfit.measure(targets.host_bytes)
    assert measured.outcome is Outcome.OK, measured.output
    streamed, fitted, plain = measured.value
    assert streamed < 40 * 2**20
    assert fitted < 40 * 2**20
    assert plain > 90 * 2**20
