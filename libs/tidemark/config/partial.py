"""Objects of which some fields could not be read, so that the rest can be checked all the same.

Such an object lacks the attribute. A check that asks for it ends there and says nothing: what is wrong with
that key has been said, and what rests on it cannot be known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")


class _Unread:
    """Stands in a parsed file for a value that is not known, e.g. that of a variable that is not set."""

    def __repr__(self) -> str:
        return "a value that is not known"


UNREAD: Final = _Unread()


def holds_unread(value: Any) -> bool:
    """Whether it, or something in it, is not known."""
    if isinstance(value, dict):
        return any(map(holds_unread, value.values()))
    if isinstance(value, list):
        return any(map(holds_unread, value))
    return value is UNREAD


def partial(type_: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass with these fields alone; the others are missing, even if they have a default."""
    made = object.__new__(type_)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def known_fields(section: Any) -> dict[str, Any]:
    """What was read of an object, by field."""
    names = [each.name for each in dataclasses.fields(section)]
    return {name: getattr(section, name) for name in names if hasattr(section, name)}


def changed(section: T, **values: Any) -> T:
    """As dataclasses.replace; UNREAD as the value takes a field away."""
    after = {**known_fields(section), **values}
    return partial(type(section), {name: value for name, value in after.items() if value is not UNREAD})


def asks_for_unread(error: BaseException) -> bool:
    """Whether the error comes from asking a partial object for a field that it lacks."""
    if not isinstance(error, AttributeError) or not dataclasses.is_dataclass(error.obj):
        return False
    return error.name in {each.name for each in dataclasses.fields(error.obj)}
