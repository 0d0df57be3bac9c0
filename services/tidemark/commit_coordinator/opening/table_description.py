"""Describes a table by its files, for the admin service and `tidemark table describe`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from tidemark.config import ConfiguredIndexKind, TableConfigFile
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options, procedure_options
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    RECORD_INDEX,
    STATS_META_COLUMNS,
    IndexKind,
    read_index_definitions,
    record_index_kind,
)
from tidemark.hudi_format.metadata_table.missing_index import check_shards
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_PARTITION
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.schema import SchemaError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig, read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.validation import check_servable


def describe_table(
    storage: Storage, accepted: Collection[str], shards: int = 0, archive_max: int | None = None
) -> dict[str, Any]:
    """The description, as a JSON object. Reads files only. ``accepted``: `table.accept_properties`.

    ``shards``: the number of shards that the options for other writers name; 0: as many as a global index
    has, and no number where there is none. Of a partitioned index: of each data partition that such a writer
    begins; the document's ``shards`` are those of all partitions there. ``archive_max``: as in
    `foreign_writer_options`. Raises FileMissingError when there is no table, CorruptFileError.
    """
    table = read_table_config(storage)
    snapshot = MetadataTableSnapshot.load(storage)
    slices = TableView.of(storage, snapshot.data_timeline).slices(snapshot.files.names())
    holder, definitions = read_lock(storage), read_index_definitions(storage)
    kind = record_index_kind(definitions)
    why_not, wanted = _why_not(storage, snapshot, accepted, kind), shards or snapshot.num_shards
    return {
        "name": table.name,
        "path": storage.base_uri,
        "type": table.table_type.value,
        "version": table.version,
        "record_key": list(table.record_key_fields),
        "partition": list(table.partition_fields),
        "merge_mode": table.merge_mode.value,
        "ordering": list(table.ordering_fields),
        "metadata_partitions": sorted(table.metadata_partitions),
        "index_kind": kind.value,
        "shards": len(snapshot.slices.get(RECORD_INDEX_PARTITION, ())),
        "index_partitions": len(layout_of(snapshot).shards) if kind is IndexKind.PARTITIONED else 0,
        "indexes": _indexes(definitions, table.metadata_partitions),
        "partitions": len(snapshot.files.partitions),
        "file_groups": len(slices),
        "base_files": sum(slice_.base_file is not None for slice_ in slices),
        "log_files": sum(len(slice_.log_files) for slice_ in slices),
        "bytes": sum(size for _, _, size in snapshot.files),
        "newest_commit": _newest_commit(storage, snapshot.data_timeline),
        "pending": [instant.file_name for instant in snapshot.data_timeline.pending()],
        "lock": None if holder is None else {"term": holder.term, "since_ms": holder.since_ms},
        "servable": why_not is None,
        "not_servable": why_not,
        "foreign_writer_options": foreign_writer_options(
            storage.base_uri,
            wanted,
            archive_max,
            kept_stats_columns(storage, table),
            kind,
            _columns(storage, table, snapshot.data_timeline),
        ),
        "procedure_options": procedure_options(wanted, archive_max, kind),
    }


def describe_configured(config: TableConfigFile, storage: Storage, shards: int) -> dict[str, Any]:
    """`describe_table` of the configured table."""
    services = config.table_services
    archive_max = services.archive.max if services.enabled else None
    if config.table.index.kind is ConfiguredIndexKind.PARTITIONED:
        shards = config.table.index.shards
    return describe_table(storage, config.table.accept_properties, shards, archive_max)


def _indexes(definitions: Mapping[str, Mapping[str, Any]], listed: Collection[str]) -> list[dict[str, Any]]:
    """Those beside the record index, by name. ``listed``: the indexes that the table's properties list."""
    return [
        {
            "name": name.removeprefix(SECONDARY_PREFIX),
            "kind": str(definition.get("indexType", "")),
            "columns": [
                str(column)
                for column in definition.get("sourceFields") or ()
                if column not in STATS_META_COLUMNS
            ],
            "in_use": name in listed,
        }
        for name, definition in sorted(definitions.items())
        if name != RECORD_INDEX
    ]


def _newest_commit(storage: Storage, timeline: Timeline) -> dict[str, Any] | None:
    commits = timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
    if not commits:
        return None
    newest = max(commits, key=lambda commit: str(commit.completion))
    extra = decode_commit_metadata(storage.read(instant_path(newest)), instant_path(newest)).extra_metadata
    epoch = extra.get("tidemark.epoch")
    return {
        "instant": newest.requested,
        "completion": newest.completion,
        "epoch": int(epoch) if epoch is not None else None,
    }


def _columns(storage: Storage, table: TableConfig, timeline: Timeline) -> pa.Schema | None:
    """None where the files state no schema, and where they state one that is not served (`_why_not`)."""
    try:
        schema = table_schema(storage, table, timeline)
    except (UnsupportedTableError, SchemaError):
        return None
    return None if schema is None else schema.arrow


def _why_not(
    storage: Storage, snapshot: MetadataTableSnapshot, accepted: Collection[str], kind: IndexKind
) -> str | None:
    """Why this release does not serve the table, None if it does. Pending writes are listed on their own."""
    try:
        pending = [instant.requested for instant in snapshot.data_timeline.pending()]
        check_servable(storage, pending, accepted)
        if kind is IndexKind.GLOBAL:
            check_shards(snapshot.num_shards)
    except (UnsupportedTableError, SchemaError) as error:
        return str(error)
    return None
