"""Real scripts in real processes: what leaks is caught by name and line, what does not is left in peace."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memfit.guarding.slopes import trend
from memfit.records import Watched
from memfit.units import KIB
from tests.process.leaks import HEALTHY, LEAKS

RUNNER = Path(__file__).with_name("watched.py")
ROOT = Path(__file__).parents[2]
# Those that fill memory for good, or that must not find it warm, have a process of their own.
GROUPS = [
    ["lengths", "native", "kept_in_a_list", "kept_in_a_dict", "kept_in_an_attribute", "kept_in_a_closure"],
    ["retraced", "retraced_by_length", "function_in_a_loop", "dataset_in_a_loop", "eager_call", "generator"],
    ["model_in_a_loop", "cache", "shuffle", "kept_in_functions"],
]
BUDGETS = {"eager_call": "200MiB"}
MAX_STEPS = 200


def run_watched(folder: Path, scripts: dict[str, str]) -> dict[str, Any]:
    for name, script in scripts.items():
        (folder / f"{name}.py").write_text(script)
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))  # For benchmarks/heap.py.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    environment |= {f"BUDGET_{name}.py": size for name, size in BUDGETS.items()}
    # Its caches are what grows with every new length; TensorFlow leaves it off on some CPUs.
    environment["TF_ENABLE_ONEDNN_OPTS"] = "1"
    command = (sys.executable, str(RUNNER), *(f"{folder}/{name}.py" for name in scripts))
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def marked_line(script: str) -> int | None:
    return next((number for number, line in enumerate(script.splitlines(), 1) if "# HERE" in line), None)


def test_every_leak_is_tried() -> None:
    assert sorted(name for group in GROUPS for name in group) == sorted(LEAKS)
    assert len(HEALTHY) >= 10


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_leaks_are_caught_by_name_and_line(names: list[str], tmp_path: Path) -> None:
    found = run_watched(tmp_path, {name: LEAKS[name][0] for name in names})
    for name in names:
        script, kind, variable, words = LEAKS[name]
        watched = Watched.from_dict(found[f"{name}.py"]["watched"])
        assert watched.num_steps <= MAX_STEPS
        assert [(leak.kind, leak.name) for leak in watched.leaks] == [(kind, variable)], (name, watched)
        (leak,) = watched.leaks
        line = marked_line(script)
        assert (leak.file, leak.line) == (None if line is None else f"{name}.py", line), (name, leak)
        assert words in leak.sentence
        (said,) = found[f"{name}.py"]["said"]  # Nothing else was suspected before.
        assert leak.name in said
        assert leak.fix


def test_healthy_scripts_raise_no_alarm_and_released_models_leave_nothing(tmp_path: Path) -> None:
    found = run_watched(tmp_path, HEALTHY)
    for name in HEALTHY:
        watched = Watched.from_dict(found[f"{name}.py"]["watched"])
        assert not watched.leaks, (name, watched)
        assert not found[f"{name}.py"]["said"], name
        assert watched.num_steps > 20, name
        assert watched.num_readings >= 10, name
    check_that_nothing_was_left(found["released.py"]["readings"])


def check_that_nothing_was_left(readings: list[tuple[int, int, int]]) -> None:
    """Of models that were released: each would keep 2 MiB of `malloc` and 5 KiB of the device.

    The first models of a process leave some KiB more than later ones; docs/guarding.md has what remains.
    """
    device = [num_bytes for _, num_bytes, _ in readings]
    assert set(device[5:]) == {device[5]}
    native = trend([(number, num_bytes) for number, _, num_bytes in readings])
    assert native.slope < 12 * KIB
