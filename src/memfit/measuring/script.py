"""A script as plain Python would run it: a file, a module, a folder or archive, or standard input.

In all cases the script is `__main__`, for good, with the `sys.argv`, `sys.path[0]` and `__file__` that it
would have had.
"""

from __future__ import annotations

import builtins
import io
import pkgutil
import runpy
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final

STANDARD_INPUT: Final = "-"
STANDARD_INPUT_NAME: Final = "<stdin>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script with its arguments.

    Attributes:
        path: The file, the folder or archive with a `__main__.py`, the name of the module, or `"-"`.
        arguments: Its command line.
        is_module: Whether `path` names a module, as after `python -m`.
        source: What was read from standard input for the path `"-"`; `None` for other paths.
    """

    path: str
    arguments: tuple[str, ...]
    is_module: bool = False
    source: str | None = None

    def __str__(self) -> str:
        return " ".join((*(("-m",) if self.is_module else ()), self.path, *self.arguments))


def run_script(script: Script) -> None:
    """Runs a script as `python` does. What it raises passes through."""
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv[:] = [script.path, *script.arguments]
    if script.is_module:
        sys.argv[0] = "-m"
        sys.path[0] = str(Path.cwd())
        _run_module_as_main(script.path, alter_argv=True)
    elif script.source is not None:
        sys.path[0] = ""
        module.__dict__.update(__file__=STANDARD_INPUT_NAME)
        _execute(script.source, STANDARD_INPUT_NAME, module)
    elif pkgutil.get_importer(script.path) is not None:
        sys.path[0] = str(Path(script.path).absolute())
        _run_module_as_main("__main__", alter_argv=False)
    else:
        _run_file(Path(script.path).absolute(), module)


def _run_file(path: Path, module: ModuleType) -> None:
    module.__dict__.update(__file__=str(path), __loader__=SourceFileLoader("__main__", str(path)))
    sys.path[0] = str(path.resolve().parent)
    with io.open_code(str(path)) as file:
        _execute(file.read(), str(path), module)


def _execute(source: str | bytes, name: str, module: ModuleType) -> None:
    code = compile(source, name, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - running the user's script is what we are for


# What `python -m` itself calls. The public `runpy.run_module` puts the old `__main__` back at its end, before
# the script's threads and exit functions have run.
_run_module_as_main = runpy._run_module_as_main  # type: ignore[attr-defined]
