"""`memfit lengths` as it is typed."""

import subprocess
import sys
from pathlib import Path

import pytest

import memfit
from memfit.cli import main

SCRIPT = """
import numpy as np
import keras

def make_data():
    return [[1, 2, 3], [4]], np.array([0, 1])

def make_both():
    return keras.Sequential([keras.layers.Embedding(9, 2)]), make_data()

def make_nothing():
    return None
"""


def test_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("a b c\n" * 9 + "d\n")
    assert main(["lengths", str(path), "--step-bytes", "1KiB"]) == 0
    shown = capsys.readouterr().out
    assert "28, 2.8 a sequence" in shown
    assert "█" in shown
    assert main(["lengths", str(path), "--json", "--unit", "characters"]) == 0
    assert memfit.Lengths.from_json(capsys.readouterr().out).longest == 5
    assert main(["lengths", str(tmp_path / "missing.txt")]) == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.parametrize("function", ["make_data", "make_both"])
def test_a_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "train.py").write_text(SCRIPT)
    assert main(["lengths", f"{tmp_path}/train.py:{function}", "--json"]) == 0
    assert memfit.Lengths.from_json(capsys.readouterr().out).num_steps == 4
    assert main(["lengths", f"{tmp_path}/train.py:make_nothing"]) == 2
    assert "Received: None" in capsys.readouterr().err


def test_files_are_read_without_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a b c\n")
    code = (
        "import memfit.cli, sys\n"
        "assert memfit.cli.main(['lengths', 'corpus.txt']) == 0\n"
        "assert 'tensorflow' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run((sys.executable, "-c", code), cwd=tmp_path, check=True, capture_output=True)
