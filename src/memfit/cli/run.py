"""Runs an unmodified script in the memory there is, with everything on.

`model.fit` is planned, split and survives running out of memory; `evaluate` and `predict` begin again in
smaller batches; RNN layers of loops of your own run by time segments. With --observe nothing is changed, and
memfit only watches.

The script runs in a child process as under plain Python: its arguments, input, output, signals and exit code
are its own. If memory runs out, even by a segmentation fault or by the kernel, an autopsy says what was asked
for, by which op and line, what was alive, why it came to that, and what to type next.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memfit.cli.allowing import add_allow
from memfit.cli.numbers import whole
from memfit.errors import UsageError
from memfit.units import format_bytes

if TYPE_CHECKING:
    from memfit.measuring.script import Script
    from memfit.records import Session
    from memfit.running.settings import Settings

HELP: Final = "an unmodified script in the memory there is, or why it does not fit"
EXAMPLES: Final = """\
examples:
  memfit run train.py --lr 0.1                   with everything on
  memfit run --budget 256MiB train.py            in 256 MiB
  memfit run --budget 80% -m package.train       a module, in 80 % of what there is
  memfit run --observe train.py                  as it is: what does it take?
  memfit run --observe --budget 256MiB train.py  as it is: does it fit?
  memfit run --restarts 2 --record run.json train.py
  memfit run --host-budget 8GiB train.py         end it above that
  cat train.py | memfit run -                    from standard input

The exit code is the script's own; 128 + N if signal N ended it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument(
        "--budget",
        metavar="SIZE",
        help="what the device may use: 2GiB, 512MiB, 80%%; default: what there is",
    )
    parser.add_argument(
        "--host-budget", metavar="SIZE", help="end the script above this much host memory; default: never"
    )
    add_allow(parser)
    parser.add_argument(
        "--restarts",
        metavar="N",
        type=whole,
        default=0,
        help="start it again up to N times, under a tighter plan, when memory ends it; default: 0",
    )
    parser.add_argument("--observe", action="store_true", help="change nothing and only watch")
    parser.add_argument(
        "--clean",
        action="store_true",
        help="turn oneDNN off: an out-of-memory on the CPU is then always an exception (slower)",
    )
    parser.add_argument("--record", metavar="FILE", help="write what was seen to FILE, as JSON")
    parser.usage = "memfit run [OPTION ...] SCRIPT|-m MODULE|- [ARGUMENT ...]"
    parser.add_argument(
        "-m",
        dest="module",
        metavar="MODULE [ARGUMENT ...]",
        nargs=argparse.REMAINDER,
        help="a module and its own arguments, as after python -m",
    )
    parser.add_argument(
        "script",
        metavar="SCRIPT [ARGUMENT ...]",
        nargs=argparse.REMAINDER,
        help="the script and its own arguments: a file, a folder or archive with a __main__.py, or - for "
        "standard input",
    )


def main(arguments: argparse.Namespace) -> int:
    """Runs the script, says what became of it, and returns its exit code."""
    from memfit.running.supervise import supervise

    script = _script(arguments)
    _check_record(arguments.record)
    settings = _settings(arguments)
    session = supervise(script, settings, num_restarts=arguments.restarts, say=_say)
    for line in _closing_lines(session):
        _say(line)
    _show_autopsy(session)
    _say(_summary(session))
    if arguments.record:
        session.save(arguments.record)
    exit_code = session.measurement.exit_code
    return 128 - exit_code if exit_code < 0 else exit_code


def _script(arguments: argparse.Namespace) -> Script:
    from memfit.measuring.script import STANDARD_INPUT, Script
    from memfit.measuring.trial import find_script

    if arguments.module is not None:
        if not arguments.module:
            raise UsageError("a module is missing after -m. Type: memfit run -m package.train")
        name, *own_arguments = arguments.module
        return Script(path=name, arguments=tuple(own_arguments), is_module=True)
    words = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not words:
        raise UsageError("a script is missing. Type: memfit run train.py")
    path, *own_arguments = words
    if path == STANDARD_INPUT:
        return Script(path=path, arguments=tuple(own_arguments), source=sys.stdin.read())
    return Script(path=find_script(path), arguments=tuple(own_arguments))


def _settings(arguments: argparse.Namespace) -> Settings:
    from memfit.budgeting.budget import budget
    from memfit.running.settings import Settings
    from memfit.strategies.allowing import check_allowed

    host = arguments.host_budget
    return Settings(
        budget_bytes=_limit_bytes(arguments.budget),
        host_limit_bytes=None if host is None else budget(host=host).host_bytes,
        allow=check_allowed(tuple(word for each in arguments.allow for word in each.split(","))),
        is_observed=arguments.observe,
        is_clean=arguments.clean,
    )


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
        _say(
            f"warning: the budget of {format_bytes(limit_bytes)} is above this machine's memory of "
            f"{format_bytes(machine.total_bytes())}; on the CPU the kernel will end the script before the "
            "limit does."
        )
    return limit_bytes


def _closing_lines(session: Session) -> Iterator[str]:
    measurement = session.measurement
    if measurement.outcome.is_out_of_memory or measurement.exit_code < 0 or measurement.num_failed_requests:
        yield f"{measurement.outcome.value}: {measurement.reason}"


def _show_autopsy(session: Session) -> None:
    if session.autopsy is None or session.autopsy.is_survived:
        return
    from rich.console import Console

    from memfit.report.terminal import render

    Console(stderr=True, highlight=False).print(render(session.autopsy))


def _summary(session: Session) -> str:
    from memfit.report.terminal import summarise

    return summarise(session.measurement)


def _say(line: str) -> None:
    print(f"memfit: {line}", file=sys.stderr, flush=True)
