"""Puts entries of a secondary index right in a commit of its own.

Readers count a deltacommit of the metadata table when the data table has completed an instant of that time
(METADATA_TABLE.md, section 8.1), so the data table gets a commit without rows:

1. the data table's completed file: it changes nothing, and names the repair,
2. the log files, which nobody reads yet,
3. the metadata table's completed file: from here on the entries count,
4. the files of the states before, which archival reads, those of the data table last.

The completed files come first, so a killed run leaves no pending instant. What it leaves is an instant of the
data table without inflight file; `end_killed` makes that whole, without entries if they did not count
by then. Example: killed between two log files, the first of them is deleted, and the metadata table gets a
deltacommit without files. At that time entries of later commits may be there, so they are not to come late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.metadata_table.delta_commit import (
    OPERATION_UPSERT_PREPPED,
    delta_commit_metadata,
    publish_log,
)
from tidemark.hudi_format.metadata_table.index_writes import instant_of
from tidemark.hudi_format.metadata_table.killed_commands import (
    add_states,
    builds_without_inflight,
    commits_without_inflight,
    end_killed_builds,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    load_timeline,
)
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)

REPAIR_KEY: Final = "tidemark-repair"
"""In the extra metadata of the data table's commit: the index's partition, and when the metadata table's
commit completes.
"""
_OPERATION: Final = "UPSERT"


@dataclass(frozen=True, slots=True)
class RepairTimes:
    """Each later than those of both timelines, in this order: the instant, and when each of the two timelines
    completes it. As of every commit, that of the data table has the later time, though its file comes first.
    """

    instant: str
    metadata: str
    data: str


def write_entries(
    by: Command,
    partition: SecondaryIndexPartition,
    changes: Mapping[ShardId, SecondaryChanges],
    times: RepairTimes,
    schema: TableSchema,
    action: Action,
) -> None:
    """Writes the entries of each group. Hold the lock; no write is pending. `schema`: the table's; `action`:
    of its writes. Raises FencedOutError.
    """
    extra = {SCHEMA_KEY: schema.avro_json, REPAIR_KEY: f"{partition.name} {times.metadata}"}
    empty = CommitMetadata(extra_metadata=extra, operation_type=_OPERATION)
    data_commit = Instant(times.instant, action, State.COMPLETED, times.data)
    by.storage.create(instant_path(data_commit), encode_commit_metadata(empty))
    publisher = Unfenced(by.storage)
    logs = []
    for group, changed in sorted(changes.items()):
        log, data = partition.log_file(changed, times.instant, group)
        publish_log(publisher, log, data)
        logs.append(log)
    _complete_index(by, times.instant, times.metadata, logs)
    add_states(by.storage, data_commit, DATA_ROOT)


def has_killed(storage: Storage) -> bool:
    """Whether a killed repair or build may have left an instant that is not whole. Reads no commit."""
    return bool(commits_without_inflight(storage, DATA_ROOT) or builds_without_inflight(storage))


def end_killed(by: Command) -> None:
    """Makes what killed repairs and builds left whole. Hold the lock. Repeatable. Raises CorruptFileError,
    FencedOutError.
    """
    end_killed_builds(by.storage)
    for instant in commits_without_inflight(by.storage, DATA_ROOT):
        path = instant_path(instant)
        repair = decode_commit_metadata(by.storage.read(path), path).extra_metadata.get(REPAIR_KEY)
        if repair is not None:
            index, _, completion = repair.partition(" ")
            _end_in_index(by, instant.requested, index, completion)
            add_states(by.storage, instant, DATA_ROOT)


def _end_in_index(by: Command, instant: str, index: str, completion: str) -> None:
    timeline = load_timeline(by.storage, METADATA_TABLE_ROOT)
    commit = timeline.find(instant)
    if commit is not None:
        add_states(by.storage, commit, METADATA_TABLE_ROOT)
    elif not timeline.is_archived(instant):
        folder = join_path(METADATA_TABLE_PATH, index)
        for name in [name for name in by.storage.names(folder) if instant_of(name) == instant]:
            by.storage.delete(join_path(folder, name))
        _complete_index(by, instant, completion, [])


def _complete_index(by: Command, instant: str, completion: str, logs: list[MetadataLogFile]) -> None:
    commit = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, completion)
    extra = {SCHEMA_KEY: commit_schema()}
    nothing = CommitMetadata(extra_metadata=extra, operation_type=OPERATION_UPSERT_PREPPED)
    metadata = delta_commit_metadata(instant, logs) if logs else nothing
    by.storage.create(instant_path(commit, METADATA_TABLE_ROOT), encode_commit_metadata(metadata))
    add_states(by.storage, commit, METADATA_TABLE_ROOT)
