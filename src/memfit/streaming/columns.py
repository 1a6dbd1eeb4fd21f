"""Which columns of a table are inputs, which are labels and weights. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memfit.errors import UsageError

Names = str | Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Columns by what they are for. A single name stands for the column itself, several for a dict."""

    x: str | tuple[str, ...]
    y: str | tuple[str, ...] | None
    weights: str | None

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        parts = [self.x, *(part for part in (self.y, self.weights) if part is not None)]
        return list(
            dict.fromkeys(name for part in parts for name in ((part,) if isinstance(part, str) else part))
        )


def choose(
    available: Sequence[str], path: Path, *, columns: Names, labels: Names, weights: str | None
) -> Chosen:
    """The columns that were asked for; all that are not labels or weights, where none were.

    Example:
    >>> choose(["a", "b", "y"], Path("t.csv"), columns=None, labels="y", weights=None).x
    ('a', 'b')
    """
    y = labels if labels is None or isinstance(labels, str) else tuple(labels)
    taken = {weights, *((y,) if isinstance(y, str) else y or ())}
    if columns is None:
        x: str | tuple[str, ...] = tuple(name for name in available if name not in taken)
    else:
        x = columns if isinstance(columns, str) else tuple(columns)
    if not x:
        raise UsageError(f"no column of {path} is left for the inputs. Pass columns=.")
    chosen = Chosen(x=x, y=y, weights=weights)
    check_columns(chosen.names, available, path)
    return chosen


def check_columns(columns: Iterable[str], available: Sequence[str], path: Path) -> None:
    """Refuses a column that is not there."""
    for name in columns:
        if name not in available:
            raise UsageError(
                f"there is no column {name!r} in {path}. It has: {', '.join(available) or 'none'}."
            )
