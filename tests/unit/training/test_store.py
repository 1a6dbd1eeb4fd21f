"""Checkpoint files: whole or not at all."""

from pathlib import Path

import pytest

from memfit.errors import ResumeError
from memfit.training.store import NUM_KEPT, BrokenFileError, Store, Stored


def arrays(content: bytes = b"abc") -> list[tuple[str, memoryview]]:
    return [("variables/0", memoryview(content))]


def ignore(what: str) -> None:
    pytest.fail(what)


def test_the_newest_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.newest(ignore) is None
    for number in range(5):
        store.write({"number": number}, lambda: arrays(b"x" * 9))
    newest = store.newest(ignore)
    assert newest is not None
    assert newest.state == {"number": 4}
    with newest.arrays() as read:
        assert read("variables/0") == b"x" * 9
    assert len(list(tmp_path.glob("checkpoint-*.zip"))) == NUM_KEPT
    store.close()


def test_a_fault_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write({"number": 0}, arrays)

    def fail() -> list[tuple[str, memoryview]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write({"number": 1}, fail)
    newest = store.newest(ignore)
    assert newest is not None
    assert newest.state == {"number": 0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-00000000.zip", "lock"]
    store.close()


def test_every_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write({"number": 0}, arrays)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(BrokenFileError):
            Stored.read(path)
    store.close()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-00000003.zip.part").write_bytes(b"half")
    Store(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ResumeError, match="another process is training"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_the_end_of_a_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.final() is None
    store.write_final({"number": 7}, arrays)
    final = store.final()
    assert final is not None
    assert final.state == {"number": 7}
    store.close()
