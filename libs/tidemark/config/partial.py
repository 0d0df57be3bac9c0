"""Dataclass objects without the fields that could not be read, so that the other fields can still be checked.

Such an object lacks the attribute. A check that uses it raises AttributeError and ends there
(`Problems.gathered`): the key's own error was reported already, and its value is not known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")


class _Unread:
    """Marks a value in a parsed file as unknown, for instance that of an environment variable that is not
    set.
    """

    def __repr__(self) -> str:
        return "a value that is not known"


UNREAD: Final = _Unread()


def holds_unread(value: Any) -> bool:
    """Whether the value, or a value in it, is unknown."""
    if isinstance(value, dict):
        return any(map(holds_unread, value.values()))
    if isinstance(value, list):
        return any(map(holds_unread, value))
    return value is UNREAD


def partial(type_: type[T], values: Mapping[str, Any]) -> T:
    """Makes an object of the dataclass with only these fields. Others are missing, even if they have a
    default.
    """
    made = object.__new__(type_)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def known_fields(section: Any) -> dict[str, Any]:
    """The fields that an object has: name -> value."""
    names = [field.name for field in dataclasses.fields(section)]
    return {name: getattr(section, name) for name in names if hasattr(section, name)}


def changed(section: T, **values: Any) -> T:
    """Returns a copy with changed fields, as `dataclasses.replace`; the value UNREAD removes a field."""
    after = {**known_fields(section), **values}
    return partial(type(section), {name: value for name, value in after.items() if value is not UNREAD})


def asks_for_unread(error: BaseException) -> bool:
    """Whether the error comes from reading a field that a partial object lacks."""
    if not isinstance(error, AttributeError) or not dataclasses.is_dataclass(error.obj):
        return False
    return error.name in {field.name for field in dataclasses.fields(error.obj)}
