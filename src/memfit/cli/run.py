"""Runs an unmodified script under a real limit on device memory, with a true meter.

The script runs in a child process as under plain Python: its arguments, input, output, signals and exit
code are its own. At the end, one line says the peak and the budget; if memory ran out, even by a
segmentation fault, it says what was asked for, by which op, and where.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memfit.errors import UsageError
from memfit.units import format_bytes

if TYPE_CHECKING:
    from memfit.records import Measurement

HELP: Final = "an unmodified script under a real limit, with a true meter"
EXAMPLES: Final = """\
examples:
  memfit run train.py                           what does it take?
  memfit run --budget 256MiB train.py --lr 0.1  does it fit in 256 MiB?
  memfit run --budget 80% train.py              in 80 % of what is available
  memfit run --budget 2GiB --record run.json train.py

The exit code is the script's own; 128 + N if signal N ended it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument(
        "--budget",
        metavar="SIZE",
        help="a hard limit on device memory: 2GiB, 512MiB, 80%%; default: none",
    )
    parser.add_argument(
        "--clean",
        action="store_true",
        help="turn oneDNN off: an out-of-memory on the CPU is then always an exception (slower)",
    )
    parser.add_argument("--record", metavar="FILE", help="write what was measured to FILE, as JSON")
    parser.usage = "memfit run [--budget SIZE] [--clean] [--record FILE] SCRIPT [ARGUMENT ...]"
    parser.add_argument(
        "script",
        metavar="SCRIPT [ARGUMENT ...]",
        nargs=argparse.REMAINDER,
        help="the script and its own arguments",
    )


def main(arguments: argparse.Namespace) -> int:
    """Runs the script, says what it took, and returns its exit code."""
    from memfit.measuring.attending import attend
    from memfit.measuring.trial import find_script

    script, *own_arguments = _without_mark(arguments.script)
    find_script(script)
    _check_record(arguments.record)
    limit_bytes = _limit_bytes(arguments.budget)
    measurement = attend(
        script,
        own_arguments,
        device_limit_bytes=limit_bytes,
        clean=arguments.clean,
    )
    for line in _closing_lines(measurement):
        print(f"memfit: {line}", file=sys.stderr)
    if arguments.record:
        measurement.save(arguments.record)
    return 128 - measurement.exit_code if measurement.exit_code < 0 else measurement.exit_code


def _without_mark(words: list[str]) -> list[str]:
    """The script and its arguments, without a `--` before them."""
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise UsageError("a script is missing. Type: memfit run train.py")
    return words


def _check_record(path: str | None) -> None:
    """Refuses before the run what would lose its record after it."""
    if path is None:
        return
    folder = Path(path).parent
    if Path(path).is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(
            f"cannot write a record to {path!r}. Name a file in a folder that is there: run.json"
        )


def _limit_bytes(spec: str | None) -> int | None:
    """The limit that was asked for, by the option or the environment; `None` if none was."""
    from memfit.budgeting import allocator, machine
    from memfit.budgeting.budget import budget

    if spec is None and not os.environ.get(allocator.BUDGET):
        return None
    limit_bytes = budget(spec).device_bytes
    if limit_bytes > machine.total_bytes():
        print(
            f"memfit: warning: the budget of {format_bytes(limit_bytes)} is above this machine's memory of "
            f"{format_bytes(machine.total_bytes())}; on the CPU the kernel will end the script before the "
            "limit does.",
            file=sys.stderr,
        )
    return limit_bytes


def _closing_lines(measurement: Measurement) -> Iterator[str]:
    from memfit.records import Outcome
    from memfit.report.terminal import summarise

    if measurement.outcome.is_out_of_memory or measurement.exit_code < 0 or measurement.num_failed_requests:
        yield f"{measurement.outcome.value}: {measurement.reason}"
    if measurement.outcome is Outcome.DEVICE_OUT_OF_MEMORY and measurement.device_limit_bytes is not None:
        yield f"to see what it needs, type: memfit run {measurement.target}"
    yield summarise(measurement)
