"""Shows a real out-of-memory: plain Keras trains an LSTM on long text, in 256 MiB and without a limit.

The text is Python's own manual, the script is an ordinary one, and each run is a process of its own
under TensorFlow's real allocator.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from memfit.cli.numbers import positive
from memfit.errors import SetupError, TrialError
from memfit.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from memfit.records import Measurement

HELP: Final = "a real out-of-memory on this machine, in a minute"
EXAMPLES: Final = """\
examples:
  memfit demo
  memfit demo --budget 512MiB --length 4000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument("--budget", metavar="SIZE", default="256MiB", help="the limit (default: 256MiB)")
    parser.add_argument(
        "--length",
        metavar="N",
        type=positive,
        default=1500,
        help="characters a sequence (default: 1500)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Runs the script under the limit and without one, and shows both."""
    from rich.console import Console

    from memfit.budgeting.budget import budget
    from memfit.measuring.trial import measure
    from memfit.records import Outcome

    if find_spec("tensorflow") is None:
        raise SetupError(
            "the demo trains with TensorFlow, which is not installed. Type: pip install 'memfit[cpu]'"
        )
    limit_bytes = budget(arguments.budget).device_bytes
    script = find_spec("memfit.cli.demo_tf")
    assert script is not None and script.origin is not None
    options = ("--length", str(arguments.length))
    console = Console()
    console.print(
        f"Plain Keras trains a 2 x LSTM(256) on sequences of {arguments.length} characters, 16 at a time, "
        f"in {format_bytes(limit_bytes)} of memory.\n"
    )
    with console.status(
        f"training in {format_bytes(limit_bytes)} (a failed request waits 10 s before it is one)..."
    ):
        limited = measure(script.origin, *options, device_limit=limit_bytes)
    with console.status("training without a limit, to see what it takes..."):
        free = measure(script.origin, *options)
    console.print(_table({f"in {format_bytes(limit_bytes)}": limited, "without a limit": free}))
    if limited.outcome not in (Outcome.DEVICE_OUT_OF_MEMORY, Outcome.OK) or free.outcome is not Outcome.OK:
        raise TrialError(f"the demo did not go as it should: {limited.reason} {free.reason}\n{free.output}")
    console.print(
        f"\n{_moral(limited, free)}\n\nNow your own script: memfit run --budget {arguments.budget} train.py"
    )
    return 0


def _table(runs: dict[str, Measurement]) -> Table:
    from rich.table import Table

    table = Table("plain Keras", "outcome", "peak", "time")
    for name, run in runs.items():
        peak = "" if run.peak_bytes is None else format_bytes(run.peak_bytes)
        table.add_row(name, run.outcome.value, peak, format_seconds(run.seconds))
    return table


def _moral(limited: Measurement, free: Measurement) -> str:
    from memfit.records import Outcome

    assert free.peak_bytes is not None and limited.device_limit_bytes is not None
    share = free.peak_bytes / limited.device_limit_bytes
    if limited.outcome is Outcome.OK:
        return f"It fits: it takes {share:.0%} of the budget. For an out-of-memory try a greater --length."
    return (
        f"Plain Keras needs {format_bytes(free.peak_bytes)}, {share:.1f} times the budget, and dies:\n"
        f"{limited.reason}"
    )
