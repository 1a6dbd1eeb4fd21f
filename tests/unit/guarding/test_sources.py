"""Lines by name."""

import ast
import linecache
from pathlib import Path

import pytest

from memfit.guarding import sources

TEXT = """
kept = []
table = {}
for x in data:
    kept.append(x)
    table["a"].append(x)

class Reader:
    def __init__(self):
        self.seen = deque()

    def read(self):
        self.seen.appendleft(1)
        total += [1]

@decorated
@again(
    1)
def step(x):
    return source.map(
        x)

for fold in range(3):
    model = make()
    history = model.fit(
        x, y)
    self.net(x)
first, second = pair()
data = (source
    .cache()
    .shuffle(8))
"""
TREE = ast.parse(TEXT)


@pytest.mark.parametrize(
    ("name", "line"),
    [("kept", 5), ("table", 6), ("seen", 13), ("total", 14), ("model", None), ("banana", None)],
)
def test_where_it_grows(name: str, line: int | None) -> None:
    assert sources.growth_line(TREE, name) == line


def test_where_it_is_made_before_a_line() -> None:
    tree = ast.parse("a = 1\na = 2\nuse(a)\na = 3")
    assert sources.assignment_line(tree, "a", before=3) == 2
    assert sources.assignment_line(tree, "a") == 1
    assert sources.assignment_line(tree, "b", before=3) is None
    assert sources.assignment_line(TREE, "second") == 28


def test_the_line_of_def_is_not_the_decorators() -> None:
    assert sources.definition_line(TREE, 16) == 19
    assert sources.definition_line(TREE, 12) == 12


@pytest.mark.parametrize(("line", "name"), [(25, "model"), (26, "model"), (27, "net"), (2, None)])
def test_who_is_called(line: int, name: str | None) -> None:
    assert sources.receiver_at(TREE, line) == name


@pytest.mark.parametrize(("line", "name"), [(30, "data"), (21, "step"), (24, "model")])
def test_who_gets_the_value(line: int, name: str) -> None:
    assert sources.target_at(TREE, line) == name


def test_methods() -> None:
    assert sources.method_lines(TREE, "shuffle") == [31]


def test_the_code_of_a_cell_is_read_from_where_ipython_keeps_it() -> None:
    plain = ["kept = []\n", "kept.append(1)\n"]
    magic = ["get_ipython().run_cell_magic('time', '', 'kept = []\\nkept.append(1)\\n')\n"]
    shell = ["get_ipython().run_cell_magic('bash', '', 'ls -l\\n')\n"]
    lines = []
    for name, cell in (("<plain>", plain), ("<magic>", magic), ("<shell>", shell)):
        linecache.cache[name] = (0, None, cell, name)
        tree = sources.read_tree(name)
        lines.append(None if tree is None else sources.growth_line(tree, "kept"))
        del linecache.cache[name]
    assert lines == [2, 3, None]


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def (")
    assert sources.read_tree(str(broken)) is None
    assert sources.read_tree(str(tmp_path / "missing.py")) is None
