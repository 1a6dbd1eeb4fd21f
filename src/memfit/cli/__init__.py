"""The `memfit` command: one file a command, listed in `COMMANDS`.

A command reads its arguments, calls the library and prints; it decides nothing else. Nothing that takes
time is imported before a command runs, so that `memfit --help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final, NoReturn

from memfit.cli import demo, estimate, facts, lengths, plan, report, run
from memfit.errors import MemfitError

COMMANDS: Final = (demo, run, estimate, plan, lengths, facts, report)

DESCRIPTION: Final = "Trains any Keras model in the memory you have."
EXAMPLES: Final = """\
examples:
  memfit demo                                   a real out-of-memory on this machine, in a minute
  memfit run --budget 2GiB train.py --lr 0.1    an unmodified script under a real limit
  memfit estimate train.py:make_model           what a training step will take, before it is run
  memfit plan train.py:make_model --budget 2GiB the fastest way to train within a budget
  memfit lengths train.csv --column text        how long sequences are, and what padding costs
  memfit facts                                  devices, allocator, limits, versions

exit codes: 0 fine, 1 error, 2 usage, 3 does not fit; 'run' returns the script's own
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like memfit's others."""

    def error(self, message: str) -> NoReturn:
        """One line that says what is wrong and what to type next, and exit code 2."""
        self.exit(2, f"memfit: error: {message}. Type: {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except MemfitError as error:
        print(f"memfit: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # Whoever read the output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def build_parser() -> Parser:
    """The parser of the whole command line."""
    from memfit import __version__

    formatter = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="memfit", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=formatter)
    parser.add_argument("--version", action="version", version=f"memfit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.__name__.rpartition(".")[2],
            help=command.HELP,
            description=_wrapped(command.__doc__ or ""),
            epilog=command.EXAMPLES,
            formatter_class=formatter,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command.main)
    return parser


def _wrapped(text: str) -> str:
    """Paragraphs as wide as the terminal; the examples below them keep their lines."""
    width = shutil.get_terminal_size().columns - 2
    return "\n\n".join(textwrap.fill(paragraph, width) for paragraph in text.split("\n\n"))
