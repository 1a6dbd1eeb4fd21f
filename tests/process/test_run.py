"""`memfit run` as a user types it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memfit.records import Outcome, Session
from memfit.units import MIB

ALLOCATE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # as many scripts do; memfit still learns which op it was
import sys
import tensorflow as tf
tensor = tf.ones([int(sys.argv[1]) * 2**20 // 4])
print("allocated", tensor.shape[0] * 4)
"""


def memfit(*words: object, folder: Path, typed: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "memfit", *map(str, words)),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        input=typed,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "allocate.py").write_text(ALLOCATE)
    return tmp_path


def test_a_script_that_does_not_fit(folder: Path) -> None:
    ended = memfit("run", "--budget", "100MiB", "--record", "run.json", "allocate.py", 200, folder=folder)
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    assert "memfit: device out of memory: Fill asked for 200 MiB, shape [52428800] at allocate.py:6." in lines
    assert re.search(r"autopsy +device out of memory", ended.stderr)
    assert lines[-1].startswith("memfit: peak")
    assert "of the 100 MiB budget on CPU:0" in lines[-1]
    assert f'File "{folder}/allocate.py", line 6, in <module>' in ended.stderr
    assert "bfc_allocator.cc" not in ended.stderr
    assert "oneDNN custom operations" not in ended.stderr
    session = Session.load(folder / "run.json")
    assert session.measurement.outcome is Outcome.DEVICE_OUT_OF_MEMORY
    assert session.autopsy is not None
    assert session.autopsy.place == "allocate.py:6"


def test_a_script_that_fits(folder: Path) -> None:
    ended = memfit("run", "--budget", "100MiB", "--record", "run.json", "allocate.py", 50, folder=folder)
    assert (ended.returncode, ended.stdout) == (0, f"allocated {50 * MIB}\n")
    assert ended.stderr.startswith("memfit: peak 50.0 MiB of the 100 MiB budget on CPU:0, host ")
    assert ended.stderr.count("\n") == 1
    assert Session.load(folder / "run.json").measurement.peak_bytes == pytest.approx(50 * MIB, rel=0.01)
    shown = memfit("report", "run.json", folder=folder)
    assert shown.returncode == 0
    assert "allocate.py 50" in shown.stdout


SHOW = """
import atexit, json, sys
atexit.register(print, "at exit")
class Unit: pass
import pickle; pickle.loads(pickle.dumps(Unit()))
print(json.dumps([sys.argv, __name__, __file__, sys.path[0], sys.stdin.read()]))
sys.exit(7)
"""


def test_a_script_sees_what_it_would_see_under_plain_python(folder: Path) -> None:
    (folder / "show.py").write_text(SHOW)
    words = ("show.py", "--budget", "x", "--", "-h")
    plain = subprocess.run(
        (sys.executable, *words), cwd=folder, capture_output=True, text=True, input="typed"
    )
    ended = memfit("run", *words, folder=folder, typed="typed")
    assert plain.returncode == 7
    assert json.loads(plain.stdout.splitlines()[0])[4] == "typed"
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout)


def test_an_exception_looks_as_under_plain_python(folder: Path) -> None:
    (folder / "fail.py").write_text("def f():\n    raise ValueError('no')\n\nf()\n")
    plain = subprocess.run((sys.executable, "fail.py"), cwd=folder, capture_output=True, text=True)
    ended = memfit("run", "fail.py", folder=folder)
    *lines, closing = ended.stderr.splitlines(keepends=True)
    assert closing.startswith("memfit: no TensorFlow device was used")
    assert "".join(lines) == plain.stderr
    assert ended.returncode == 1


WAIT = """
import signal, sys, time
def stop(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("sent", "code", "said"), [(signal.SIGTERM, 5, "got SIGTERM\n"), (signal.SIGUSR1, 128 + 10, "")]
)
def test_signals_reach_the_script(folder: Path, sent: signal.Signals, code: int, said: str) -> None:
    (folder / "wait.py").write_text(WAIT)
    command = (sys.executable, "-m", "memfit", "run", "wait.py")
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(sent)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (code, said)
    if code > 128:
        assert "memfit: killed: it was ended by SIGUSR1." in err


def test_interrupting_ends_the_script_as_python_does(folder: Path) -> None:
    (folder / "wait.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        (sys.executable, "-m", "memfit", "run", "wait.py"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell are deaf to it, and so would be what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGINT
    assert "KeyboardInterrupt" in err


def test_a_crash_ends_with_a_clear_word(folder: Path) -> None:
    (folder / "crash.py").write_text("import ctypes\nctypes.string_at(0)\n")
    ended = memfit("run", "crash.py", folder=folder)
    assert ended.returncode == 128 + signal.SIGSEGV
    assert "memfit: error: it crashed (SIGSEGV) at crash.py:2." in ended.stderr


def test_a_script_at_a_terminal_knows_that_it_is_at_one(folder: Path) -> None:
    (folder / "ask.py").write_text("import sys\nprint(sys.stderr.isatty(), sys.stdin.isatty())\n")
    ours, theirs = pty.openpty()
    command = (sys.executable, "-m", "memfit", "run", "ask.py")
    ended = subprocess.run(
        command, cwd=folder, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, check=True
    )
    os.close(theirs)
    assert ended.stdout == b"True True\n"
    assert b"memfit: no TensorFlow device was used" in os.read(ours, 10_000)
    os.close(ours)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "missing.py"), 2, "there is no script 'missing.py'"),
        (("run", "."), 2, ". is a folder, not a script"),
        (("run",), 2, "a script is missing. Type: memfit run train.py"),
        (("run", "--budget", "banana", "allocate.py"), 2, "cannot read 'banana' as a size"),
        (("run", "--budget=-1GiB", "allocate.py"), 2, "a size cannot be negative"),
        (("run", "--budget", "0", "allocate.py"), 2, "a size must be at least one byte"),
        (("run", "--budget", "5KiB", "allocate.py"), 2, "The smallest limit is 1MiB"),
        (("run", "--record", "no/such/run.json", "allocate.py"), 2, "cannot write a record to"),
        (("report", "allocate.py"), 1, "allocate.py is not JSON"),
        (("report", "missing.json"), 1, "cannot read missing.json: No such file"),
        (("demo", "--length", "0"), 2, "invalid a positive whole number value: '0'"),
        (("banana",), 2, "invalid choice: 'banana'"),
        ((), 2, "the following arguments are required: COMMAND"),
    ],
)
def test_bad_input_gets_one_clear_message(folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    ended = memfit(*words, folder=folder)
    assert ended.returncode == code
    assert ended.stderr.startswith("memfit: error: ")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_budget_above_the_machine_is_allowed_with_a_warning(folder: Path) -> None:
    (folder / "nothing.py").write_text("")
    ended = memfit("run", "--budget", "100TiB", "nothing.py", folder=folder)
    assert ended.returncode == 0
    assert "memfit: warning: the budget of 100 TiB is above this machine's memory of" in ended.stderr


def test_facts_are_gathered_without_noise(folder: Path) -> None:
    ended = memfit("facts", "--json", folder=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    facts = json.loads(ended.stdout)
    assert facts["memfit"] == "Facts"
    assert facts["devices"][0]["device"] == "CPU:0"
    assert facts["devices"][0]["meter"] == "allocator"
