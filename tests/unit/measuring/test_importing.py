import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memfit.measuring import importing


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "memfit_probe_module.py").write_text("import events\nevents.seen.append('module')\n")
    (tmp_path / "events.py").write_text("seen = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "memfit_probe_module"
    for name in ("memfit_probe_module", "events"):
        sys.modules.pop(name, None)


def test_before_and_after_come_around_the_first_import(module_name: str) -> None:
    events = __import__("events")
    finders = list(sys.meta_path)
    importing.around(
        module_name,
        before=lambda: events.seen.append("before"),
        after=lambda: events.seen.append("after"),
    )
    assert not importing.is_loaded(module_name)
    module = __import__(module_name)
    __import__(module_name)
    assert events.seen == ["before", "module", "after"]
    assert importing.is_loaded(module_name)
    assert sys.meta_path == finders
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"


def test_a_module_that_is_not_there_fails_as_ever(module_name: str) -> None:
    importing.around("memfit_missing_module", before=lambda: None, after=lambda: None)
    with pytest.raises(ModuleNotFoundError):
        __import__("memfit_missing_module")
