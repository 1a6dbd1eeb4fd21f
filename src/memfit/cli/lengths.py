"""Says how long sequences are, and what padding them costs.

They are read in one pass from a file, or come from a function of yours that returns them.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from memfit.cli import factory
from memfit.cli.numbers import positive
from memfit.records import Lengths

HELP: Final = "how long sequences are, and what padding them costs"
EXAMPLES: Final = """\
examples:
  memfit lengths corpus.txt                     a sequence a line, in words
  memfit lengths train.csv --column text --unit characters
  memfit lengths train.parquet --column tokens
  memfit lengths padded.npy --batch-size 64
  memfit lengths train.py:make_data             x, (x, y), (model, data) or a tf.data set
  memfit lengths corpus.txt --json > lengths.json

In Python: memfit.lengths(data), and memfit.batch_by_length(data) for the batches.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's options."""
    parser.add_argument(
        "source", metavar="FILE|FUNCTION", help="a text, .csv, .parquet or .npy file, or script.py:function"
    )
    parser.add_argument("--column", metavar="NAME", help="the column of a CSV or Parquet file")
    parser.add_argument(
        "--unit",
        choices=("words", "characters", "number"),
        default="words",
        help="what a step of text is; number if the text is the length itself (default: words)",
    )
    parser.add_argument(
        "--buckets", metavar="N", type=positive, default=16, help="lengths to pad to (default: 16)"
    )
    parser.add_argument(
        "--batch-size", metavar="N", type=positive, default=32, help="sequences in a batch (default: 32)"
    )
    parser.add_argument("--step-bytes", metavar="SIZE", help="what a step takes, such as 4KiB")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=positive,
        help="the most sequences to read of a file, or elements of a set (default: all, or 100000)",
    )
    parser.add_argument("--json", action="store_true", help="print a record instead of a table")


def main(arguments: argparse.Namespace) -> int:
    """Reads, counts, and prints."""
    from rich.console import Console

    from memfit.report.terminal import render

    found = _counted(arguments)
    if arguments.json:
        print(found.to_json())
    else:
        Console().print(render(found))
    return 0


def _counted(arguments: argparse.Namespace) -> Lengths:
    from memfit.data.lengths import lengths
    from memfit.units import parse_bytes

    step_bytes = arguments.step_bytes
    return lengths(
        _data(arguments.source),
        column=arguments.column,
        unit=arguments.unit,
        buckets=arguments.buckets,
        batch_size=arguments.batch_size,
        step_bytes=None if step_bytes is None else parse_bytes(step_bytes),
        limit=arguments.limit,
    )


def _data(source: str) -> Any:
    if Path(source).is_file() or ":" not in source:
        return source
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from memfit.measuring.noise import quiet

    with quiet():
        from memfit.cli.factory_tf import data_of
    return data_of(factory.call(source))
