"""Lists every key that a configuration may have, with its default and its description.

The list is made from the dataclasses of `model` and the texts below their fields, so a new key needs no
change here.
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
    """One key. ``default``: as written in YAML; None: there is none, or it is derived from other keys and
    cannot be written. ``choices``: the allowed values, of a key that has a list of them. ``text``: its
    description.
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


@cache
def known_keys() -> tuple[KnownKey, ...]:
    """All keys of the sections that the model describes, section by section; nested keys have dots."""
    return tuple(_all_keys())


def _all_keys() -> Iterator[KnownKey]:
    hints = get_type_hints(TableConfigFile)
    for field in dataclasses.fields(TableConfigFile):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind) and any(
            "read" in member.metadata for member in dataclasses.fields(kind)
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
    """The default if the key's own reader accepts it; else None."""
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
            return tuple(str(member.value) for member in kind)
    return ()


@cache
def _texts(kind: Any) -> dict[str, str]:
    """Field name -> the text below the field in the class's source."""
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    named = ""
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            named = statement.target.id
            continue
        if named and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            texts[named] = " ".join(str(statement.value.value).split())
        named = ""
    return texts
