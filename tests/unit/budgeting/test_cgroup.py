"""The cgroup reader against folder trees of both versions, made as the kernel makes them."""

from pathlib import Path

import pytest

from memfit.budgeting.cgroup import Group, num_host_kills, read_group

NO_LIMIT_V1 = "9223372036854771712"


def make_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version_1(path: str, mount_root: str = "/") -> dict[str, str]:
    return {
        "proc/self/cgroup": f"5:devices:/\n4:cpu,memory:{path}\n0::/\n",
        "proc/self/mountinfo": (
            f"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
            f"35 31 0:32 {mount_root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
            f"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        ),
    }


def version_2(path: str, mount_root: str = "/") -> dict[str, str]:
    return {
        "proc/self/cgroup": f"0::{path}\n",
        "proc/self/mountinfo": f"30 23 0:26 {mount_root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
    }


def read(root: Path) -> Group:
    group = read_group(root)
    assert group is not None
    return group


def test_version_1_with_a_limit(tmp_path: Path) -> None:
    group = read(
        make_tree(
            tmp_path,
            version_1("/job")
            | {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "700\n",
                "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 9\ntotal_inactive_file 300\n",
                "sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 2\n",
            },
        )
    )
    assert (group.limit_bytes, group.usage_bytes, group.num_kills) == (1000, 400, 2)
    assert group.limit_source == str(tmp_path / "sys/fs/cgroup/memory/job/memory.limit_in_bytes")


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    group = read(
        make_tree(
            tmp_path,
            version_1("/")
            | {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "700",
            },
        )
    )
    assert (group.limit_bytes, group.limit_source, group.usage_bytes) == (None, "", 700)


def test_version_1_inside_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    group = read(
        make_tree(
            tmp_path,
            version_1("/docker/abc", mount_root="/docker/abc")
            | {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
            },
        )
    )
    assert group.limit_bytes == 5000


@pytest.mark.parametrize(
    ("parent_max", "child_max", "child_high", "expected", "name"),
    [
        ("max", "max", "max", None, ""),
        ("4000", "max", "max", 4000, "pod/memory.max"),
        ("4000", "3000", "max", 3000, "pod/job/memory.max"),
        ("4000", "3000", "2500", 2500, "pod/job/memory.high"),
        ("2000", "3000", "max", 2000, "pod/memory.max"),
    ],
)
def test_version_2_takes_the_least_limit_on_the_way_up(
    tmp_path: Path, parent_max: str, child_max: str, child_high: str, expected: int | None, name: str
) -> None:
    group = read(
        make_tree(
            tmp_path,
            version_2("/pod/job")
            | {
                "sys/fs/cgroup/pod/memory.max": parent_max,
                "sys/fs/cgroup/pod/job/memory.max": child_max,
                "sys/fs/cgroup/pod/job/memory.high": child_high,
                "sys/fs/cgroup/pod/job/memory.current": "700",
                "sys/fs/cgroup/pod/job/memory.stat": "anon 5\ninactive_file 300\n",
                "sys/fs/cgroup/pod/job/memory.events": "low 0\noom 4\noom_kill 3\n",
            },
        )
    )
    assert (group.limit_bytes, group.usage_bytes, group.num_kills) == (expected, 400, 3)
    assert group.limit_source.endswith(name)


def test_version_2_with_a_path_that_the_container_cannot_see(tmp_path: Path) -> None:
    group = read(
        make_tree(
            tmp_path,
            version_2("/../../system.slice/docker-abc.scope")
            | {"sys/fs/cgroup/memory.max": "6000", "sys/fs/cgroup/memory.current": "10"},
        )
    )
    assert group.limit_bytes == 6000


def test_a_hybrid_system_keeps_memory_in_version_1(tmp_path: Path) -> None:
    group = read(
        make_tree(
            tmp_path,
            version_1("/job")
            | {
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1",
                "sys/fs/cgroup/unified/cgroup.procs": "",
            },
        )
    )
    assert group.limit_bytes == 1000


def test_no_groups_at_all(tmp_path: Path) -> None:
    assert read_group(tmp_path) is None
    assert read_group(make_tree(tmp_path, version_2("/"))) is None


def test_kills_on_the_host(tmp_path: Path) -> None:
    assert num_host_kills(make_tree(tmp_path, {"proc/vmstat": "pgfault 1\noom_kill 7\n"})) == 7


def test_this_process_has_a_group_or_none_and_says_so_without_an_error() -> None:
    group = read_group()
    assert group is None or group.usage_bytes >= 0
