"""Finds the fastest way to train within a budget, and rehearses it.

Each strategy is measured at small batches; the fastest combination that fits is run once on the largest
batch, with nothing applied to the model. The plan can be saved and given to memfit.fit.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from memfit.cli import factory
from memfit.cli.allowing import add_allow

if TYPE_CHECKING:
    from memfit.records import Plan

HELP: Final = "the fastest way to train within a budget, rehearsed"
EXAMPLES: Final = f"""\
examples:
  memfit plan train.py:make_model --batch-size 64 --budget 2GiB
  memfit plan train.py:make_model --batch-size 64 --length 500 --budget 512MiB
  memfit plan train.py:make_model --budget 2GiB --allow split_batch_norm
  memfit plan train.py:make_model --budget 2GiB --json > plan.json

In Python: memfit.fit(model, x, y, plan=memfit.Plan.load("plan.json"))

{factory.NOTE}
exit codes: 0 fine, 1 error, 2 usage, 3 nothing fits the budget
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    factory.add_arguments(parser)
    parser.add_argument(
        "--budget", metavar="SIZE", help="2GiB, 512MiB, 80%% (default: what memfit facts says)"
    )
    add_allow(parser)
    parser.add_argument("--json", action="store_true", help="print a record instead of a table")


def main(arguments: argparse.Namespace) -> int:
    """Loads the model, plans, and prints."""
    plan = _planned(arguments)
    print(plan.to_json() if arguments.json else plan)
    return 0


def _planned(arguments: argparse.Namespace) -> Plan:
    from rich.console import Console

    from memfit.measuring.noise import quiet
    from memfit.measuring.setup import setup

    with Console(stderr=True).status("starting TensorFlow") as status:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with quiet():
            setup()
        status.update(f"loading {arguments.factory}")
        made = factory.load(arguments.factory)
        from memfit.planning.plan_tf import plan

        return plan(
            made.model,
            made.data,
            budget=arguments.budget,
            batch_size=arguments.batch_size,
            length=arguments.length,
            allow=arguments.allow,
            loss=arguments.loss,
            optimizer=arguments.optimizer,
            tell=status.update,
        )
