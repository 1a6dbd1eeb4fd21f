"""Numbers on the command line."""

from __future__ import annotations


def positive(text: str) -> int:
    """A positive whole number; anything else is a `ValueError`, which argparse reports."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


positive.__name__ = "a positive whole number"  # What argparse calls a value that is not one.


def whole(text: str) -> int:
    """A whole number of at least zero; anything else is a `ValueError`, which argparse reports."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


whole.__name__ = "a whole number"
