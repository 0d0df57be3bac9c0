"""`tidemark table describe`: a table as its files show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hudi_format.commit.instants import instant_path
from hudi_format.commit.lock import foreign_writer_options, read_lock
from hudi_format.errors import UnsupportedTableError
from hudi_format.file_group.slices import build_slices
from hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from hudi_format.storage.base import Storage
from hudi_format.storage.locate import open_storage
from hudi_format.table_config import read_table_config
from hudi_format.timeline import Action, Timeline
from hudi_format.timeline.avro_records import decode_commit_metadata
from hudi_format.validation import check_servable
from stream_runtime.config import TableConfigFile


def describe_table(config: TableConfigFile) -> dict[str, Any]:
    """Reads files only. Raises FileMissingError when there is no table, CorruptFileError."""
    storage = open_storage(config.table.path)
    table = read_table_config(storage)
    snapshot = MetadataTableSnapshot.load(storage)
    slices = build_slices(snapshot.files.names(), snapshot.data_timeline)
    holder = read_lock(storage)
    why_not = _why_not(storage, snapshot.data_timeline)
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
        "foreign_writer_options": foreign_writer_options(storage.base_uri),
    }


def description_lines(document: dict[str, Any]) -> Iterator[str]:
    """The page of `tidemark table describe`."""
    yield f"table       {document['name']}  {document['path']}"
    yield f"type        {document['type']}, version {document['version']}, {document['merge_mode']}"
    yield f"record key  {', '.join(document['record_key'])}"
    yield f"partition   {', '.join(document['partition']) or 'none'}"
    yield f"ordering    {', '.join(document['ordering']) or 'order of arrival'}"
    indexes = ", ".join(document["metadata_partitions"])
    yield f"index       {document['shards']} shards; metadata table: {indexes}"
    yield (
        f"files       {document['partitions']} partitions, {document['file_groups']} file groups, "
        f"{document['base_files']} base and {document['log_files']} log files in use; "
        f"{document['bytes']} bytes in all"
    )
    newest = document["newest_commit"]
    yield (
        f"newest      instant {newest['instant']}, epoch {newest['epoch'] or '- (another writer)'}"
        if newest
        else "newest      no commit yet"
    )
    for pending in document["pending"]:
        yield f"pending     {pending}"
    if document["lock"] is not None:
        term = document["lock"]["term"]
        yield "lock        " + (
            "held by another writer" if term is None else f"held by coordinator term {term}"
        )
    yield f"servable    {'yes' if document['servable'] else 'no: ' + document['not_servable']}"
    yield "other writers (Hudi on Spark) need these options while Tidemark runs:"
    for key, value in document["foreign_writer_options"].items():
        yield f"  {key}={value}"


def _newest_commit(storage: Storage, timeline: Timeline) -> dict[str, Any] | None:
    commits = timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
    if not commits:
        return None
    newest = max(commits, key=lambda each: str(each.completion))
    extra = decode_commit_metadata(storage.read(instant_path(newest))).extra_metadata
    epoch = extra.get("tidemark.epoch")
    return {
        "instant": newest.requested,
        "completion": newest.completion,
        "epoch": int(epoch) if epoch is not None else None,
    }


def _why_not(storage: Storage, timeline: Timeline) -> str | None:
    """None when this release serves the table, else the reason. Pending writes are shown apart."""
    try:
        check_servable(storage, [each.requested for each in timeline.pending()])
    except UnsupportedTableError as error:
        return str(error)
    return None
