"""What a row is known by: its key, or, with a partitioned record index, its partition and key.

There the key `eu|k1` takes the place of `k1` in events that were read back and in rows that a reader saw, so
that who compares them need not know which kind of table it is.
"""

from __future__ import annotations

from typing import Final

from tests.input_model import Row

_BAR: Final = "|"


def identity(region: str, key: str) -> str:
    return f"{region}{_BAR}{key}"


def identified(row: Row) -> Row:
    """The row under its partition and key."""
    return {**row, "id": identity(row["region"], row["id"])}


def parts(identified_key: str) -> list[str]:
    """What the lane of a row follows from: the key, and where it is given the partition before it."""
    return identified_key.split(_BAR)
