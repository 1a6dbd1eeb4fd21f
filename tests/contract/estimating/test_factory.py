"""`script.py:function` on the command line: what is loaded, and what is said when it is no model."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from memfit.cli import factory
from memfit.errors import UsageError

SCRIPT = """
import keras

def make_model():
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(8), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model

def make_both():
    return make_model(), (1, 2)

def make_nothing():
    pass

def make_dict():
    return {"model": make_model()}

def make_with(units):
    return make_model()

def make_fault():
    raise ValueError("no such file")

def make_trained():
    make_model().fit([[[0.0] * 4]], [[0.0]])

if __name__ == "__main__":
    raise SystemExit("the training ran")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "memfit_train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("place", ["memfit_train.py:make_model", "memfit_train:make_model"])
def test_a_model_from_a_script_or_a_module(script: Path, place: str) -> None:
    assert script.exists()
    made = factory.load(place)
    assert isinstance(made.model, keras.Model)
    assert made.data is None


def test_a_model_with_its_data(script: Path) -> None:
    assert factory.load(f"{script}:make_both").data == (1, 2)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("memfit_train.py", "does not name a function.*train.py:make_model"),
        ("absent.py:make_model", "there is no script"),
        ("absent:make_model", "there is no module 'absent'.*absent.py:make_model"),
        ("memfit_train.py:make", "has no function 'make'. It has: make_model, make_both"),
        ("memfit_train.py:make_nothing", "returned nothing, but a Keras model is needed"),
        ("memfit_train.py:make_dict", "returned an object of type dict.*return model, or return model,"),
        ("memfit_train.py:make_with", "needs units, but is called without arguments"),
        ("memfit_train.py:make_fault", r"failed at .*memfit_train.py:\d+: ValueError: no such file"),
        ("memfit_train.py:make_trained", "trains while it is loaded.*if __name__"),
    ],
)
def test_refusals(script: Path, place: str, words: str) -> None:
    assert script.exists()
    with pytest.raises(UsageError, match=words):
        factory.load(place)


def test_the_command(script: Path) -> None:
    words = ("estimate", f"{script}:make_model", "--batch-size", "512", "--length", "30", "--json")
    command = (sys.executable, "-m", "memfit", *words, "--budget", "1MiB")
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=script.parent)
    found = json.loads(answer.stdout)
    assert answer.returncode == 3, answer.stderr
    assert (found["batch_size"], found["length"]) == (512, 30)
    assert "memfit: does not fit: up to" in answer.stderr
    assert "cc:" not in answer.stderr, "TensorFlow's log is not the user's business"
