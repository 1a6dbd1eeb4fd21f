"""The promise: a run that is killed at any moment ends as if it had never been."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.process.killing import NUM_KILLS

ROOT = Path(__file__).parents[2]


def test_a_run_killed_twenty_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.process.killing", str(tmp_path))
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr[-3000:]
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["is_same"] == {"variables": True, "history": True, "epochs": True}
    ends = Counter(found["ends"])
    assert ends.total() == NUM_KILLS
    # On a busy disk many hit the writing of a checkpoint, which is the harder half of the promise.
    assert ends["training"] + ends["writing"] >= NUM_KILLS // 2, f"most kills must come after a step: {ends}"
    assert ends["training"] >= NUM_KILLS // 5, f"some kills must hit a step: {ends}"
