from pathlib import Path

import pytest

from memfit.budgeting import allocator, budget, cgroup, machine
from memfit.budgeting.cgroup import Group
from memfit.errors import UnitError
from memfit.units import GIB, MIB

AVAILABLE_BYTES = 8 * GIB


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose free memory does not move between two lines of a test, and has no GPU."""
    for name in (allocator.BUDGET, budget.HOST_VARIABLE, allocator.USE_BFC, allocator.LIMIT_MIB):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "available_bytes", lambda: AVAILABLE_BYTES)
    set_group(monkeypatch, None)


def set_group(monkeypatch: pytest.MonkeyPatch, limit_bytes: int | None) -> None:
    group = Group(
        path=Path("/g"), limit_bytes=limit_bytes, limit_source="/g/memory.max", usage_bytes=MIB, num_kills=0
    )
    monkeypatch.setattr(cgroup, "read_group", lambda: group)


def make_gpus(folder: Path) -> None:
    """A stand-in for the command that asks NVIDIA's driver, which is not to be had here."""
    command = folder / "nvidia-smi"
    command.write_text(
        "#!/bin/sh\necho '0, GPU-aaa, 16384'\necho '1, GPU-bbb, 8192'\necho '2, GPU-ccc, [N/A]'\n"
    )
    command.chmod(0o755)


def test_available_memory_comes_last() -> None:
    found = budget.budget()
    assert (found.device_bytes, found.device_source) == (AVAILABLE_BYTES, "the host's available memory")
    assert (found.host_bytes, found.host_source) == (AVAILABLE_BYTES, "the host's available memory")


def test_the_container_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set_group(monkeypatch, GIB)
    found = budget.budget()
    assert found.device_bytes == found.host_bytes == GIB - MIB
    assert found.host_source == "what is left of the container's limit, /g/memory.max"


def test_a_container_that_may_have_more_than_there_is_limits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    set_group(monkeypatch, 100 * GIB)
    assert budget.budget().host_bytes == AVAILABLE_BYTES


def test_the_smallest_gpu_comes_before_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_gpus(tmp_path)
    set_group(monkeypatch, GIB)
    found = budget.budget()
    assert (found.device_bytes, found.device_source) == (8 * GIB, "the GPU's memory")
    assert found.host_bytes == GIB - MIB


@pytest.mark.parametrize(
    ("visible", "expected"), [("0", 16 * GIB), ("GPU-bb", 8 * GIB), ("1,0", 8 * GIB), ("", AVAILABLE_BYTES)]
)
def test_only_visible_gpus_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str, expected: int
) -> None:
    make_gpus(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert budget.budget().device_bytes == expected


def test_a_driver_that_fails_is_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no driver\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert budget.budget().device_source == "the host's available memory"


def test_the_allocators_limit_comes_before_the_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_gpus(tmp_path)
    monkeypatch.setenv(allocator.USE_BFC, "true")
    monkeypatch.setenv(allocator.LIMIT_MIB, "100")
    found = budget.budget()
    assert found.device_bytes == 100 * MIB
    assert found.device_source == "the allocator's limit, TF_CPU_BFC_MEM_LIMIT_IN_MB=100"


def test_the_variable_comes_before_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(allocator.USE_BFC, "true")
    monkeypatch.setenv(allocator.LIMIT_MIB, "100")
    monkeypatch.setenv(allocator.BUDGET, "50%")
    monkeypatch.setenv(budget.HOST_VARIABLE, "1GiB")
    found = budget.budget()
    assert found.device_bytes == 50 * MIB
    assert found.device_source == (
        "MEMFIT_BUDGET=50% of the allocator's limit, TF_CPU_BFC_MEM_LIMIT_IN_MB=100"
    )
    assert (found.host_bytes, found.host_source) == (GIB, "MEMFIT_HOST_BUDGET=1GiB")


def test_the_argument_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(allocator.BUDGET, "3GiB")
    found = budget.budget("2GiB", host="25%")
    assert (found.device_bytes, found.device_source) == (2 * GIB, "the argument '2GiB'")
    assert found.host_bytes == AVAILABLE_BYTES // 4
    assert found.host_source == "the argument '25%' of the host's available memory"


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(allocator.BUDGET, "banana")
    with pytest.raises(UnitError, match=r"^MEMFIT_BUDGET: cannot read 'banana'"):
        budget.budget()


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(allocator.BUDGET, " ")
    assert budget.budget().device_bytes == AVAILABLE_BYTES
