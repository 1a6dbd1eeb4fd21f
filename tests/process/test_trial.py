"""Trials in real processes: real limits, real crashes, real kills."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import memfit
from memfit.budgeting import allocator, machine
from memfit.records import Outcome
from memfit.units import MIB
from tests.process import targets


def is_running(pid_file: Path) -> bool:
    try:
        return psutil.Process(int(pid_file.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_that_is_killed() -> None:
    measured = memfit.measure(targets.be_killed)
    assert measured.outcome is Outcome.KILLED
    assert measured.exit_code == -9


def test_a_child_that_raises() -> None:
    measured = memfit.measure(targets.raise_value_error)
    assert measured.outcome is Outcome.ERROR
    assert measured.reason == "ValueError: no such optimizer"
    assert "Traceback" in measured.output
    assert "memfit/measuring" not in measured.output


def test_a_child_that_runs_out_of_device_memory() -> None:
    measured = memfit.measure(targets.fill, 200, device_limit="100MiB")
    assert measured.outcome is Outcome.DEVICE_OUT_OF_MEMORY
    assert measured.request is not None
    assert (measured.request.num_bytes, measured.request.op) == (200 * MIB, "Fill")
    assert measured.request.shape == (200 * MIB // 4,)
    assert "targets.py:" in measured.reason


def test_ops_that_wait_for_memory_do_not_keep_the_one_that_gives_it_back_from_running() -> None:
    num_cores = machine.num_cores()
    measured = memfit.measure(targets.wait_for_memory, num_cores, device_limit="64MiB")
    assert (measured.outcome, measured.num_failed_requests) == (Outcome.OK, 0)
    # With a thread a core, as TensorFlow has it, all of them wait, and there is memory enough all the same.
    threads = {allocator.THREADS: str(num_cores)}
    measured = memfit.measure(targets.wait_for_memory, num_cores, device_limit="64MiB", environment=threads)
    assert measured.outcome is Outcome.DEVICE_OUT_OF_MEMORY


def test_a_child_that_prints_a_megabyte() -> None:
    measured = memfit.measure(targets.print_a_megabyte)
    assert (measured.outcome, measured.value) == (Outcome.OK, "done")
    assert measured.output.endswith("yyythe end")


def test_a_child_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    measured = memfit.measure(targets.hang_with_a_daemon, str(tmp_path / "pid"), timeout_seconds=3)
    assert measured.outcome is Outcome.TIMEOUT
    assert not is_running(tmp_path / "pid")


def test_a_child_that_ends_leaves_no_daemon_either(tmp_path: Path) -> None:
    measured = memfit.measure(targets.leave_a_daemon, str(tmp_path / "pid"))
    assert measured.outcome is Outcome.OK
    assert not is_running(tmp_path / "pid")


def test_the_crash_that_onednn_makes_of_an_oom_is_an_oom() -> None:
    measured = memfit.measure(targets.train_dense_network, device_limit="100MiB")
    assert measured.outcome is Outcome.DEVICE_OUT_OF_MEMORY
    assert measured.request is not None
    assert measured.request.num_bytes
    assert measured.peak_bytes is not None
    assert 80 * MIB < measured.peak_bytes <= 102 * MIB
    assert "targets.py:" in measured.reason
    # Whether it is a crash or an exception is up to oneDNN's threads; both are told apart in unit tests.
    assert measured.exit_code in (1, -11, -6)


def test_a_clean_oom_is_an_exception() -> None:
    measured = memfit.measure(targets.train_dense_network, device_limit="100MiB", clean=True)
    assert measured.outcome is Outcome.DEVICE_OUT_OF_MEMORY
    assert measured.exit_code == 1
    assert measured.is_peak_exact


def test_an_oom_in_a_compiled_loop_is_clean() -> None:
    measured = memfit.measure(targets.train_by_compiled_segments, 256, 400, device_limit="24MiB")
    assert (measured.outcome, measured.value) == (Outcome.OK, "ResourceExhaustedError")
    assert measured.request is not None


def test_compiled_loops_are_shared_by_equal_models() -> None:
    """What XLA compiled stays in the process; a loop over models must not compile each anew."""
    measured = memfit.measure(targets.build_and_drop_models, 8)
    assert measured.outcome is Outcome.OK
    assert max(measured.value[4:]) < measured.value[3] + 16 * MIB


def test_another_crash_is_no_oom() -> None:
    measured = memfit.measure(targets.crash, device_limit="100MiB")
    assert measured.outcome is Outcome.ERROR
    assert "SIGSEGV" in measured.reason


def test_a_full_disk_is_no_oom() -> None:
    measured = memfit.measure(targets.fill_the_disk)
    assert measured.outcome is Outcome.ERROR
    assert "ResourceExhaustedError" in measured.reason
    assert "No space left on device" in measured.reason


def test_a_host_limit_ends_what_exceeds_it() -> None:
    measured = memfit.measure(targets.use_host_memory, host_limit="300MiB", timeout_seconds=60)
    assert measured.outcome is Outcome.HOST_OUT_OF_MEMORY
    assert "above the limit of 300 MiB" in measured.reason


def test_a_host_limit_leaves_alone_what_stays_below() -> None:
    assert memfit.measure(targets.print_a_megabyte, host_limit="300MiB").outcome is Outcome.OK


def test_a_memory_error_is_the_hosts() -> None:
    assert memfit.measure(targets.raise_memory_error).outcome is Outcome.HOST_OUT_OF_MEMORY


def test_an_oom_that_was_survived_is_told() -> None:
    measured = memfit.measure(targets.survive_an_oom, device_limit="100MiB")
    assert (measured.outcome, measured.value) == (Outcome.OK, "survived")
    assert measured.num_failed_requests == 1


def test_a_result_that_cannot_come_back() -> None:
    with pytest.raises(memfit.TrialError, match="Object of type object is not JSON"):
        memfit.measure(targets.return_an_object)


@pytest.mark.parametrize("num_mib", [10, 50, 99])
def test_the_peak_is_true_under_a_limit(num_mib: int) -> None:
    measured = memfit.measure(targets.fill, num_mib, device_limit="100MiB")
    assert measured.outcome is Outcome.OK
    assert measured.peak_bytes is not None
    if num_mib <= 50:  # What is left of a chunk of 100 MiB is used; see docs/measuring.md.
        assert measured.peak_bytes == pytest.approx(num_mib * MIB, rel=0.01)
    else:
        assert num_mib * MIB <= measured.peak_bytes <= 102 * MIB


def test_a_peak_that_the_target_made_tensorflow_forget() -> None:
    measured = memfit.measure(targets.reset_the_meter, device_limit="200MiB")
    assert measured.value < MIB
    assert measured.peak_bytes == pytest.approx(40 * MIB, rel=0.01)


def test_scripts_take_arguments(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text("import sys\nprint(sys.argv[1:], __name__)\n")
    measured = memfit.measure(tmp_path / "echo.py", "--lr", 0.1)
    assert measured.output == "['--lr', '0.1'] __main__\n"


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(memfit.UsageError, match="there is no script"):
        memfit.measure(tmp_path / "missing.py")


def test_a_trial_ends_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed in the middle: the kernel ends the child."""
    (tmp_path / "sleeper.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    code = f"import memfit; memfit.measure({str(tmp_path / 'sleeper.py')!r})"
    with subprocess.Popen((sys.executable, "-c", code)) as parent:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        parent.kill()
    wait_for(lambda: not is_running(tmp_path / "pid"))


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nested_trials_are_ended_too(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(
        "import sys, memfit\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from tests.process import targets\n"
        "memfit.measure(targets.hang_with_a_daemon, sys.argv[2], timeout_seconds=600)\n"
    )
    root = str(Path(__file__).parents[2])
    measured = memfit.measure(tmp_path / "outer.py", root, tmp_path / "pid", timeout_seconds=5)
    assert measured.outcome is Outcome.TIMEOUT
    assert (tmp_path / "pid").exists()
    assert not is_running(tmp_path / "pid")


UNGUARDED = """
import memfit
def answer(): return 42
print(memfit.measure(answer).to_json())
"""


def test_a_script_that_would_start_trials_without_end(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    (tmp_path / "guarded.py").write_text(UNGUARDED.replace("print", "if __name__ == '__main__': print"))
    unguarded, guarded = (
        subprocess.run((sys.executable, tmp_path / name), capture_output=True, text=True, check=True).stdout
        for name in ("unguarded.py", "guarded.py")
    )
    assert (
        "Put what the script does below: if __name__ == '__main__':"
        in memfit.Measurement.from_json(unguarded).reason
    )
    assert memfit.Measurement.from_json(guarded).value == 42
