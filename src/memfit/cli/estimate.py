"""Estimates what a training step will take, for a batch that need not fit.

The real step is measured at a few tiny batches, with nothing applied, and replayed at the batch that is asked
for.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from memfit.cli import factory
from memfit.units import format_bytes

if TYPE_CHECKING:
    from memfit.records import Estimate

HELP: Final = "what a training step will take, before it is run"
EXAMPLES: Final = f"""\
examples:
  memfit estimate train.py:make_model --batch-size 64
  memfit estimate train.py:make_model --batch-size 64 --length 500
  memfit estimate package.module:make_model --batch-size 64 --budget 2GiB
  memfit estimate train.py:make_model --batch-size 64 --json > estimate.json

{factory.NOTE}
exit codes: 0 fine, 1 error, 2 usage, 3 does not fit the budget
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    factory.add_arguments(parser)
    parser.add_argument("--budget", metavar="SIZE", help="say whether it fits: 2GiB, 512MiB, 80%%")
    parser.add_argument("--json", action="store_true", help="print a record instead of a table")


def main(arguments: argparse.Namespace) -> int:
    """Loads the model, estimates, and prints."""
    from rich.console import Console

    from memfit.report.terminal import render

    estimate = _estimated(arguments)
    if arguments.json:
        print(estimate.to_json())
    else:
        Console().print(render(estimate))
    return 0 if arguments.budget is None else _compared(estimate, arguments.budget)


def _estimated(arguments: argparse.Namespace) -> Estimate:
    from rich.console import Console
    from rich.progress import Progress

    from memfit.measuring.noise import quiet
    from memfit.measuring.setup import setup

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting TensorFlow", total=4)

        def tell(what: str) -> None:
            progress.update(task, description=what, advance=1)

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with quiet():
            setup()
        tell(f"loading {arguments.factory}")
        made = factory.load(arguments.factory)
        from memfit.estimating.estimate_tf import estimate

        return estimate(
            made.model,
            made.data,
            batch_size=arguments.batch_size,
            length=arguments.length,
            loss=arguments.loss,
            optimizer=arguments.optimizer,
            tell=tell,
        )


def _compared(estimate: Estimate, spec: str) -> int:
    from memfit.budgeting.budget import budget

    device_bytes = budget(spec).device_bytes
    fits = estimate.high_bytes <= device_bytes
    sign, verdict = ("≤", "fits") if fits else (">", "does not fit")
    print(
        f"memfit: {verdict}: up to {format_bytes(estimate.high_bytes)} {sign} {format_bytes(device_bytes)}",
        file=sys.stderr,
    )
    return 0 if fits else 3
