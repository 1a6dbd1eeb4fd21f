"""The house rules: imports go down only, TensorFlow stays at the rim, the public names are these."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import memfit

PACKAGE = Path(memfit.__file__).parent

# From top to bottom. A file may import its own folder and what is on a lower line, nothing beside it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("running",),
    ("training", "report"),
    ("planning", "guarding"),
    ("strategies", "estimating"),
    ("depth",),
    ("rnn", "splitting"),
    ("measuring", "data", "streaming"),
    ("budgeting",),
    ("records",),
    ("decoding",),
    ("units",),
    ("errors",),
)
# These show and explain; they never compute, so they import only the floor.
FLOOR_ONLY = {"report"}
FLOOR = {"records", "decoding", "units", "errors"}
SLOW = ("tensorflow", "keras", "numpy")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        yield from (f"{module}.{alias.name}" for alias in node.names)


def all_imports(path: Path) -> set[str]:
    return set(chain.from_iterable(map(imports, ast.walk(ast.parse(path.read_text())))))


def top_imports(path: Path) -> set[str]:
    return set(chain.from_iterable(map(imports, ast.parse(path.read_text()).body)))


def level(part: str) -> int:
    return next(index for index, line in enumerate(LAYERS) if part in line)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    for name in all_imports(path):
        if not name.startswith("memfit."):
            continue
        target = name.split(".")[1]
        if target in (part, "__version__"):
            continue
        assert level(target) > level(part), f"{path} imports {name}, which is not below it"
        if part in FLOOR_ONLY:
            assert target in FLOOR, f"{path} imports {name}, which is not the floor"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_tensorflow_is_imported_at_the_top_of_tf_files_only(path: Path) -> None:
    slow = {name for name in all_imports(path) if name.split(".")[0] in SLOW}
    if path.stem.endswith("_tf"):
        assert slow <= top_imports(path)
    else:
        assert not slow
        tf_files = {name for name in top_imports(path) if name.split(".")[-1].endswith("_tf")}
        assert not tf_files, f"{path} loads TensorFlow when it is imported, through {tf_files}"


def test_the_floor_is_standard_library_only() -> None:
    for path in (path for path in sources() if part_of(path) in FLOOR):
        for name in all_imports(path):
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top == "memfit", f"{path.name} imports {name}"


def test_every_part_has_its_layer() -> None:
    parts = {part_of(path) for path in sources()} - {"__init__"}
    assert parts == set(chain.from_iterable(LAYERS))


def test_the_public_names() -> None:
    assert memfit.__all__ == [
        "Autopsy",
        "Budget",
        "BudgetError",
        "Considered",
        "DeviceReading",
        "Estimate",
        "EstimatedPart",
        "Facts",
        "Growth",
        "Incident",
        "Leak",
        "Lengths",
        "LossError",
        "Measurement",
        "MemfitError",
        "MemfitWarning",
        "Meter",
        "OutOfMemoryError",
        "Outcome",
        "Plan",
        "PlanChange",
        "Reading",
        "RecordError",
        "Request",
        "Resume",
        "ResumeError",
        "Run",
        "Session",
        "SetupError",
        "Source",
        "TrialError",
        "UnitError",
        "UsageError",
        "Watched",
        "applied",
        "batch_by_length",
        "budget",
        "checkpoint_depth",
        "checkpoint_time",
        "checkpoint_time_everywhere",
        "dynamic_rnn",
        "estimate",
        "fit",
        "lengths",
        "measure",
        "plan",
        "read_memory",
        "release",
        "reset_peak",
        "setup",
        "stream",
        "train_step",
        "watch",
    ]
    for name in memfit.__all__:
        public = getattr(memfit, name)
        assert public.__name__ == name
        assert public.__doc__
    with pytest.raises(AttributeError, match="has no attribute 'banana'"):
        memfit.banana  # noqa: B018
    assert set(memfit.__all__) < set(dir(memfit))


@pytest.mark.parametrize(
    "code",
    [
        "import memfit",
        "import memfit; memfit.budget('2GiB'); memfit.read_memory()",
        "import contextlib, memfit.cli\nwith contextlib.suppress(SystemExit): memfit.cli.main(['--help'])",
        "import memfit.cli; memfit.cli.main(['report', 'missing.json'])",
    ],
)
def test_tensorflow_is_not_loaded(code: str) -> None:
    program = f"{code}\nimport sys; print([name for name in {SLOW} if name in sys.modules])"
    answer = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_importing_memfit_loads_no_third_party_package() -> None:
    program = "import sys; before = set(sys.modules); import memfit; print(*set(sys.modules) - before)"
    answer = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in answer.stdout.split()}
    assert loaded <= set(sys.stdlib_module_names) | {"memfit"}
