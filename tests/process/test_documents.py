"""The Python in the README and the docs runs as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = {path.name: re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL) for path in DOCUMENTS}


@pytest.mark.parametrize("name", [name for name, snippets in SNIPPETS.items() if snippets])
def test_snippets_run(name: str, tmp_path: Path) -> None:
    """Each as a script of its own; one after the other in one process, but those that set TensorFlow up."""
    processes: list[list[str]] = [[]]
    for number, code in enumerate(SNIPPETS[name]):
        file = f"snippet_{number}.py"
        (tmp_path / file).write_text(code)
        if "memfit.setup(" in code:
            processes.append([file])
        else:
            processes[0].append(file)
    for files in processes:
        program = f"import runpy\nfor file in {files}: runpy.run_path(file, run_name='__main__')"
        command = (sys.executable, "-c", program)
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)


def test_links_lead_somewhere() -> None:
    for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    listed = subprocess.run(("make", "help"), cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for target in re.findall(r"^\.PHONY: (.*)", text, re.MULTILINE)[0].split():
        assert f"make {target} " in listed
