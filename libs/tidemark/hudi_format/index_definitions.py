"""`.hoodie/.index_defs/index.json`: which indexes a table has, and their layout (METADATA_TABLE.md, sections
9.2 and 10.2).

The file is pretty-printed JSON: {"indexDefinitions": {name: {indexName, indexType, indexFunction,
sourceFields, indexOptions, version}}}. It tells whether the record index is partitioned. Which indexes are in
use is told by `hoodie.table.metadata.partitions` instead. Rewriting the file keeps unknown keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from tidemark.hudi_format.errors import (
    CorruptFileError,
    CutOffFileError,
    FileMissingError,
    UnsupportedTableError,
    damage_in,
)
from tidemark.hudi_format.parsed_avro import parsed_json
from tidemark.hudi_format.storage.base import Storage

INDEX_DEFINITIONS_PATH: Final = ".hoodie/.index_defs/index.json"
RECORD_INDEX: Final = "record_index"
SECONDARY_INDEX: Final = "secondary_index"
COLUMN_STATS: Final = "column_stats"
# Hudi indexes these meta columns in every table that has column stats.
STATS_META_COLUMNS: Final = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
_TOP_KEY: Final = "indexDefinitions"
_OF_COLUMN: Final = "identity"


class IndexKind(StrEnum):
    """How a record index is divided, which also says what identifies a row.

    GLOBAL: by record key alone, and a key has one row in the table. PARTITIONED: each data partition has file
    groups of its own, and a key may have a row in each (METADATA_TABLE.md, section 6).
    """

    GLOBAL = "global"
    PARTITIONED = "partitioned"


def read_index_definitions(storage: Storage) -> dict[str, dict[str, Any]]:
    """Index name -> its definition; empty when there is no file.

    Raises `CutOffFileError` for a file that is not whole, and `CorruptFileError` for another content. Hudi
    1.2.0 writes the file in place, CREATE INDEX does so without the table's lock, and who reads meanwhile
    sees nothing or a part of it.
    """
    try:
        data = storage.read(INDEX_DEFINITIONS_PATH)
    except FileMissingError:
        return {}
    definitions = _parsed(data)
    with damage_in(INDEX_DEFINITIONS_PATH, "the list of index definitions"):
        by_name = {str(name): dict(definition) for name, definition in definitions[_TOP_KEY].items()}
        for definition in by_name.values():
            dict(definition.get("indexOptions") or {})
    return by_name


def _parsed(data: bytes) -> Any:
    try:
        return parsed_json(data, INDEX_DEFINITIONS_PATH, "the list of index definitions")
    except CorruptFileError as error:
        if not _ends_in_the_middle(error.__cause__):
            raise
        raise CutOffFileError(
            f"{error}. It has {len(data)} bytes: another engine writes it now, or died in it. If it stays "
            'so, put the whole file back (docs/failure-walkthrough.md, "When the list of indexes is cut off")'
        ) from error


def _ends_in_the_middle(error: BaseException | None) -> bool:
    """Whether what was wrong is that there is no more. A text that has no end is told by its beginning."""
    if isinstance(error, UnicodeDecodeError):
        return error.reason == "unexpected end of data"
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def index_definitions_file(definitions: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The content of the file."""
    return json.dumps({_TOP_KEY: definitions}, indent=2).encode()


def write_index_definitions(storage: Storage, definitions: dict[str, dict[str, Any]]) -> None:
    """Replaces the file in one step."""
    storage.replace(INDEX_DEFINITIONS_PATH, index_definitions_file(definitions))


def record_index_kind(definitions: Mapping[str, Mapping[str, Any]]) -> IndexKind:
    """The kind of the record index. A missing option, or no definition, means the global one."""
    options = definitions.get(RECORD_INDEX, {}).get("indexOptions") or {}
    is_partitioned = str(options.get("isPartitioned", "false")).lower() == "true"
    return IndexKind.PARTITIONED if is_partitioned else IndexKind.GLOBAL


def read_record_index_kind(storage: Storage) -> IndexKind:
    """The kind of the table's record index. Raises `CorruptFileError`."""
    return record_index_kind(read_index_definitions(storage))


def record_index_definition(kind: IndexKind) -> dict[str, Any]:
    """The definition of the record index, as Hudi 1.2.0 writes it."""
    return {
        "indexName": RECORD_INDEX,
        "indexType": RECORD_INDEX,
        "indexFunction": "",
        "sourceFields": [],
        "indexOptions": {"isPartitioned": "true" if kind is IndexKind.PARTITIONED else "false"},
        "version": "V1",
    }


def column_stats_definition(columns: Sequence[str]) -> dict[str, Any]:
    """The definition of column stats of these columns of the user's, as Hudi 1.2.0 writes it."""
    return {
        "indexName": COLUMN_STATS,
        "indexType": COLUMN_STATS,
        "indexFunction": COLUMN_STATS,
        "sourceFields": [*STATS_META_COLUMNS, *columns],
        "indexOptions": {},
        "version": "V2",
    }


def secondary_index_definition(partition: str, column: str) -> dict[str, Any]:
    """The definition of the secondary index of a column, as Hudi's CREATE INDEX writes it."""
    return {
        "indexName": partition,
        "indexType": SECONDARY_INDEX,
        "indexFunction": _OF_COLUMN,
        "sourceFields": [column],
        "indexOptions": {},
        "version": "V2",
    }


def is_made_by_a_write(definition: Mapping[str, Any]) -> bool:
    """Whether a write of Hudi's made this secondary index on its way
    (`hoodie.metadata.index.secondary.column`): it names no function, and CREATE INDEX names one. Hudi 1.2.0
    leaves the rows of that write's own commit out of such an index.
    """
    return definition.get("indexType") == SECONDARY_INDEX and not definition.get("indexFunction")


def compared_with_rows(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The definition as CREATE INDEX would have made it, for an index that was compared with all rows."""
    return {**definition, "indexFunction": _OF_COLUMN}


def stats_columns(definitions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The columns that have column stats, meta columns among them; empty where there are none.

    Readers leave files out by these columns, so a writer writes records of exactly these. Raises
    `UnsupportedTableError` for a definition of another version than V2, whose records differ.
    """
    definition = definitions.get(COLUMN_STATS)
    if definition is None:
        return []
    version = definition.get("version")
    if version != "V2":
        raise UnsupportedTableError(
            f"{INDEX_DEFINITIONS_PATH}: {COLUMN_STATS} has version {version or 'none'}; V2 is served",
            "Run `tidemark table adopt --drop-stats`",
        )
    with damage_in(INDEX_DEFINITIONS_PATH, f"the definition of {COLUMN_STATS}"):
        return [str(name) for name in definition["sourceFields"]]


def remove_index_definitions(storage: Storage, names: Iterable[str]) -> bool:
    """Removes definitions from the file; returns False when none of them was there. Hold the table's lock."""
    current = read_index_definitions(storage)
    kept = {name: definition for name, definition in current.items() if name not in set(names)}
    if kept == current:
        return False
    write_index_definitions(storage, kept)
    return True
