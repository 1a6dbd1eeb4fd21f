"""Where graphs come from: which function was traced how often, where, and what about its arguments changed.

Pure: it is told what was traced, and says who keeps on doing it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

MANY_TRACES: Final = 8
MANY_BUILDS: Final = 4
MAX_STEPS: Final = 64

Description = tuple[str, str]


@dataclass(slots=True)
class Origin:
    """One place in the source where graphs come from.

    Attributes:
        name: The function's name.
        file: Where it is defined.
        line: Where its code begins.
        caller: File and line of the user's own code that led there, or `None`.
        is_library: Whether a library's function was traced: Keras's training function.
        is_dataset: Whether a data pipeline was built.
        num: How often it was traced.
        num_made: How often it was a function that was never seen before.
        steps: When, the last of them.
        changes: How often each argument was why, by name, with what changed.
        arguments: What the arguments were the last time.
    """

    name: str
    file: str
    line: int
    caller: tuple[str, int] | None
    is_library: bool = False
    is_dataset: bool = False
    num: int = 0
    num_made: int = 0
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_STEPS))
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    arguments: dict[str, Description] = field(default_factory=dict)

    def happened(self, step: float, *, is_new: bool) -> None:
        """It was traced once more; `is_new` says that the function itself is new."""
        self.num += 1
        self.num_made += is_new
        self.steps.append(step)

    def called_with(self, arguments: dict[str, Description]) -> None:
        """It was traced for these arguments: those that are not as before are why."""
        before, self.arguments = self.arguments, arguments
        for name, (kind, text) in arguments.items() if before else ():
            if before.get(name) != (kind, text):
                self.changes[name, kind] += 1

    def culprit(self) -> tuple[str, str] | None:
        """The argument that changed most often, and what it is."""
        return self.changes.most_common(1)[0][0] if self.changes else None

    def goes_on(self, now: float) -> bool:
        """Whether it is not long ago, by how far apart the last of them were."""
        gap = (self.steps[-1] - self.steps[0]) / max(1, len(self.steps) - 1)
        return now - self.steps[-1] <= 2 * max(1.0, gap)

    def is_retraced(self, now: float) -> bool:
        """Whether one and the same function is traced again and again."""
        return not self.is_dataset and self.num - self.num_made >= MANY_TRACES and self.goes_on(now)

    def is_rebuilt(self, now: float) -> bool:
        """Whether the function, the model or the data pipeline is made again and again."""
        return self.num_made >= MANY_BUILDS and self.goes_on(now)


class Origins:
    """All places where graphs came from."""

    def __init__(self) -> None:
        self._origins: dict[Hashable, Origin] = {}
        self.num = 0

    def at(self, origin: Origin) -> Origin:
        """The one that stands for the same place, which may be the one given."""
        self.num += 1
        key = (origin.name, origin.file, origin.line, origin.caller, origin.is_dataset)
        return self._origins.setdefault(key, origin)

    def all(self) -> list[Origin]:
        """Those that were traced most first."""
        return sorted(self._origins.values(), key=lambda each: -each.num)
