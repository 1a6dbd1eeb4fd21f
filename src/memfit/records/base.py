"""What all records are: frozen values with JSON both ways, in files that are never half-written."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from memfit.decoding import FieldError, decode, encode
from memfit.errors import RecordError

RECORD_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The base of all records: JSON both ways, and files that are never half-written."""

    def to_dict(self) -> dict[str, Any]:
        """This record as JSON values, its name and version first."""
        head = {"memfit": type(self).__name__, "version": RECORD_VERSION}
        return head | {f.name: encode(getattr(self, f.name)) for f in fields(self)}

    def to_json(self) -> str:
        """This record as indented JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, values: Any, *, source: str = "the record") -> Self:
        """The record that `values` describe.

        Args:
            values: What `to_dict` returned. On `Record` itself any kind of record is accepted, on
                a kind only that one.
            source: What to call the values in an error, such as the file's name.

        Raises:
            RecordError: If `values` are no record, another one, or have a broken field.
        """
        name = values.get("memfit") if isinstance(values, dict) else None
        kinds = _kinds()
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            raise RecordError(
                f'{source} is not a memfit record: the field "memfit" must be one of '
                f"{', '.join(sorted(kinds))}. Received: {name!r}."
            )
        if not issubclass(kind, cls):
            raise RecordError(f"{source} holds a {name}, but a {cls.__name__} is needed.")
        try:
            return decode(kind, values)
        except FieldError as fault:
            raise RecordError(f"{source}: {fault}{_version_hint(values)}") from None

    @classmethod
    def from_json(cls, text: str, *, source: str = "the record") -> Self:
        """The record in a JSON text; errors name the line and column of a fault."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as fault:
            raise RecordError(f"{source} is not JSON: {fault}.") from None
        return cls.from_dict(values, source=source)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes this record to `path`, whole or not at all."""
        target = Path(path)
        try:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            scratch = Path(name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(self.to_json() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                scratch.replace(target)
            finally:
                scratch.unlink(missing_ok=True)
        except OSError as fault:
            raise RecordError(f"cannot write {target}: {fault.strerror or fault}.") from None
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The record in the file at `path`.

        Example:
        >>> from memfit.records import Budget
        >>> Budget.load("missing.json")
        Traceback (most recent call last):
        ...
        memfit.errors.RecordError: cannot read missing.json: No such file or directory.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as fault:
            raise RecordError(f"cannot read {path}: {fault.strerror}.") from None
        except UnicodeDecodeError:
            raise RecordError(f"{path} is not JSON: it is not even text.") from None
        return cls.from_json(text, source=str(path))


def _version_hint(values: dict[str, Any]) -> str:
    version = values.get("version")
    if isinstance(version, int) and version > RECORD_VERSION:
        return (
            f" It was written in version {version} of the form; this memfit reads version "
            f"{RECORD_VERSION}: pip install --upgrade memfit."
        )
    return ""


def _kinds() -> dict[str, type[Record]]:
    """Every kind of record by its name."""
    # `slots=True` makes a class anew; the one it was made from may still be listed, and has no slots.
    return {kind.__name__: kind for kind in Record.__subclasses__() if "__slots__" in vars(kind)}
