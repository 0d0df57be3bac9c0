"""A table as its files show it: for the admin service and `tidemark table describe`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options, procedure_options
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.missing_index import check_shards
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.schema import SchemaError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.validation import check_servable


def describe_table(storage: Storage, accepted: Collection[str], shards: int = 0) -> dict[str, Any]:
    """The document; `accepted`: `table.accept_properties`; `shards`: how many the record index has to have,
    for the options of other writers (0: as many as it has, and none is named while it has none). Reads files
    only. Raises FileMissingError when there is no table, CorruptFileError.
    """
    table = read_table_config(storage)
    snapshot = MetadataTableSnapshot.load(storage)
    slices = TableView.of(storage, snapshot.data_timeline).slices(snapshot.files.names())
    holder = read_lock(storage)
    why_not = _why_not(storage, snapshot, accepted)
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
        "shards": snapshot.num_shards,
        "partitions": len(snapshot.files.partitions),
        "file_groups": len(slices),
        "base_files": sum(each.base_file is not None for each in slices),
        "log_files": sum(len(each.log_files) for each in slices),
        "bytes": sum(size for _, _, size in snapshot.files),
        "newest_commit": _newest_commit(storage, snapshot.data_timeline),
        "pending": [each.file_name for each in snapshot.data_timeline.pending()],
        "lock": None if holder is None else {"term": holder.term, "since_ms": holder.since_ms},
        "servable": why_not is None,
        "not_servable": why_not,
        "foreign_writer_options": foreign_writer_options(storage.base_uri, shards or snapshot.num_shards),
        "procedure_options": procedure_options(shards or snapshot.num_shards),
    }


def _newest_commit(storage: Storage, timeline: Timeline) -> dict[str, Any] | None:
    commits = timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
    if not commits:
        return None
    newest = max(commits, key=lambda each: str(each.completion))
    extra = decode_commit_metadata(storage.read(instant_path(newest)), instant_path(newest)).extra_metadata
    epoch = extra.get("tidemark.epoch")
    return {
        "instant": newest.requested,
        "completion": newest.completion,
        "epoch": int(epoch) if epoch is not None else None,
    }


def _why_not(storage: Storage, snapshot: MetadataTableSnapshot, accepted: Collection[str]) -> str | None:
    """None when this release serves the table, else the reason. Pending writes are shown apart."""
    try:
        check_servable(storage, [each.requested for each in snapshot.data_timeline.pending()], accepted)
        check_shards(snapshot.num_shards)
    except (UnsupportedTableError, SchemaError) as error:
        return str(error)
    return None
