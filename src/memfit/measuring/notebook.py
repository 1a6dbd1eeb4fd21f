"""What IPython, in a Jupyter kernel or at a prompt, knows of its cells and keeps of their results.

Nothing here loads IPython: where the program has not, there are no cells.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from memfit.measuring import importing
from memfit.units import CELL

# What IPython calls the code of a cell, for places that come from another process: "<ipython-input-3-0f…>" at
# a prompt, "/tmp/ipykernel_4711/52556727.py" in a kernel.
_FILE: Final = re.compile(r".*ipython-input-(\d+)-\w+.*|.*/ipykernel_\d+/\d+\.py")
_HISTORY: Final = re.compile(r"_+|_i*\d*|_oh|Out")
HISTORY: Final = "Out"


def shell() -> Any:
    """The running IPython, or `None`."""
    return sys.modules["IPython"].get_ipython() if importing.is_loaded("IPython") else None


def around_cells(*, before: Callable[[], None], after: Callable[[BaseException], None]) -> None:
    """Calls `before` when a cell begins, and `after` when an error has ended it and was shown.

    Nothing happens without IPython. What it calls must not raise: IPython would show that in the cell.
    """
    running = shell()
    if running is None:
        return

    def ended(result: Any) -> None:
        if (
            result is not None and result.error_in_exec is not None
        ):  # A cell that was cancelled has no result.
            after(result.error_in_exec)

    running.events.register("pre_run_cell", lambda _: before())
    running.events.register("post_run_cell", ended)


def cell_name(file: str) -> str | None:
    """`"cell In[3]"` for the name that IPython gave to the code of a cell; `None` for a file's.

    Example:
    >>> cell_name("<ipython-input-3-0f1e2d>"), cell_name("/tmp/ipykernel_12/345.py"), cell_name("train.py")
    ('cell In[3]', 'cell In[?]', None)
    """
    running = shell()
    # IPython before 8.5 cannot say.
    label = None if running is None else getattr(running.compile, "format_code_name", lambda _: None)(file)
    if label is not None:
        return f"cell {label[1]}"  # "In[3]"
    found = _FILE.fullmatch(file)
    if found is None:
        return None
    return f"{CELL}{found[1] or '?'}]"


def cell_files() -> list[str]:
    """The names of all cells whose code is known, the newest first."""
    return [file for file in reversed(list(linecache.cache)) if cell_name(file) is not None]


def is_history(name: str) -> bool:
    """Whether a name in IPython's namespace is of its history, and not the user's own.

    Example:
    >>> [is_history(name) for name in ("_", "___", "_14", "Out", "_losses", "losses")]
    [True, True, True, True, False, False]
    """
    return _HISTORY.fullmatch(name) is not None


def is_namespace(thing: object) -> bool:
    """Whether something is the dict of all of a notebook's names, or of those that IPython adds to it."""
    running = shell()
    return running is not None and (thing is running.user_ns or thing is running.user_ns_hidden)


def is_outputs(thing: object) -> bool:
    """Whether something is the dict in which IPython keeps the results that cells have shown."""
    running = shell()
    return running is not None and thing is running.user_ns.get(HISTORY)


def outputs() -> dict[int, Any]:
    """What IPython keeps of the results that cells have shown, by the cell's number."""
    running = shell()
    return {} if running is None else dict(running.user_ns.get(HISTORY, {}))


def own_names() -> dict[str, Any]:
    """What the user's own names in IPython's namespace stand for."""
    running = shell()
    names = {} if running is None else dict(running.user_ns)
    return {name: value for name, value in names.items() if not is_history(name)}
