"""The Python in the README and the docs runs as written."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = {path.name: re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL) for path in DOCUMENTS}


# Each document in a folder of its own, and each snippet as a script of its own.
RUN = """
import gc, os, pathlib, runpy, sys
for path in map(pathlib.Path, sys.argv[1:]):
    print("running", path, file=sys.stderr)
    os.chdir(path.parent)
    runpy.run_path(path.name, run_name="__main__")
    gc.freeze()  # What earlier ones left need not be looked through each time that memfit collects garbage.
"""


def test_snippets_run(tmp_path: Path) -> None:
    """One after the other in one process, which starts TensorFlow once, but those that set TensorFlow up."""
    together: list[Path] = []
    alone: list[list[Path]] = []
    for name, snippets in SNIPPETS.items():
        (tmp_path / name).mkdir()
        for number, code in enumerate(snippets):
            path = tmp_path / name / f"snippet_{number}.py"
            path.write_text(code)
            if "memfit.setup(" in code:
                alone.append([path])
            else:
                together.append(path)
    for paths in (together, *alone):
        command = (sys.executable, "-c", RUN, *map(str, paths))
        answer = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert answer.returncode == 0, answer.stderr[-3000:]


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
