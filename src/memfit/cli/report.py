"""Shows a record that memfit wrote to a file."""

from __future__ import annotations

import argparse
from typing import Final

HELP: Final = "a record that memfit wrote, as a table"
EXAMPLES: Final = """\
examples:
  memfit run --budget 2GiB --record run.json train.py
  memfit report run.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a record, such as 'memfit run --record FILE' writes")


def main(arguments: argparse.Namespace) -> int:
    """Reads the record and prints it."""
    from rich.console import Console

    from memfit.records import Record
    from memfit.report.terminal import render

    Console().print(render(Record.load(arguments.file)))
    return 0
