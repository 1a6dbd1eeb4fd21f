"""Models for the command line: `script.py:function` or `package.module:function`, called without arguments.

The file is imported, not run: what stands under `if __name__ == "__main__":` is left alone, and a file that
trains while it is imported is stopped and told so. Shared by the commands that need a model.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from memfit.cli.numbers import positive
from memfit.errors import MemfitError, UsageError, reason_of

HELP: Final = (
    "script.py:function or package.module:function; the function takes no arguments and returns a compiled "
    "model, or a model and its data"
)
NOTE: Final = """\
The file is imported, not run: keep its training under 'if __name__ == "__main__":' or in
another function. The function returns a compiled Keras model, or (model, data), with data as
(x, y) or a tf.data set.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options that say which model is meant and how it is trained."""
    parser.add_argument("factory", metavar="FACTORY", help=HELP)
    parser.add_argument("--batch-size", metavar="N", type=positive, help="examples in a batch")
    parser.add_argument(
        "--length", metavar="N", type=positive, help="time steps, if the model leaves them free"
    )
    parser.add_argument("--loss", metavar="NAME", help="for a model that is not compiled, such as mse")
    parser.add_argument("--optimizer", metavar="NAME", help="for a model that is not compiled, such as adam")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a factory returned.

    Attributes:
        model: The Keras model.
        data: Its data, or `None` if it returned a model alone.
    """

    model: Any
    data: Any


def load(place: str) -> Made:
    """What the function at a place returns.

    Args:
        place: `script.py:function` or `package.module:function`.

    Raises:
        UsageError: If there is no such function, or it returns something else than a model.
    """
    from memfit.cli.factory_tf import as_made

    return as_made(call(place), place)


def call(place: str) -> Any:
    """Whatever the function at a place returns.

    Raises:
        UsageError: If there is no such function, or it fails, or trains.
    """
    where, _, name = place.rpartition(":")
    if not where or not name.isidentifier():
        raise UsageError(
            f"{place!r} does not name a function. Say which one returns the model: train.py:make_model"
        )
    from memfit.cli.factory_tf import not_training

    with not_training(place):
        module = _imported(where)
        return _called(_found(module, where, name), place)


def _imported(where: str) -> ModuleType:
    if where.endswith(".py") or "/" in where:
        from memfit.measuring.trial import find_script

        path = Path(find_script(where)).resolve()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{where} is not a Python file. Name one: train.py:make_model")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        _guarded(lambda: spec.loader.exec_module(module), f"importing {where}")  # type: ignore[union-attr]
        return module
    sys.path.insert(0, str(Path.cwd()))
    if _is_missing(where):
        raise UsageError(f"there is no module {where!r}. Name a file with its ending: {where}.py:make_model")
    found: ModuleType = _guarded(lambda: importlib.import_module(where), f"importing {where}")
    return found


def _is_missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return True


def _found(module: ModuleType, where: str, name: str) -> Callable[[], Any]:
    function: Any = getattr(module, name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"]
        known = f" It has: {', '.join(own)}." if own else ""
        first = (own or ["make_model"])[0]
        raise UsageError(f"{where} has no function {name!r}.{known} Type: {where}:{first}")
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{where}:{name} needs {', '.join(needed)}, but is called without arguments. Give them defaults, "
            f"or add a function: def make_model(): return {name}(...)"
        )
    made: Callable[[], Any] = function
    return made


def _called(function: Callable[[], Any], place: str) -> Any:
    return _guarded(function, f"calling {place}")


def _guarded(call: Callable[[], Any], doing: str) -> Any:
    """Errors of the user's code with their place, and without our frames."""
    try:
        return call()
    except MemfitError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{doing} failed at {frame.filename}:{frame.lineno}: {type(error).__name__}: {reason_of(error)} "
            "Try it without memfit: python -c 'import ...'"
        ) from error
