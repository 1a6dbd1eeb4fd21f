"""Every error memfit raises on purpose, and the exit code each one gives the command line.

    MemfitError                     1   anything memfit could not do
    ├── UnitError (ValueError)      2   a size that cannot be read: "banana", "-1GiB"
    ├── UsageError (ValueError)     2   an argument that cannot be right: a script that is not there
    ├── RecordError (ValueError)    1   a record file that is broken or is another record
    ├── SetupError (RuntimeError)   1   TensorFlow is missing, or started before memfit could set it up
    ├── TrialError (RuntimeError)   1   a fresh process could not be started or read
    ├── OutOfMemoryError (RuntimeError)  3   training does not fit, and nothing is left to try
    ├── LossError (ArithmeticError)  1   the loss is not a number
    └── ResumeError (RuntimeError)  1   a folder that does not belong to this run, or cannot be written

    MemfitWarning (UserWarning)         something memfit does less well than it could, and the remedy

A message says what happened with the numbers, then what was expected, then what to type next.
An out-of-memory in a trial is not an error here: it is a `Measurement` with that outcome.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

# Keras puts the reason in bold, between where it happened and what was passed.
_BOLD: Final = re.compile(r"\x1b\[1m(.*?)\x1b\[0m", re.DOTALL)


class MemfitError(Exception):
    """What memfit could not do. The command line prints it without a traceback."""

    exit_code: ClassVar[int] = 1


class UnitError(MemfitError, ValueError):
    """A size that cannot be read; the message points at the fault and shows valid forms."""

    exit_code = 2


class UsageError(MemfitError, ValueError):
    """An argument that cannot be right, whatever the machine."""

    exit_code = 2


class RecordError(MemfitError, ValueError):
    """A record that cannot be read, or a file that holds another one."""


class SetupError(MemfitError, RuntimeError):
    """TensorFlow is missing, or has started already, so its memory cannot be set up any more."""


class TrialError(MemfitError, RuntimeError):
    """A trial that did not even start, or whose result cannot come back."""


class BudgetError(MemfitError, ValueError):
    """A budget that no plan fits. The message says what the tightest one needs, and what would help.

    Attributes:
        fitting_length: The steps of sequences that would fit, by arithmetic; `None` if no length helps.
    """

    exit_code = 3
    fitting_length: int | None = None


class OutOfMemoryError(MemfitError, RuntimeError):
    """A step that does not fit, with nothing left to try. The model is as it was after the last good step.

    Attributes:
        run: The `Run` until then, or `None` in a loop of your own.
    """

    exit_code = 3
    run: Any = None


class LossError(MemfitError, ArithmeticError):
    """A loss that is not a number. The model is as it was before the step.

    Attributes:
        run: The `Run` until then, or `None` in a loop of your own.
    """

    run: Any = None


class ResumeError(MemfitError, RuntimeError):
    """A folder for checkpoints that belongs to another run, is in use, or cannot be written."""


class MemfitWarning(UserWarning):
    """Something that memfit does less well than it could here, and what to do about it."""


def reason_of(error: BaseException) -> str:
    r"""What an error of TensorFlow, Keras or the user's own code says went wrong, as one sentence.

    Example:
    >>> reason_of(ValueError("Exception when calling A.call().\n\n\x1b[1mno axis\x1b[0m\n\nArguments: x=1"))
    'no axis.'
    """
    text = str(error)
    found = _BOLD.search(text)
    lines = (text if found is None else found[1]).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
