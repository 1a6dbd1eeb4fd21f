"""Shows devices, allocator, limits and versions: what may be used here, and who says so."""

from __future__ import annotations

import argparse
from typing import Final

HELP: Final = "devices, allocator, limits, versions: what may be used here, and who says so"
EXAMPLES: Final = """\
examples:
  memfit facts
  memfit facts --json > facts.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument("--json", action="store_true", help="print a record instead of a table")


def main(arguments: argparse.Namespace) -> int:
    """Gathers the facts and prints them."""
    from rich.console import Console

    from memfit.measuring.facts import gather_facts
    from memfit.report.terminal import render

    with Console(stderr=True).status("asking TensorFlow..."):
        facts = gather_facts()
    if arguments.json:
        print(facts.to_json())
    else:
        Console().print(render(facts))
    return 0 if facts.tensorflow_error is None else 1
