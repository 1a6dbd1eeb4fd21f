"""Lengths from lists and files, without TensorFlow."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

import memfit
from memfit.data.lengths import quantile
from memfit.errors import UsageError


def test_lists() -> None:
    found = memfit.lengths([[1, 2], [], [3, 4, 5, 6]], buckets=1, batch_size=1)
    assert (found.num_sequences, found.num_steps, found.num_empty) == (3, 6, 1)
    assert (found.shortest, found.longest, found.boundaries) == (0, 4, (4,))
    assert [each.num_steps for each in found.paddings] == [12, 6, 12]
    assert found.notes == ("empty sequences, which batches pad to the shortest length: 1.",)


def test_numbers_are_the_lengths_themselves() -> None:
    found = memfit.lengths([3, 5.0, 5], step_bytes=10)
    half = found.cuts[0]
    assert (half.percent, half.length) == (50, 5)
    assert memfit.lengths([1, 1, 1, 9], step_bytes=10).cuts[0].saved_bytes == 4 * 8 * 10
    assert memfit.lengths([1, 1, 1, 9]).cuts[1].num_lost_steps == 8


@pytest.mark.parametrize("bad", [float("nan"), -1, 2.5, float("inf")])
def test_numbers_that_are_no_lengths(bad: float) -> None:
    with pytest.raises(UsageError, match="sample 2 has the length"):
        memfit.lengths([1, 2, bad, 4])


def test_a_number_among_sequences() -> None:
    with pytest.raises(UsageError, match="sample 1 is nan, not a sequence"):
        memfit.lengths([[1, 2], float("nan")])


def test_histograms_count_everything_once() -> None:
    found = memfit.lengths([*range(1000), 90_000])
    assert sum(each.num_sequences for each in found.bins) == 1001
    assert found.bins[-1].longest == 90_000
    edges = [(each.shortest, each.longest) for each in found.bins]
    assert all(low <= high for low, high in edges)
    assert all(high < low for (_, high), (low, _) in pairwise(edges))
    assert any("91 times" in note for note in found.notes)


def test_percentiles() -> None:
    counts = dict.fromkeys(range(1, 101), 1)
    assert [quantile(counts, percent) for percent in (1, 50, 99, 100)] == [1, 50, 99, 100]


def test_text_files(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one two three\n\nfour")
    assert memfit.lengths(path).num_steps == 4
    assert memfit.lengths(str(path), unit="characters").longest == 13
    sample = memfit.lengths(path, limit=1)
    assert sample.is_sample
    assert sample.num_sequences == 1
    path.write_text("3\nnan\n")
    with pytest.raises(UsageError, match="line 2, has the length nan"):
        memfit.lengths(path, unit="number")
    path.write_bytes(b"good\n\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8 text after line"):
        memfit.lengths(path)


def test_csv_files(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('id,text\n1,"a b, c"\n2,d\n')
    found = memfit.lengths(path, column="text")
    assert (found.num_sequences, found.num_steps) == (2, 4)
    assert found.source == f"column 'text' of {path}"
    with pytest.raises(UsageError, match=r"no column was named.*It has: id, text"):
        memfit.lengths(path)
    with pytest.raises(UsageError, match="there is no column 'label'"):
        memfit.lengths(path, column="label")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id,text\n1,a\n2,"b c', "broken at line 3"),
        ("id,text\n1,a\n2", r"sample 1 \(line 3\), has 1 columns"),
    ],
)
def test_a_file_that_ends_in_the_middle_of_a_record(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        memfit.lengths(path, column="text")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        memfit.lengths(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UsageError, match="holds no sequences"):
        memfit.lengths(tmp_path / "empty.txt")


def test_parquet_files(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "data.parquet"
    columns = {"tokens": [[1, 2, 3], [], [4]], "text": ["a b", "c", "d e f"], "length": [1, 2, None]}
    parquet.write_table(arrow.table(columns), path)
    assert memfit.lengths(path, column="tokens").num_steps == 4
    assert memfit.lengths(path, column="text").num_steps == 6
    with pytest.raises(UsageError, match="sample 2, has the length None"):
        memfit.lengths(path, column="length")
    with pytest.raises(UsageError, match="It has: tokens, text, length"):
        memfit.lengths(path, column="label")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        memfit.lengths(path, column="text")


def test_parquet_needs_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "data.parquet").touch()
    with pytest.raises(memfit.SetupError, match=r"pip install 'memfit\[parquet\]'"):
        memfit.lengths(tmp_path / "data.parquet", column="text")
