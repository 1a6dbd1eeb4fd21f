"""Places in the user's own code, told apart from libraries and shown as short as possible."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

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
        if not name.startswith(("<", *_LIBRARIES)):
            return f"{_short(Path(name))}:{line}"
    return None


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
