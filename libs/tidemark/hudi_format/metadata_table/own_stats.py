"""Which column stats of a table are ours: made from the rows here, and kept by each commit since.

The folder says so. `.hoodie_partition_metadata` is made with a partition and never written again, and Hudi
drops a partition with its folder: stats that another engine builds anew, from Parquet footers, are not ours
any more. Ours name in that file the columns that they were made of, and the types that these had, in
properties that Hudi passes over. The types outlive the commits that stated them: who comes back when another
writer's change of a type is archived compares the table's schema with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.column_ranges import ValueType, has_ranges, stat_type
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS, read_index_definitions, stats_columns
from tidemark.hudi_format.metadata_table.index_life import folder_path, folder_properties
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.properties import format_properties
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig

STATS_PARTITIONS: Final = frozenset({COLUMN_STATS.name, "partition_stats"})
_FOLDER_PROPERTIES: Final = folder_path(COLUMN_STATS.name)
_COLUMNS: Final = "tidemark.columns"
_TYPES: Final = "tidemark.types"
TEXT: Final = ValueType.STRING.name
"""What `types_of_stats` has of a column of strings."""
_WHY_NOT_OURS: Final = "tidemark.not-ours"
_TAKEN_OUT: Final = "tidemark.taken-out"
_SWITCHED_ON: Final = "another writer switched them on"


@dataclass(frozen=True, slots=True)
class ForeignStats:
    """Stats in the table's property that we do not keep. `reason` completes "they were taken out: "."""

    names: frozenset[str]
    reason: str


def types_of_stats(schema: TableSchema, columns: Sequence[str]) -> dict[str, str]:
    """The types of these columns as the folder names them: those of their bounds. A column that the schema
    lacks, or that can have no stats, is left out.
    """
    types = {field.name: field.type for field in schema.arrow}
    return {
        name: stat_type(types[name], name).kind.name
        for name in columns
        if name in types and has_ranges(types[name])
    }


def own_folder(instant: str, columns: Sequence[str], types: Mapping[str, str]) -> bytes:
    """The content of `.hoodie_partition_metadata` of a partition with stats of the user's `columns`, which
    `instant` builds. `types`: as `types_of_stats`.
    """
    properties = {"commitTime": instant, "partitionDepth": "1", **_own_properties(columns, types)}
    return format_properties(properties, "partition metadata").encode("ascii")


def _own_properties(columns: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
    named = {_TYPES: ",".join(types[name] for name in columns)} if types.keys() >= set(columns) else {}
    return {_COLUMNS: ",".join(columns), **named}


def write_own_folder(
    storage: Storage, instant: str, columns: Sequence[str], types: Mapping[str, str]
) -> None:
    """Makes the partition's folder, as `own_folder`."""
    storage.create(_FOLDER_PROPERTIES, own_folder(instant, columns, types))


def known_types(storage: Storage) -> dict[str, str] | None:
    """Column -> type of our column stats when it was written down last, as `types_of_stats`; None where the
    folder does not say, as in those that earlier versions made. Raises CorruptFileError.
    """
    properties = folder_properties(storage, COLUMN_STATS.name)
    columns, types = (properties.get(name, "").split(",") for name in (_COLUMNS, _TYPES))
    return dict(zip(columns, types, strict=True)) if types != [""] and len(types) == len(columns) else None


def note_types(term: Term, types: Mapping[str, str]) -> None:
    """Writes the types into the folder of column stats, where that says now that these are ours and has no
    column whose type is not known. Raises FencedOutError.
    """
    properties = folder_properties(term.storage, COLUMN_STATS.name)
    columns = properties.get(_COLUMNS, "").split(",")
    if not types.keys() >= set(columns):
        return
    text = format_properties({**properties, **_own_properties(columns, types)}, "partition metadata")
    term.replace(_FOLDER_PROPERTIES, text.encode("ascii"))


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
    known = {properties.pop(name, None) for name in (_COLUMNS, _TYPES, _WHY_NOT_OURS)}
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
