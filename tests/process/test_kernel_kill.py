"""The kernel's own out-of-memory killer, in a real memory group, where this user may make one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memfit.budgeting.cgroup import read_group
from memfit.records import Outcome, Session
from memfit.units import MIB

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 400 * MIB
PROGRAM = """
import os, pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
import memfit
from tests.process import targets
print(memfit.budget().to_json())
print("---")
print(memfit.measure(targets.use_host_memory, timeout_seconds=120).to_json())
"""


@pytest.fixture
def group() -> Iterator[Path]:
    parent = read_group()
    folder = parent.path / "memfit_test" if parent else Path("none")
    try:
        folder.mkdir()
        limit = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
        (folder / limit).write_text(str(LIMIT_BYTES))
    except OSError as fault:
        pytest.skip(f"this user may not make a memory group: {fault}")
    yield folder
    folder.rmdir()


def test_a_kill_by_the_kernel_is_an_oom_of_the_host(group: Path) -> None:
    answer = subprocess.run(
        (sys.executable, "-c", PROGRAM, str(group)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    budget, measured = map(json.loads, answer.stdout.split("---"))
    assert budget["host_bytes"] <= LIMIT_BYTES
    assert "the container's limit" in budget["host_source"]
    assert measured["outcome"] == "host out of memory"
    assert measured["reason"] == "the kernel killed it because the host's memory ran out."
    # The last reading, a tenth of a second old at most, shows where it went.
    assert measured["reading"]["host_bytes"] > LIMIT_BYTES / 2


HOG = """
import time
kept = []
while True:
    kept.append(bytearray(4 * 2**20))
    time.sleep(0.01)
"""
SUPERVISED = """
import os, pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from memfit.cli import main
sys.exit(main(["run", "--record", "run.json", "hog.py"]))
"""


def test_an_autopsy_of_a_kill_by_the_kernel(group: Path, tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG)
    ended = subprocess.run(
        (sys.executable, "-c", SUPERVISED, str(group)), cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 128 + 9, ended.stderr
    autopsy = Session.load(tmp_path / "run.json").autopsy
    assert autopsy is not None
    assert autopsy.outcome is Outcome.HOST_OUT_OF_MEMORY
    assert autopsy.what == "the kernel killed it because the host's memory ran out."
    sizes = [each.host_bytes for each in autopsy.host_readings]
    assert sizes == sorted(sizes)
    assert sizes[-1] > LIMIT_BYTES / 2
    assert "host memory, after" in ended.stderr


NEIGHBOUR = """
import pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(__import__("os").getpid()))
kept = bytearray(b"x") * (240 * 2**20)
print("ready", flush=True)
input()
"""


def test_a_neighbour_that_took_the_memory(group: Path, tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG)
    # Of two, the kernel ends the one that asks to be ended first.
    chosen = "import pathlib; pathlib.Path('/proc/self/oom_score_adj').write_text('1000')\n"
    with subprocess.Popen(
        (sys.executable, "-c", NEIGHBOUR, str(group)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        ended = subprocess.run(
            (sys.executable, "-c", chosen + SUPERVISED, str(group)),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        other.communicate()
    assert ended.returncode == 128 + 9, ended.stderr
    autopsy = Session.load(tmp_path / "run.json").autopsy
    assert autopsy is not None
    assert autopsy.cause == "other processes took the memory."
    assert [each.pid for each in autopsy.neighbours] == [other.pid]
