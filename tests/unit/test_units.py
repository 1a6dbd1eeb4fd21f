import pytest

from memfit.errors import UnitError
from memfit.units import GIB, MIB, format_bytes, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 * GIB),
        ("512 MiB", 512 * MIB),
        ("1.5g", 3 * GIB // 2),
        ("1.5GB", 1_500_000_000),
        ("2kB", 2000),
        ("2k", 2048),
        ("7", 7),
        (7, 7),
        ("7b", 7),
        ("1_000", 1000),
        ("1e3", 1000),
        (" .5 KiB ", 512),
        ("+3TiB", 3 * 2**40),
        ("9007199254740993", 9007199254740993),  # a float would lose the last digit
    ],
)
def test_sizes_are_read(text: str | int, expected: int) -> None:
    assert parse_bytes(text) == expected


def test_a_share_is_of_what_is_available() -> None:
    assert parse_bytes("80%", available_bytes=1000) == 800
    assert parse_bytes("12.5 %", available_bytes=1000) == 125


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("banana", "    banana\n    ^^^^^^ a number is missing"),
        ("-1GiB", "    -1GiB\n    ^ a size cannot be negative"),
        ("0", "    0\n    ^ a size must be at least one byte"),
        ("2GiBB", "    2GiBB\n     ^^^^ unknown unit"),
        (" 12 XB", "     12 XB\n        ^^ unknown unit"),
        ("", "    ^ a size is missing"),
        ("50%", "    ^^^ a share has no meaning here"),
        ("1e400", "     ^^^^ unknown unit"),
    ],
)
def test_a_fault_is_pointed_at(text: str, pointer: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_bytes(text)
    assert pointer in str(caught.value)
    assert "Valid: 2GiB, 512 MiB" in str(caught.value)


def test_a_share_above_all_is_refused() -> None:
    with pytest.raises(UnitError, match="at most 100%"):
        parse_bytes("101%", available_bytes=1000)


@pytest.mark.parametrize("value", [None, 1.5, True, b"2GiB"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(UnitError, match="Received"):
        parse_bytes(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1024 * 1024 - 1, "1.00 MiB"),
        (10 * MIB, "10.0 MiB"),
        (100 * MIB, "100 MiB"),
        (-2 * GIB, "-2.00 GiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_bytes_are_printed_in_binary_units(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0012, "1.2 ms"), (0.25, "250 ms"), (0.9996, "1.0 s"), (99.96, "1 min 40 s"), (3600, "1 h 00 min")],
)
def test_seconds_are_printed(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
