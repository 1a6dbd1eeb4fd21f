"""Places in the user's own code, told apart from libraries and shown as short as possible."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from memfit.measuring.notebook import cell_name
from memfit.units import format_place

_LIBRARIES: Final = tuple(
    {
        sys.base_prefix,
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(Path(__file__).parents[1]),
    }
)


def first_user_place(frames: Iterable[tuple[str, int]]) -> str | None:
    """The first of some places that is in the user's own code, as `"train.py:30"`; `None` if none is.

    Args:
        frames: File name and line, innermost first.
    """
    for name, line in frames:
        place = user_place(name, line)
        if place is not None:
            return format_place(*place)
    return None


def user_place(name: str, line: int) -> tuple[str, int] | None:
    """A file, as short as it can be, or a notebook's cell, and the line; `None` if it is not the user's."""
    cell = cell_name(name)
    if cell is None and name.startswith(("<", *_LIBRARIES)):
        return None
    return cell or str(_short(Path(name))), line


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
