"""The commands and their options, held by a list: a change here is a change for every user."""

import argparse

from memfit.cli import COMMANDS, build_parser

OPTIONS = {
    "": ["--help", "--version"],
    "demo": ["--budget", "--help", "--length"],
    "run": [
        "--allow",
        "--budget",
        "--clean",
        "--help",
        "--host-budget",
        "--observe",
        "--record",
        "--restarts",
    ],
    "estimate": ["--batch-size", "--budget", "--help", "--json", "--length", "--loss", "--optimizer"],
    "plan": [
        "--allow",
        "--batch-size",
        "--budget",
        "--help",
        "--json",
        "--length",
        "--loss",
        "--optimizer",
    ],
    "lengths": [
        "--batch-size",
        "--buckets",
        "--column",
        "--help",
        "--json",
        "--limit",
        "--step-bytes",
        "--unit",
    ],
    "facts": ["--help", "--json"],
    "report": ["--help"],
}


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def long_options(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(o for a in parser._actions for o in a.option_strings if o.startswith("--"))


def test_the_options() -> None:
    parser = build_parser()
    found = {"": long_options(parser)} | {n: long_options(p) for n, p in subparsers(parser).items()}
    assert found == OPTIONS


def test_every_command_has_help_with_examples() -> None:
    for name, parser in subparsers(build_parser()).items():
        text = parser.format_help()
        assert f"memfit {name}" in text
        assert "examples:\n" in text


def test_every_command_is_a_file_with_the_same_parts() -> None:
    for command in COMMANDS:
        assert command.__doc__
        assert command.HELP
        assert callable(command.add_arguments)
        assert callable(command.main)
