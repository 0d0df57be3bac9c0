"""Which column stats of a table are ours: made from the rows here, and kept by each commit since.

The folder says so. `.hoodie_partition_metadata` is made with a partition and never written again, and Hudi
drops a partition with its folder: stats that another engine builds anew, from Parquet footers, are not ours
any more. Ours name in that file the columns that they were made of, in a property that Hudi passes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS, read_index_definitions, stats_columns
from tidemark.hudi_format.metadata_table.index_life import folder_path, folder_properties
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.properties import format_properties
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig

STATS_PARTITIONS: Final = frozenset({COLUMN_STATS.name, "partition_stats"})
_FOLDER_PROPERTIES: Final = folder_path(COLUMN_STATS.name)
_COLUMNS: Final = "tidemark.columns"
_WHY_NOT_OURS: Final = "tidemark.not-ours"
_TAKEN_OUT: Final = "tidemark.taken-out"
_SWITCHED_ON: Final = "another writer switched them on"


@dataclass(frozen=True, slots=True)
class ForeignStats:
    """Stats in the table's property that we do not keep. `reason` completes "they were taken out: "."""

    names: frozenset[str]
    reason: str


def own_folder(instant: str, columns: Sequence[str]) -> bytes:
    """The content of `.hoodie_partition_metadata` of a partition with stats of the user's `columns`, which
    `instant` builds.
    """
    properties = {"commitTime": instant, "partitionDepth": "1", _COLUMNS: ",".join(columns)}
    return format_properties(properties, "partition metadata").encode("ascii")


def write_own_folder(storage: Storage, instant: str, columns: Sequence[str]) -> None:
    """Makes the partition's folder, as `own_folder`."""
    storage.create(_FOLDER_PROPERTIES, own_folder(instant, columns))


def own_stats_columns(storage: Storage) -> list[str] | None:
    """The user's columns of the column stats that were made here; None where there are none. Raises
    CorruptFileError.
    """
    columns = folder_properties(storage, COLUMN_STATS.name).get(_COLUMNS)
    return None if columns is None else columns.split(",")


def kept_stats_columns(storage: Storage, config: TableConfig) -> list[str]:
    """The user's columns of the column stats that the table keeps; empty where it keeps none. Raises
    CorruptFileError.
    """
    if COLUMN_STATS.name not in config.metadata_partitions:
        return []
    foreign = foreign_stats(storage, config)
    is_foreign = foreign is not None and COLUMN_STATS.name in foreign.names
    return [] if is_foreign else own_stats_columns(storage) or []


def lost_stats(storage: Storage, config: TableConfig) -> str:
    """Why column stats of ours were taken out of the table, as long as nobody made others or dropped them; ""
    where none were. Raises CorruptFileError.
    """
    if COLUMN_STATS.name in config.metadata_partitions:
        return ""
    return folder_properties(storage, COLUMN_STATS.name).get(_TAKEN_OUT, "")


def disown_stats(term: Term, why: str = "", taken_out: str = "") -> None:
    """Says that column stats which were ours are so no more: commits of ours will not be in them. ``why``:
    the reason of the `ForeignStats` that they are from now on. ``taken_out``: why they are taken out of the
    table now, which people are told until there are others. Raises FencedOutError.
    """
    properties = folder_properties(term.storage, COLUMN_STATS.name)
    known = {properties.pop(name, None) for name in (_COLUMNS, _WHY_NOT_OURS)}
    if known != {None}:
        said = {_WHY_NOT_OURS: why, _TAKEN_OUT: taken_out}
        more = {name: reason for name, reason in said.items() if reason}
        text = format_properties({**properties, **more}, "partition metadata")
        term.replace(_FOLDER_PROPERTIES, text.encode("ascii"))


def foreign_stats(storage: Storage, config: TableConfig) -> ForeignStats | None:
    """The stats that `config` lists and we do not keep; None where there are none. Costs nothing for a table
    without stats, two small files for one with ours.

    partition_stats are never kept: with two writers Hudi loses rows by them alone. Raises CorruptFileError.
    """
    listed = config.metadata_partitions & STATS_PARTITIONS
    if not listed:
        return None
    properties = folder_properties(storage, COLUMN_STATS.name) if COLUMN_STATS.name in listed else {}
    if _COLUMNS not in properties:
        return ForeignStats(listed, properties.get(_WHY_NOT_OURS, _SWITCHED_ON))
    own = properties[_COLUMNS].split(",")
    try:
        indexed = stats_columns(read_index_definitions(storage))
    except UnsupportedTableError as error:
        return ForeignStats(listed, error.reason)
    if set(indexed) != {*STATS_META_COLUMNS, *own}:
        others = ", ".join(name for name in indexed if name not in STATS_META_COLUMNS) or "none"
        return ForeignStats(listed, f"another writer changed their columns from {', '.join(own)} to {others}")
    rest = listed - {COLUMN_STATS.name}
    return ForeignStats(rest, _SWITCHED_ON) if rest else None
