"""`.hoodie/.index_defs/index.json`: which indexes a table has, and their layout (METADATA_TABLE.md, sections
9.2 and 10.2).

The file is pretty-printed JSON: {"indexDefinitions": {name: {indexName, indexType, indexFunction,
sourceFields, indexOptions, version}}}. It tells whether the record index is partitioned. Which indexes are in
use is told by `hoodie.table.metadata.partitions` instead. Rewriting the file keeps unknown keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from tidemark.hudi_format.errors import FileMissingError, damage_in
from tidemark.hudi_format.parsed_avro import parsed_json
from tidemark.hudi_format.storage.base import Storage

INDEX_DEFINITIONS_PATH: Final = ".hoodie/.index_defs/index.json"
RECORD_INDEX: Final = "record_index"
_TOP_KEY: Final = "indexDefinitions"


def read_index_definitions(storage: Storage) -> dict[str, dict[str, Any]]:
    """Index name -> its definition; empty when there is no file. Raises `CorruptFileError`."""
    try:
        data = storage.read(INDEX_DEFINITIONS_PATH)
    except FileMissingError:
        return {}
    definitions = parsed_json(data, INDEX_DEFINITIONS_PATH, "the list of index definitions")
    with damage_in(INDEX_DEFINITIONS_PATH, "the list of index definitions"):
        by_name = {str(name): dict(definition) for name, definition in definitions[_TOP_KEY].items()}
        for definition in by_name.values():
            dict(definition.get("indexOptions") or {})
    return by_name


def write_index_definitions(storage: Storage, definitions: dict[str, dict[str, Any]]) -> None:
    """Replaces the file in one step."""
    text = json.dumps({_TOP_KEY: definitions}, indent=2)
    storage.replace(INDEX_DEFINITIONS_PATH, text.encode())


def is_record_index_partitioned(definitions: dict[str, dict[str, Any]]) -> bool:
    """Whether the record index is kept per partition. A missing option means the global one."""
    options = definitions.get(RECORD_INDEX, {}).get("indexOptions") or {}
    return str(options.get("isPartitioned", "false")).lower() == "true"


def remove_index_definitions(storage: Storage, names: Iterable[str]) -> bool:
    """Removes definitions from the file; returns False when none of them was there. Hold the table's lock."""
    current = read_index_definitions(storage)
    kept = {name: definition for name, definition in current.items() if name not in set(names)}
    if kept == current:
        return False
    write_index_definitions(storage, kept)
    return True
