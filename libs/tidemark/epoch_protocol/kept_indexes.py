"""The indexes that a table keeps beside the record index, as a plan's entry has them: what a commit writes
into them, and into how many file groups of the index's partition in the metadata table.
"""

from __future__ import annotations

import msgspec


class KeptStats(msgspec.Struct, frozen=True):
    """Column stats: a commit writes records of these columns, meta columns among them."""

    columns: list[str]
    groups: int


class KeptSecondary(msgspec.Struct, frozen=True):
    """A secondary index: a commit writes entries of the column's values. ``name`` is the partition's."""

    name: str
    column: str
    groups: int
