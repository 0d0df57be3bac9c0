"""Tells when `table.index.column_stats` names other columns than those of the table's column stats.

The key counts when a table is made. It never changes a table that is there: that would read all of its rows.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemark.config import TableConfigFile
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config


class OtherStats(NamedTuple):
    """What is different, and both ways out."""

    text: str
    remedy: str


def other_stats(file: TableConfigFile, storage: Storage) -> OtherStats | None:
    """None when nothing is different, or the key is not given. Raises CorruptFileError and what reading the
    table's properties raises.
    """
    wanted = file.table.index.column_stats
    kept = kept_stats_columns(storage, read_table_config(storage)) if wanted else []
    if set(kept) == set(wanted):
        return None
    names = ",".join(wanted)
    return OtherStats(
        f"table.index.column_stats names {names}, and the table keeps column stats of "
        f"{','.join(kept) or 'no column'}: the key counts when a table is made",
        f"Stop the services and run `tidemark index create --column-stats {names}`, or "
        + (f"set the key to {','.join(kept)}" if kept else "leave the key out"),
    )
