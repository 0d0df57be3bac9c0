"""Puts entries of a secondary index right in a commit of its own.

Readers count a deltacommit of the metadata table when the data table has completed an instant of that time
(METADATA_TABLE.md, section 8.1), so the data table gets a commit without rows:

1. the log files, which nobody reads yet,
2. the data table's commit: it changes nothing,
3. the metadata table's deltacommit: from here on the entries count.

The completed files come first, and those of the states before, which archival reads, behind them: what a
killed run leaves is a commit without rows, or all of it, and never a pending instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.hudi_format.commit.instants import create_inflight, create_requested, instant_path
from tidemark.hudi_format.metadata_table.delta_commit import (
    OPERATION_UPSERT_PREPPED,
    delta_commit_metadata,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, encode_commit_metadata

_OPERATION = "UPSERT"


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
    publisher = Unfenced(by.storage)
    logs = []
    for group, changed in sorted(changes.items()):
        log, data = partition.log_file(changed, times.instant, group)
        publish_log(publisher, log, data)
        logs.append(log)
    empty = CommitMetadata(extra_metadata={SCHEMA_KEY: schema.avro_json}, operation_type=_OPERATION)
    of_index = replace(delta_commit_metadata(times.instant, logs), operation_type=OPERATION_UPSERT_PREPPED)
    _complete(by, times.instant, action, times.data, empty, DATA_ROOT)
    _complete(by, times.instant, Action.DELTA_COMMIT, times.metadata, of_index, METADATA_TABLE_ROOT)


def _complete(
    by: Command, instant: str, action: Action, completion: str, metadata: CommitMetadata, root: str
) -> None:
    completed = Instant(instant, action, State.COMPLETED, completion)
    by.storage.create(instant_path(completed, root), encode_commit_metadata(metadata))
    requested = create_requested(Unfenced(by.storage), instant, action, root=root)
    create_inflight(Unfenced(by.storage), requested, root=root)
