"""Entries of a secondary index: the value's text, a dollar, the record key, with a backslash before
backslashes, dollars and NULs in both; null is a NUL without a backslash. All entries of a value lie in the
file group of Java's hash of what stands before the record key.

Example: the row k1 with the value `a$b` has the entry `a\\$b$k1`, in the group of the hash of `a\\$b$`.
"""

from __future__ import annotations

from typing import Final

_NULL: Final = "\x00"
_INT: Final = 1 << 32


def value_part(value: object) -> str:
    """What all entries of a value begin with, up to the dollar."""
    return f"{_NULL if value is None else escaped(str(value))}$"


def escaped(text: str) -> str:
    """A value's text or a record key, as it stands in an entry."""
    return "".join(f"\\{letter}" if letter in "\\$\x00" else letter for letter in text)


def value_part_of(entry: str) -> str:
    """All up to the first dollar that has no backslash before it, and that dollar."""
    at = 0
    while entry[at] != "$":
        at += 2 if entry[at] == "\\" else 1
    return entry[: at + 1]


def group_of(part: str, groups: int) -> int:
    """In which of so many file groups, in the order of their names, the entries lie that begin so."""
    number, units = 0, part.encode("utf-16-be")
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) % _INT
    return abs(number - _INT if number >= _INT // 2 else number) % groups
