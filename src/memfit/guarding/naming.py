"""Who holds an object, by name: a global, a local of a running function, an attribute, a closure, a default.

The garbage collector knows who refers to what. Names are found by going from the object up, container by
container, until something has one; those in the user's own files win.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CellType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, Final

from memfit.guarding.deadline import Deadline
from memfit.guarding.sources import assignment_line, growth_line, read_tree, shrinks
from memfit.measuring import notebook
from memfit.measuring.places import user_place

MAX_DEPTH: Final = 5
MAX_REFERRERS: Final = 40
UNSHARED: Final = 3  # References to a frame's copy of its locals that nobody else has asked for.
CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)
PACKAGE: Final = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Named:
    """A name that leads to an object.

    Attributes:
        name: As a reader would write it: `losses`, `Reader.seen`.
        variable: The last part of it, which is to be looked for in the source.
        file: Where.
    """

    name: str
    variable: str
    file: str

    def place(self) -> tuple[str, int] | None:
        """The file, as short as it can be, and the line where the variable grows, or else is made."""
        tree = read_tree(self.file)
        line = self.grows_at() or (None if tree is None else assignment_line(tree, self.variable))
        return None if line is None else user_place(self.file, line)

    def grows_at(self) -> int | None:
        """The line where the variable grows, if it does so by that name."""
        tree = read_tree(self.file)
        return None if tree is None else growth_line(tree, self.variable)

    def shrinks(self) -> bool:
        """Whether the file takes something out of the variable again."""
        tree = read_tree(self.file)
        return tree is not None and shrinks(tree, self.variable)


def is_user_file(file: str) -> bool:
    """Whether a file is the user's own, and no library's."""
    return not file.startswith(PACKAGE) and user_place(file, 1) is not None


def name_of(thing: object, deadline: Deadline | None = None) -> Named | None:
    """A name in the user's own files that leads to an object; the one that it grows by, if there is one.

    Args:
        thing: The object.
        deadline: When to be content with what was found: each container on the way costs a look at the whole
            heap.
    """
    found = []
    for each in _names(thing, 0, {id(thing)}, deadline or Deadline(None)):
        if is_user_file(each.file):
            found.append(each)
            if each.grows_at() is not None:  # There is none better.
                return each
    return max(found, key=lambda each: each.place() is not None, default=None)


def _names(thing: object, depth: int, seen: set[int], deadline: Deadline) -> Iterator[Named]:
    if notebook.is_namespace(thing):  # Its names have led here.
        return
    yield from _locals(thing)
    if deadline.is_over:
        return
    referrers = [each for each in gc.get_referrers(thing) if id(each) not in seen][:MAX_REFERRERS]
    for referrer in referrers:
        if referrer is not referrers and not isinstance(referrer, FrameType):
            yield from _names_through(referrer, thing, depth, seen, deadline)


def _names_through(
    referrer: Any, thing: object, depth: int, seen: set[int], deadline: Deadline
) -> Iterator[Named]:
    """Names of a thing that go through one of those that refer to it."""
    seen.add(id(referrer))
    if isinstance(referrer, GeneratorType):
        yield from _frame_names(referrer.gi_frame, thing)
    elif isinstance(referrer, CellType):
        yield from _closures(referrer)
    elif isinstance(referrer, CONTAINERS):
        if isinstance(referrer, dict):
            yield from _owners(referrer, thing)
        if isinstance(referrer, tuple):
            yield from _defaults(referrer, thing)
        if depth < MAX_DEPTH:
            yield from _names(referrer, depth + 1, seen, deadline)
    elif not isinstance(referrer, FunctionType | ModuleType):
        yield from _attributes(referrer, thing)


def _locals(thing: object) -> Iterator[Named]:
    # The collector does not see the locals of functions that run.
    for frame in running_frames():
        if is_user_file(frame.f_code.co_filename):
            yield from _frame_names(frame, thing)


def running_frames() -> Iterator[FrameType]:
    """The frames of all threads, the innermost first, without memfit's own."""
    for innermost in list(sys._current_frames().values()):
        frame: FrameType | None = innermost
        while frame is not None:
            if not frame.f_code.co_filename.startswith(PACKAGE):
                yield frame
            frame = frame.f_back


def _frame_names(frame: FrameType | None, thing: object) -> Iterator[Named]:
    if frame is None:
        return
    values = frame.f_locals
    names = [name for name, value in values.items() if value is thing]
    is_copy = sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED
    if is_copy and sys.getrefcount(values) <= UNSHARED:
        values.clear()  # The frame would keep it, and with it whatever the function drops later.
    for name in names:
        yield Named(name, name, frame.f_code.co_filename)


def _closures(cell: CellType) -> Iterator[Named]:
    for closure in gc.get_referrers(cell):
        if not isinstance(closure, tuple):
            continue
        for function in gc.get_referrers(closure):
            if isinstance(function, FunctionType) and function.__closure__ is closure:
                index = next(index for index, each in enumerate(closure) if each is cell)
                name = function.__code__.co_freevars[index]
                yield Named(name, name, function.__code__.co_filename)


def _defaults(values: tuple[Any, ...], thing: object) -> Iterator[Named]:
    """A default of a function's argument, which is made once and lives as long as the function."""
    for function in gc.get_referrers(values):
        if isinstance(function, FunctionType) and function.__defaults__ is values:
            names = function.__code__.co_varnames[: function.__code__.co_argcount][-len(values) :]
            index = next(index for index, each in enumerate(values) if each is thing)
            yield Named(names[index], names[index], function.__code__.co_filename)


def _owners(values: dict[Any, Any], thing: object) -> Iterator[Named]:
    """A module or an object whose names or attributes a dict is."""
    keys = [key for key, value in values.items() if value is thing and isinstance(key, str)]
    keys.sort(key=notebook.is_history)  # What IPython calls by names of its own may have one of the user's.
    for frame in running_frames() if keys else ():
        if frame.f_globals is values:
            yield Named(keys[0], keys[0], frame.f_code.co_filename)
    for owner in gc.get_referrers(values) if keys else ():
        if isinstance(owner, ModuleType) and vars(owner) is values:
            yield from (Named(keys[0], keys[0], file) for file in _files_of(owner))
        elif not isinstance(owner, (FrameType, FunctionType, *CONTAINERS)):
            named = _attribute(owner, keys[0])
            if named is not None and _value(owner, keys[0]) is thing:
                yield named


def _files_of(module: ModuleType) -> list[str]:
    """Where a module was written; for that of a notebook, which has no file, its cells."""
    file = getattr(module, "__file__", None)
    return [file] if file else notebook.cell_files()


def _attributes(owner: object, thing: object) -> Iterator[Named]:
    """Attributes of an object that refers to a thing without a dict between them."""
    for key in _attribute_names(owner):
        if _value(owner, key) is thing:
            named = _attribute(owner, key)
            if named is not None:
                yield named


def _attribute_names(owner: object) -> list[str]:
    try:
        return list(vars(owner))
    except TypeError:
        return [name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())]


def _value(owner: object, key: str) -> object:
    """An attribute, without running any code of the owner."""
    try:
        return vars(owner).get(key)
    except TypeError:
        return getattr(owner, key, None) if key in _attribute_names(owner) else None


def _attribute(owner: object, key: str) -> Named | None:
    """An attribute's name, in the file of the first class of the owner that is the user's."""
    kinds = (owner if isinstance(owner, type) else type(owner)).__mro__
    named = Named(f"{kinds[0].__name__}.{key}", key, "")
    files = (_file_of(kind) for kind in kinds)
    own = next((file for file in files if file and is_user_file(file)), None)
    if own is not None:
        return replace(named, file=own)
    # A library's object, such as a model, that an attribute was put on: what matters is who grows it.
    holder = next((frame.f_code.co_filename for frame in running_frames() if _is_user_frame(frame)), None)
    return None if holder is None else replace(named, file=holder)


def _file_of(kind: type) -> str:
    """Where a class was written: its methods know, also when another script has become `__main__` since."""
    codes = (each.__code__.co_filename for each in vars(kind).values() if isinstance(each, FunctionType))
    written = (file for file in codes if not file.startswith("<"))  # Not those that a decorator made.
    return next(written, getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _is_user_frame(frame: FrameType) -> bool:
    return is_user_file(frame.f_code.co_filename)
