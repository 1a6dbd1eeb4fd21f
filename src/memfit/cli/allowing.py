"""The option `--allow`, which several commands have."""

from __future__ import annotations

import argparse


def add_allow(parser: argparse.ArgumentParser) -> None:
    """Declares the option."""
    parser.add_argument(
        "--allow",
        metavar="WORD",
        action="append",
        default=[],
        help="what may be done although it changes the mathematics: split_batch_norm, truncate_gradients, "
        "truncate, truncate_front; or the mix of batches: bucketing",
    )
