"""A draft from an existing Hudi table: from its properties, the schema of its newest commit, and its record
index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.config.hoodie_section import HIVE_STYLE, URL_ENCODE
from tidemark.console.errors import CliError
from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import TableConfig, read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.validation import check_servable
from tidemark.init.draft import Draft

_GIVEN: Final = "as the table has it"


def draft_of_table(path: Path, topic: str | None, kafka: Mapping[str, str]) -> Draft:
    """The draft for the table at `path`. Raises CliError for a table without a schema, FileMissingError when
    there is no table, CorruptFileError.
    """
    storage = open_storage(str(path))
    config = read_table_config(storage)
    schema = table_schema(storage, config, load_timeline(storage))
    if schema is None:
        raise CliError(
            f"{path} has no commit yet and names no schema: write the Avro file by hand, or take a sample "
            "with --topic or --sample"
        )
    draft = Draft(config.name, str(path), f"the Hudi table {path}", kafka=kafka)
    draft.type = config.table_type.value.lower()
    draft.record_key, draft.partition = config.record_key_fields, config.partition_fields
    draft.ordering = config.ordering_field
    draft.schema = json.loads(schema.avro_json)
    draft.topics = (topic or config.name,)
    draft.hoodie = _options(config)
    draft.note("table", f"Key, partition, ordering and type are {_GIVEN}, and have to stay so.")
    if draft.ordering is None:
        draft.note("table.partition", "the table has no ordering field: the later arrival wins")
    if topic is None:
        draft.note("input.topics", "the table does not say where its records come from: name your topic")
    _note_index(draft, storage)
    _note_servable(draft, storage)
    return draft


def _options(config: TableConfig) -> dict[str, str]:
    given = {HIVE_STYLE: config.hive_style_partitioning, URL_ENCODE: config.url_encode_partitioning}
    return {key: "true" for key, value in given.items() if value}


def _note_index(draft: Draft, storage: Storage) -> None:
    try:
        snapshot = MetadataTableSnapshot.load(storage)
        draft.shards = snapshot.num_shards
        draft.is_partitioned = read_record_index_kind(storage) is IndexKind.PARTITIONED
        if draft.is_partitioned:
            # As many as the largest partition has: the number is for partitions that are new.
            draft.shards = max(layout_of(snapshot).shards.values(), default=None)
    except (HudiFormatError, OSError, ValueError) as error:
        draft.note("table.schema", f"its record index cannot be read: {error}")


def _note_servable(draft: Draft, storage: Storage) -> None:
    try:
        check_servable(storage)
    except UnsupportedTableError as error:
        draft.note("table", f"NOT YET SERVED: {error}")
        draft.note("table", "`tidemark table adopt` takes it over, or says what is missing.")
