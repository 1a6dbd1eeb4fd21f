"""Doing something just before and just after a module is first imported, by whoever imports it.

A script's memory must be set up after it has imported TensorFlow and before it uses it, without a
change to the script. This is Python's own import protocol: a finder that steps aside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def around(name: str, *, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Calls `before` and `after` around the first import of the module `name`."""
    sys.meta_path.insert(0, _Finder(name, before, after))


def is_loaded(name: str) -> bool:
    """Whether a module has been imported wholly: not missing, and not in the middle of it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


class _Finder(MetaPathFinder):
    def __init__(self, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._name = name
        self._before = before
        self._after = after

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        self._before()
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._after)
        return spec


class _Loader(Loader):
    """A module's own loader, with a call after it."""

    def __init__(self, loader: Loader, after: Callable[[], None]) -> None:
        self._loader = loader
        self._after = after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader  # From here on the module is as if we were not there.
        self._loader.exec_module(module)
        self._after()
