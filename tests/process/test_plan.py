"""`memfit plan` as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import keras

def make_model():
    layers = [keras.layers.Dense(256, "gelu") for _ in range(4)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""


def memfit(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "MEMFIT_"))}
    return subprocess.run(
        (sys.executable, "-m", "memfit", *words),
        cwd=folder,
        env=inherited | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plan_is_printed_and_can_be_loaded(tmp_path: Path) -> None:
    done = memfit(
        "plan", "train.py:make_model", "--batch-size", "2048", "--budget", "24MiB", "--json", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["memfit"] == "Plan"
    assert plan["batch_size"] == 2048
    assert plan["micro_batch"] or plan["depth_limit"]
    assert plan["rehearsed_bytes"] < 24 * 2**20


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--batch-size", "8", "--budget", "1KiB"), 3, "nothing fits 1.00 KiB"),
        (("--batch-size", "8", "--allow", "magic"), 2, "allow= does not know 'magic'"),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    done = memfit("plan", "train.py:make_model", *words, folder=tmp_path)
    assert done.returncode == code
    assert f"memfit: error: {said}" in done.stderr
    assert "Traceback" not in done.stderr
