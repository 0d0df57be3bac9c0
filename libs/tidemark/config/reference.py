"""Every key that a configuration may have, with its default and what the model says about it.

Made from the dataclasses and the texts below their fields, so a new key is here by itself.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, get_type_hints

from tidemark.config import values
from tidemark.config.effective import shown
from tidemark.config.model import TableConfigFile


@dataclass(frozen=True, slots=True)
class KnownKey:
    """`default` as one would write it; None where there is none, or where no one could write it (it is worked
    out). `choices`: of a key that has few.
    """

    section: str
    key: str
    default: Any
    required: bool
    choices: tuple[str, ...]
    text: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}"


def known_keys() -> Iterator[KnownKey]:
    """All keys of the sections that the model describes, nested ones with their dots; section by section."""
    hints = get_type_hints(TableConfigFile)
    for field in dataclasses.fields(TableConfigFile):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind) and any(
            "read" in each.metadata for each in dataclasses.fields(kind)
        ):
            yield from _keys(field.name, "", kind)


def _keys(section: str, prefix: str, kind: Any) -> Iterator[KnownKey]:
    hints, texts = get_type_hints(kind), _texts(kind)
    for field in dataclasses.fields(kind):
        key, read = f"{prefix}{field.metadata['key'] or field.name}", field.metadata["read"]
        if isinstance(read, values.SectionReader):
            yield from _keys(section, f"{key}.", read.type)
            continue
        required = field.default is dataclasses.MISSING
        default = None if required else _writable(read, shown(read, field.default))
        yield KnownKey(
            section, key, default, required, _choices(hints[field.name]), texts.get(field.name, "")
        )


def _writable(read: Any, default: Any) -> Any:
    """The default if the key's own reader takes it."""
    if default is None or isinstance(read, values.PathReader):
        return default
    try:
        read(default)
    except values.BadValueError:
        return None
    return default


def _choices(hint: Any) -> tuple[str, ...]:
    for kind in getattr(hint, "__args__", (hint,)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return tuple(str(each.value) for each in kind)
    return ()


@cache
def _texts(kind: Any) -> dict[str, str]:
    """The text below each field of a class."""
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    named = ""
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            named = statement.target.id
            continue
        if named and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            found[named] = " ".join(str(statement.value.value).split())
        named = ""
    return found
