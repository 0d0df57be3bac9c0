"""The indexes that a table keeps, as a plan's entry has them: what a commit writes into them, and into how
many file groups of the index's partition in the metadata table. Of a global record index a plan says nothing.
"""

from __future__ import annotations

import msgspec


class KeptStats(msgspec.Struct, frozen=True):
    """Column stats: a commit writes records of these columns, meta columns among them."""

    columns: list[str]
    groups: int


class KeptSecondary(msgspec.Struct, frozen=True):
    """A secondary index: a commit writes entries of the column's values. ``name`` is the partition's.
    ``build``: tells one building of it from another; "" in plans of versions that did not ask.
    """

    name: str
    column: str
    groups: int
    build: str = ""


class KeptPartitioned(msgspec.Struct, frozen=True):
    """A record index that is divided by data partition. ``begun``: how many file groups a data partition gets
    if the commit is the first that writes into it. Which partitions these are follows from the rows and from
    the table, so the writer says it. ``build``: completion time of the newest build of an index, "" for none.
    """

    begun: int
    build: str
