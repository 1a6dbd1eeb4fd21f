"""Trains an LSTM on long text in 256 MiB: plain Keras, which dies, and memfit, which does not.

The text is Python's own manual, and each run is a process of its own under TensorFlow's real allocator, with
a real limit. They run side by side: most of the time, the one that dies only waits for memory.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from memfit.cli.numbers import positive
from memfit.errors import SetupError, TrialError
from memfit.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from memfit.records import Measurement

HELP: Final = "plain Keras runs out of memory on this machine, memfit does not"
EXAMPLES: Final = """\
examples:
  memfit demo
  memfit demo --budget 512MiB --length 4000
"""
NUM_STEPS: Final = 8


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
    """Runs both under the limit, and shows them side by side."""
    from rich.console import Console

    from memfit.budgeting.budget import budget
    from memfit.measuring.trial import measure
    from memfit.records import Estimate, Outcome, Plan, Run

    if find_spec("tensorflow") is None:
        raise SetupError(
            "the demo trains with TensorFlow, which is not installed. Type: pip install 'memfit[cpu]'"
        )
    limit_bytes = budget(arguments.budget).device_bytes
    script = find_spec("memfit.cli.demo_tf")
    assert script is not None and script.origin is not None
    console = Console(highlight=False)
    console.print(
        f"A 2 x LSTM(256) learns from sequences of {arguments.length} characters, 16 at a time, in "
        f"{format_bytes(limit_bytes)} of memory.\n"
    )
    origin = script.origin
    with console.status("plain Keras trains; memfit, beside it, estimates, plans, rehearses and trains..."):
        dying = _beside(lambda: measure(origin, "--length", str(arguments.length), device_limit=limit_bytes))
        dying.add_done_callback(lambda done: console.print(_told(done)))
        fitted = measure(_train, arguments.length, NUM_STEPS, limit_bytes, device_limit=limit_bytes)
        plain = dying.result()
    if fitted.outcome is not Outcome.OK or plain.outcome not in (Outcome.DEVICE_OUT_OF_MEMORY, Outcome.OK):
        raise TrialError(f"the demo did not go as it should: {plain.reason} {fitted.reason}\n{fitted.output}")
    estimate, plan = Estimate.from_dict(fitted.value["estimate"]), Plan.from_dict(fitted.value["plan"])
    console.print(
        f"[bold]memfit[/] estimates that plain Keras takes {format_bytes(estimate.low_bytes)} to "
        f"{format_bytes(estimate.high_bytes)}. It plans, rehearses and trains:\n"
    )
    console.print(str(plan), markup=False, soft_wrap=True)
    console.print()
    run = Run.from_dict(fitted.value["run"])
    peaks = (plain.peak_bytes, max((each or 0 for each in run.peak_bytes), default=None))
    console.print(_table((plain, fitted), peaks))
    if fitted.peak_bytes is not None:
        planning = format_bytes(fitted.peak_bytes)
        console.print(f"Peaks are those of the training. All of memfit's work stayed within {planning}.")
    console.print(
        f"\nNow your own: memfit plan train.py:make_model --budget {arguments.budget}\n"
        f'or in Python: memfit.fit(model, x, y, budget="{arguments.budget}")'
    )
    return 0


def _beside(run: Callable[[], Measurement]) -> Future[Measurement]:
    """What a run comes to, on a thread that an interrupt need not wait for."""
    found: Future[Measurement] = Future()

    def work() -> None:
        try:
            found.set_result(run())
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for.
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found


def _told(plain: Future[Measurement]) -> str:
    """The end of plain Keras in words, as soon as it comes."""
    if plain.exception() is not None:
        return ""
    return f"[bold]plain Keras[/]: {plain.result().outcome.value}. {plain.result().reason}\n"


def _train(length: int, num_steps: int, budget_bytes: int) -> dict[str, Any]:
    from memfit.cli.demo_memfit_tf import train

    return train(length, num_steps, budget_bytes)


def _table(runs: Sequence[Measurement], peaks: Sequence[int | None]) -> Table:
    from rich.table import Table

    table = Table("", "outcome", "peak", "steps", "loss", "time")
    for name, run, peak_bytes in zip(("plain Keras", "memfit"), runs, peaks, strict=True):
        losses = run.value["losses"] if isinstance(run.value, dict) else []
        table.add_row(
            name,
            run.outcome.value,
            "" if peak_bytes is None else format_bytes(peak_bytes),
            str(len(losses)) if losses else "",
            f"{losses[0]:.2f} to {losses[-1]:.2f}" if losses else "",
            format_seconds(run.seconds),
        )
    return table
