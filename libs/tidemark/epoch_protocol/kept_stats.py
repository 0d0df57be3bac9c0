"""The column stats that a table keeps, as a plan's entry has them."""

from __future__ import annotations

import msgspec


class KeptStats(msgspec.Struct, frozen=True):
    """A commit writes records of these columns, meta columns among them, into so many file groups of the
    metadata table's partition.
    """

    columns: list[str]
    groups: int
