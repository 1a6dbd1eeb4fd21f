"""The Python in the README and the docs runs as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = [
    pytest.param(code, id=f"{path.name}:{number}")
    for path in DOCUMENTS
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(code)
    subprocess.run((sys.executable, "snippet.py"), cwd=tmp_path, check=True, capture_output=True, timeout=120)


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
