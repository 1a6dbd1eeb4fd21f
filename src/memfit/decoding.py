"""Dataclasses from JSON values and back, by their type hints.

It knows the few types that records are made of (numbers, text, enums, tuples, dicts, `None` and
other dataclasses) and checks each value against them, so that a broken file is an error that names the
field and not a surprise far away. What a record means, and where it is stored, is left to `records`.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class FieldError(ValueError):
    """A value that does not fit its field; the message names both."""


def encode(value: Any) -> Any:
    """`value` as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], values: dict[str, Any], path: str = "") -> T:
    """The dataclass `kind` from `values`; fields that it does not have are passed over."""
    hints = get_type_hints(kind)
    arguments = {}
    for field in fields(kind):  # type: ignore[arg-type]
        name = f"{path}.{field.name}" if path else field.name
        if field.name in values:
            arguments[field.name] = _decode_value(hints[field.name], values[field.name], name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise FieldError(f'the field "{name}" is missing.')
    return kind(**arguments)


def _decode_value(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    origin, choices = get_origin(hint), get_args(hint)
    if origin is UnionType:
        if value is None and NoneType in choices:
            return None
        (hint,) = (choice for choice in choices if choice is not NoneType)
        return _decode_value(hint, value, path)
    if origin is tuple and isinstance(value, list):
        return tuple(_decode_value(choices[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {k: _decode_value(choices[1], v, f'{path}["{k}"]') for k, v in value.items()}
    if is_dataclass(hint) and isinstance(value, dict):
        return decode(hint, value, path)  # type: ignore[arg-type]
    if isinstance(hint, type) and _fits(hint, value):
        try:
            return hint(value)
        except ValueError:
            pass
    raise FieldError(f'the field "{path}" must be {_in_words(hint)}. Received: {value!r}.')


def _fits(hint: type, value: Any) -> bool:
    if issubclass(hint, Enum):
        return isinstance(value, str)
    if hint is float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    return type(value) is hint and hint in (int, str, bool)


def _in_words(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(repr(member.value) for member in hint)
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if hint in words:
        return words[hint]
    return {tuple: "a list", dict: "an object"}.get(get_origin(hint) or hint, "an object")
