"""The records by which Hudi's timelines tell what a table service does, made from its documents
(TABLE_SERVICES.md, sections 2 and 3).

All are pure: equal documents and times give equal bytes, so a step that is repeated after a crash finds the
file that it made before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.key_digest import DIGESTS_KEY, digests_text
from tidemark.hudi_format.metadata_table.partitions.column_stats import StatsChanges, file_keys
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import ShardId, instant_to_ms
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services.operations import (
    CleanPlan,
    CompactionPlan,
    MergeOperation,
    MergeOutcome,
)
from tidemark.hudi_format.timeline.avro_records import (
    OPERATION_COMPACT,
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    group_stats,
)
from tidemark.hudi_format.timeline.clean_records import CleanMetadata, RequestedClean, RetainedInstant
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    compaction_metrics,
)

# Hudi writes this text as the previous commit of a file group's first base file.
_NO_COMMIT: Final = "null"
_SAVEPOINTED: Final = "savepointed_timestamps"


def requested_compaction(plan: CompactionPlan) -> RequestedCompaction:
    """The content of `T.compaction.requested`."""
    return RequestedCompaction(
        operations=tuple(
            CompactionOperation(
                partition_path=operation.partition,
                file_id=operation.file_id,
                base_instant=operation.base_instant,
                log_files=operation.log_files,
                base_file=operation.base_file,
                metrics=compaction_metrics(
                    len(operation.log_files), operation.log_bytes, operation.base_bytes
                ),
            )
            for _, operation in plan.kept()
        ),
        missing_partitions=plan.missing_partitions,
    )


def compaction_metadata(plan: CompactionPlan, outcomes: Sequence[MergeOutcome]) -> CommitMetadata:
    """The content of `T_C.commit`, of the data table or the metadata table. The schema and the digests of the
    keys that were written are its only extra metadata: a compaction carries on none of the commits whose log
    files it merges.
    """
    kept = kept_outcomes(plan, outcomes)
    digests = {
        plan.operations[outcome.ordinal].file_id: (outcome.digest_count, outcome.digest_sum)
        for outcome in kept
    }
    stats = [_base_file_stat(plan.operations[outcome.ordinal], outcome) for outcome in kept]
    return CommitMetadata(
        write_stats=group_stats(stats),
        extra_metadata={SCHEMA_KEY: plan.schema, DIGESTS_KEY: digests_text(digests)},
        operation_type=OPERATION_COMPACT,
        compacted=True,
    )


def compacted_files(plan: CompactionPlan, outcomes: Sequence[MergeOutcome]) -> list[FileChange]:
    """What the metadata table's deltacommit of a data compaction adds to `files`. The record index gets
    nothing: no row moves to another file group.
    """
    return [
        FileChange(plan.operations[outcome.ordinal].partition, outcome.name, outcome.size)
        for outcome in kept_outcomes(plan, outcomes)
    ]


def compacted_stats(plan: CompactionPlan, outcomes: Sequence[MergeOutcome]) -> dict[ShardId, StatsChanges]:
    """What that deltacommit adds to the column stats, by their file groups; nothing where the table keeps
    none.
    """
    if plan.stats is None:
        return {}
    kept = kept_outcomes(plan, outcomes)
    records = {key: value for outcome in kept for key, value in outcome.stats.items()}
    return StatsChanges(records).by_group(plan.stats.groups)


def kept_outcomes(plan: CompactionPlan, outcomes: Sequence[MergeOutcome]) -> list[MergeOutcome]:
    """The outcomes of the operations that are not dropped."""
    kept = {ordinal for ordinal, _ in plan.kept()}
    return [outcome for outcome in outcomes if outcome.ordinal in kept]


def requested_clean(plan: CleanPlan, base_uri: str) -> RequestedClean:
    """The content of `T.clean.requested`. ``base_uri``: the data table's folder."""
    table = join_path(base_uri, METADATA_TABLE_PATH) if plan.is_index else base_uri
    return RequestedClean(
        files={
            partition: tuple(join_path(table, partition, name) for name in names)
            for partition, names in plan.files.items()
        },
        last_completed=plan.last_completed,
        retained=None if plan.retained is None else RetainedInstant(*plan.retained),
        extra_metadata=_savepointed(plan),
    )


def clean_metadata(plan: CleanPlan, completion: str) -> CleanMetadata:
    """The content of `T_C.clean`, where ``completion`` is C. It is written before the files are deleted."""
    return CleanMetadata(
        earliest_commit_to_retain="" if plan.retained is None else plan.retained[0],
        deleted=plan.files,
        start_clean_time=plan.instant,
        time_taken_ms=instant_to_ms(completion) - instant_to_ms(plan.instant),
        last_completed=plan.last_completed,
        extra_metadata=_savepointed(plan),
    )


def _savepointed(plan: CleanPlan) -> dict[str, str]:
    return {_SAVEPOINTED: ",".join(plan.savepoints)} if plan.savepoints else {}


def cleaned_files(plan: CleanPlan) -> list[FileChange]:
    """What the metadata table's deltacommit of a data clean removes from `files`."""
    return [FileChange(partition, name, None) for partition, names in plan.files.items() for name in names]


def cleaned_stats(plan: CleanPlan) -> dict[ShardId, StatsChanges]:
    """What that deltacommit deletes from the column stats, by their file groups: the keys of each file for
    every column, also of files that have no records. Nothing where the table keeps none.
    """
    if plan.stats is None:
        return {}
    keys = [
        key
        for partition, names in plan.files.items()
        for name in names
        for key in file_keys(partition, name, plan.stats.columns)
    ]
    return StatsChanges(deleted=keys).by_group(plan.stats.groups)


def _base_file_stat(operation: MergeOperation, outcome: MergeOutcome) -> WriteStat:
    previous = BaseFileName.parse(operation.base_file) if operation.base_file else None
    return WriteStat(
        file_id=operation.file_id,
        path=join_path(operation.partition, outcome.name),
        partition_path=operation.partition,
        prev_commit=previous.instant if previous else _NO_COMMIT,
        prev_base_file=operation.base_file,
        num_writes=outcome.rows,
        num_inserts=outcome.inserts,
        num_update_writes=outcome.updates,
        num_deletes=outcome.deletes,
        total_write_bytes=outcome.size,
        file_size_in_bytes=outcome.size,
        total_log_records=outcome.log_records,
        total_updated_records_compacted=outcome.updates,
        total_log_files_compacted=len(operation.log_files),
        total_log_size_compacted=operation.log_bytes,
    )
