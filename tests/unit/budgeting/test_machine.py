from pathlib import Path

from memfit.budgeting import machine


def test_available_memory_is_the_kernels_estimate(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable:      70 kB\n")
    assert machine.available_bytes(meminfo) == 70 * 1024


def test_an_old_kernel_makes_no_estimate(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemFree: 5 kB\n")
    assert machine.available_bytes(meminfo) == machine.total_bytes()


def test_this_machine() -> None:
    assert 0 < machine.available_bytes() <= machine.total_bytes()
    assert machine.num_cores() >= 1
