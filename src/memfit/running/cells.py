"""The autopsy of a cell of a notebook that ran out of memory, in a kernel that goes on.

Shorter than that of a script: the kernel's standard error is the notebook's, so TensorFlow's list of chunks
is not at hand, and nothing is measured again in a process that the user goes on with.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console
from rich.text import Text

from memfit.errors import OutOfMemoryError
from memfit.guarding.autopsy import Evidence, perform
from memfit.guarding.story import STORY_NAME, read_story
from memfit.measuring import notebook, oom
from memfit.measuring.failure import report_failure
from memfit.measuring.job import Report
from memfit.measuring.outcome import Ending, failed_request, judge
from memfit.measuring.reading import read_memory
from memfit.records import Autopsy, Inventory, Measurement, Moment, Reading, Run
from memfit.report.terminal import render
from memfit.running.settings import Settings

WIDTH: Final = 80
RELEASE: Final = "What the cell that failed still holds is freed by: memfit.release()"


class Trained(Protocol):
    """What is known of the models of the kernel."""

    runs: list[Run]

    def inventory(self) -> Inventory:
        """What the process holds now."""


@dataclass(slots=True, kw_only=True)
class Cells:
    """Follows the cells of a kernel, and shows an autopsy below each that ran out of memory.

    Attributes:
        settings: How the kernel is run.
        folder: Where the story of its trainings is.
        trained: Returns what is known of its models, or `None` if Keras was not loaded.
        told: What was found, a sentence for each cell that ran out of memory.
    """

    settings: Settings
    folder: Path
    trained: Callable[[], Trained | None]
    told: list[str] = field(default_factory=list)
    _began_at: float = 0.0
    _num_runs: int = 0

    def follow(self) -> None:
        """Begins with the cell that runs now; does nothing where there are no cells."""
        self._begin()
        notebook.around_cells(before=self._begin, after=self._end)

    def _begin(self) -> None:
        self._began_at = time.time()
        self._num_runs = len(self._runs())

    def _end(self, error: BaseException) -> None:
        if not _is_out_of_memory(error):
            return
        autopsy = self._autopsy(report_failure(error, read_memory()))
        self.told.append(f"A cell ran out of memory, and the kernel went on: {autopsy.what}")
        # Jupyter's own way to show it would be a table in HTML, which no terminal and no log can show.
        console = Console(file=sys.stderr, width=WIDTH, highlight=False, force_jupyter=False)
        console.print(render(autopsy), Text(), RELEASE, sep="\n")

    def _autopsy(self, report: Report) -> Autopsy:
        runs, moments = self._runs()[self._num_runs :], self._moments()
        return perform(
            Evidence(
                measurement=self._measurement(Ending(exit_code=1, report=report), report.reading),
                place=report.place,
                is_observed=self.settings.is_observed,
                inventory=self._inventory(is_training=bool(moments)),
                moments=moments,
                plan=runs[-1].plan if runs else None,
                is_cell=True,
            )
        )

    def _measurement(self, ending: Ending, reading: Reading) -> Measurement:
        """A cell that an error ended, in the words for a script that an error ended."""
        outcome, reason = judge(ending)
        return Measurement(
            target="",
            outcome=outcome,
            reason=reason,
            seconds=time.time() - self._began_at,
            exit_code=ending.exit_code,
            reading=reading,
            device_limit_bytes=self.settings.budget_bytes,
            request=failed_request(ending),
        )

    def _moments(self) -> list[Moment]:
        """The story of this cell."""
        story = self.folder / STORY_NAME
        moments = read_story(story.read_text()) if story.exists() else []
        return [each for each in moments if each.at_seconds >= self._began_at]

    def _inventory(self, *, is_training: bool) -> Inventory | None:
        trained = self.trained()
        if trained is None:
            return None
        found = trained.inventory()
        # Batches are of the last `fit`, which may have been another cell's.
        return found if is_training else replace(found, batch_size=None, batch_shapes=(), largest_shapes=())

    def _runs(self) -> list[Run]:
        trained = self.trained()
        return [] if trained is None else trained.runs


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ended it. Asked before any meter is: reading those of devices would start TensorFlow."""
    is_given_up = isinstance(error, OutOfMemoryError)
    return is_given_up or oom.is_device_oom(error) or oom.is_host_oom(error)
