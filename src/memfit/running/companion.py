"""What goes with a script into its process under `memfit run`.

It waits until the script has loaded TensorFlow and Keras, by whatever name, and then puts memfit under `fit`,
`evaluate`, `predict` and RNN layers, or, with `--observe`, only tells the story. Whatever it cannot do, it
says, and the script runs as under plain Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memfit.budgeting import allocator
from memfit.errors import MemfitError
from memfit.guarding.story import INVENTORY_NAME, StoryFile
from memfit.measuring import importing, notebook, oom
from memfit.running.settings import Settings

if TYPE_CHECKING:
    from memfit.running.cells import Cells
    from memfit.running.routing_tf import Routing

NEEDED: Final = frozenset({"tensorflow", "keras"})


@dataclass(slots=True, kw_only=True)
class Companion:
    """Follows a script. Pickled before it begins, so only `settings` and `variables` travel.

    Attributes:
        settings: How the script is run.
        variables: The allocator's variables as memfit set them: a script may set its own.
    """

    settings: Settings
    variables: dict[str, str] = field(default_factory=dict)
    _folder: Path | None = None
    _routing: Routing | None = None
    _cells: Cells | None = None
    _notes: list[str] = field(default_factory=list)

    def begin(self, folder: Path) -> None:
        """Remembers where to write."""
        self._folder = folder
        self.variables = {name: os.environ.get(name, "") for name in (allocator.USE_BFC, allocator.LIMIT_MIB)}

    def loaded(self, name: str) -> None:
        """Begins when the last of what is needed was loaded."""
        if self._cells is None and notebook.shell() is not None:
            self._follow_cells()
        if self._routing is None and all(importing.is_loaded(other) for other in NEEDED - {name}):
            self._install()

    def end(self, error: BaseException | None) -> Any:
        """What was done, what could not be watched, and, if memory ran out, what was alive."""
        # Said by the parent: a kernel's standard error leads to a notebook, which is gone by now.
        unsaid = [*self._notes, *self._unwatched()]
        told: dict[str, Any] = {"unsaid": unsaid, "notes": [*unsaid], "runs": [], "inventory": None}
        if self._cells is not None:
            told["notes"] += self._cells.told
        if self._routing is not None:
            watched = self._routing.end_watch()
            told["watched"] = None if watched is None else watched.to_dict()
            told["runs"] = [run.to_dict() for run in self._routing.runs]
            told["notes"] += self._routing.notes
            if error is not None and oom.is_device_oom(error):
                told["inventory"] = self._routing.last_inventory(oom.read_error(error)).to_dict()
            elif error is not None and (oom.is_host_oom(error) or _is_ours(error)):
                told["inventory"] = self._routing.inventory().to_dict()
        return told

    def _install(self) -> None:
        from memfit.running.routing_tf import Routing

        assert self._folder is not None
        try:
            routing = Routing(self.settings, StoryFile(self._folder), self._folder / INVENTORY_NAME)
            routing.install()
        except MemfitError as fault:
            self._notes.append(f"Keras runs as it is: {fault}")
        else:
            self._routing = routing

    def _follow_cells(self) -> None:
        from memfit.running.cells import Cells

        assert self._folder is not None
        self._cells = Cells(settings=self.settings, folder=self._folder, trained=lambda: self._routing)
        self._cells.follow()

    def _unwatched(self) -> Iterator[str]:
        """What of this script memfit could not see."""
        changed = [name for name, value in self.variables.items() if os.environ.get(name, "") != value]
        if changed:
            yield (
                f"The script sets {' and '.join(changed)} itself, so memfit's limit did not hold, and what "
                "the meter says is of the script's own choice."
            )
        if "ipykernel" in sys.modules:
            yield (
                "This was a Jupyter kernel: an error in a cell does not end it. The autopsy of a cell that "
                "ran out of memory is shown below the cell."
            )
        if importing.is_loaded("tensorflow") and not sys.modules["tensorflow"].executing_eagerly():
            yield "Eager mode is off, so devices have no meter; the limit held, and the host was measured."
        if "tf_keras" in sys.modules:
            yield "The script uses Keras 2 (tf_keras), which memfit does not touch; it was measured only."


def _is_ours(error: BaseException) -> bool:
    """Whether memfit's own engine gave up for want of memory."""
    from memfit.errors import BudgetError, OutOfMemoryError

    return isinstance(error, (OutOfMemoryError, BudgetError))
