"""Bytes and seconds to text and back: the only place where a number becomes text.

Sizes are read in binary and in decimal units and printed in binary ones. A single letter means the
binary unit, as in Docker and the JVM: `"1.5g"` is 1.5 GiB, `"1.5GB"` is 1.5e9 bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from memfit.errors import UnitError

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
CELL: Final = "cell In["  # How the name of a notebook's cell begins, where others have a file's.

VALID_FORMS: Final = "2GiB, 512 MiB, 1.5g, 2GB (decimal), 2000000000 (bytes)"

_SCALES: Final = {"": 1, "b": 1} | {
    unit: base**power
    for power, letter in enumerate("kmgtp", start=1)
    for unit, base in ((letter, 1024), (letter + "ib", 1024), (letter + "b", 1000))
}
_PATTERN: Final = re.compile(
    r"(?P<number>\d[\d_]*(?:\.\d*)?(?:e\d{1,2})?|\.\d+)(?P<gap>\s*)(?P<unit>\D.*)?", re.IGNORECASE
)


def parse_bytes(text: str | int, *, available_bytes: int | None = None) -> int:
    """The number of bytes that `text` stands for.

    Args:
        text: A size such as `"2GiB"`, `"512 MiB"`, `"1.5g"`, a number of bytes, or, where
            `available_bytes` is given, a share of it such as `"80%"`.
        available_bytes: What a percentage is a share of; `None` where a percentage has no meaning.

    Returns:
        A positive number of bytes, rounded down.

    Raises:
        UnitError: If `text` is not a positive size. The message points at the fault.

    Example:
    >>> parse_bytes("2GiB"), parse_bytes("1.5 MB"), parse_bytes("80%", available_bytes=1000)
    (2147483648, 1500000, 800)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str):
        raise UnitError(
            f"a size is text or a whole number of bytes. Received: {text!r} "
            f"(a {type(text).__name__}). Valid: {_valid_forms(available_bytes)}."
        )
    size = text.strip()
    start = len(text) - len(text.lstrip())
    if not size:
        raise _fault(text, 0, 1, "a size is missing", available_bytes)
    if size[0] in "-−":
        raise _fault(text, start, start + 1, "a size cannot be negative", available_bytes)
    match = _PATTERN.fullmatch(size.removeprefix("+"))
    if match is None:
        raise _fault(text, start, start + len(size), "a number is missing", available_bytes)
    start += len(size) - len(size.removeprefix("+"))
    number, unit = match["number"], (match["unit"] or "").strip()
    unit_start = start + match.end("gap")
    if unit == "%":
        value = _share(text, start, number, available_bytes)
    elif unit.lower() in _SCALES:
        value = int(_exact(number) * _SCALES[unit.lower()])
    else:
        raise _fault(text, unit_start, unit_start + len(unit), "unknown unit", available_bytes)
    if value < 1:
        raise _fault(text, start, start + len(number), "a size must be at least one byte", available_bytes)
    return value


def format_bytes(num_bytes: int) -> str:
    """`num_bytes` in the largest binary unit that leaves at least 1, with three or more digits.

    Example:
    >>> format_bytes(2147483648), format_bytes(104858112), format_bytes(512)
    ('2.00 GiB', '100 MiB', '512 B')
    """
    if num_bytes < 0:
        return f"-{format_bytes(-num_bytes)}"
    value, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        # What would round up to 1024 belongs to the next unit.
        if value < 1023.5 or unit == "PiB":
            break
        value /= 1024
    if unit == "B":
        return f"{num_bytes} B"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def format_seconds(seconds: float) -> str:
    """`seconds` for a reader.

    Example:
    >>> format_seconds(0.0123), format_seconds(12.34), format_seconds(3725)
    ('12 ms', '12.3 s', '1 h 02 min')
    """
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1e3:.2g} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_place(file: str, line: int) -> str:
    """A line of a file, or of a notebook's cell, as IPython writes it.

    Example:
    >>> format_place("train.py", 30), format_place("cell In[3]", 2)
    ('train.py:30', 'cell In[3], line 2')
    """
    return f"{file}, line {line}" if file.startswith(CELL) else f"{file}:{line}"


def _share(text: str, start: int, number: str, available_bytes: int | None) -> int:
    end = start + len(number) + 1
    if available_bytes is None:
        raise _fault(text, start, end, "a share has no meaning here", available_bytes)
    share = _exact(number)
    if share > 100:
        raise _fault(text, start, end, "a share is at most 100%", available_bytes)
    return int(available_bytes * share / 100)


def _exact(number: str) -> Fraction:
    """A fraction, since a float would round large byte counts."""
    return Fraction(number.replace("_", ""))


def _valid_forms(available_bytes: int | None) -> str:
    share = "" if available_bytes is None else ", 80% (of what is available)"
    return VALID_FORMS + share


def _fault(text: str, start: int, end: int, reason: str, available_bytes: int | None) -> UnitError:
    pointer = " " * start + "^" * max(1, end - start)
    return UnitError(
        f"cannot read {text!r} as a size.\n"
        f"    {text}\n"
        f"    {pointer} {reason}\n"
        f"Valid: {_valid_forms(available_bytes)}."
    )
