"""The contents of an epoch's two commits: write statuses, and the input that the epoch covers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.committing import keyed_positions
from tidemark.epoch_protocol.entries import CommitDecided, Counts, EpochPlanned
from tidemark.epoch_protocol.lanes import split_lane
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    file_changes,
    publish_files_log,
)
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata, group_stats


def data_commit_metadata(context: Context, planned: EpochPlanned, report: Report) -> CommitMetadata:
    """The content of the data table's commit. The same decisions give the same content."""
    extra = {"schema": planned.schema, **origin(context, planned)}
    return CommitMetadata(write_stats=group_stats(list(report.data)), extra_metadata=extra)


def origin(context: Context, planned: EpochPlanned) -> dict[str, str]:
    """The `tidemark.*` extra metadata of both commits (docs/in-the-table.md)."""
    state = context.fold().state
    keyed = {
        f"{context.table.keyed_topic}:{lane}": part
        for lane, part in moved(state.committed.keyed_next, keyed_positions(state, planned.through)).items()
    }
    inputs = context.table.inputs
    sources = moved(inputs.committed(state), inputs.committed_by(state, planned.through))
    return {
        "tidemark.epoch": str(planned.epoch),
        # Epochs without rows have no commit. Without this key a commit that was undone would look like one.
        "tidemark.previous_instant": state.committed.instant or "",
        "tidemark.keyed_offsets": _offsets(keyed),
        "tidemark.source_offsets": _offsets(sources),
        "tidemark.records": json.dumps(_records(state, planned), sort_keys=True),
    }


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Lane -> half-open range of offsets that an epoch covers. A lane without an earlier position begins at
    0.

    Example: before {"a": 3}, after {"a": 5, "b": 2} gives {"a": (3, 5), "b": (0, 2)}.
    """
    return {lane: (before.get(lane, 0), position) for lane, position in after.items()}


def _offsets(lanes: Mapping[str, tuple[int, int]]) -> str:
    topics: dict[str, dict[str, tuple[int, int]]] = {}
    for lane, positions in lanes.items():
        log, partition = split_lane(lane)
        topics.setdefault(log, {})[partition] = positions
    return json.dumps(topics, sort_keys=True)


def _records(state: FoldState, planned: EpochPlanned) -> dict[str, int]:
    counts = sum((t.entry.counts for t in state.tagged if t.offset <= planned.through), Counts())
    shuffled = [s.entry for s in state.shuffled if state.committed.through < s.offset <= planned.through]
    return {
        "input": counts.input,
        "inserts": counts.inserts,
        "updates": counts.updates,
        "deletes": counts.deletes,
        "superseded": counts.superseded,
        "no_ops": counts.no_ops,
        "dead_letter": counts.dead_letters + sum(entry.dead_letters for entry in shuffled),
    }


def metadata_content(context: Context, planned: EpochPlanned, report: Report) -> bytes:
    """The content of the metadata table's deltacommit, before the log file of `files` is made."""
    instant = planned.instant or ""
    files, _ = FILES.log_file(file_changes(report.data), instant, ShardId(0))
    return _content(context, planned, [files, *_logs(report)])


def _content(context: Context, planned: EpochPlanned, logs: Sequence[MetadataLogFile]) -> bytes:
    metadata = delta_commit_metadata(planned.instant or "", logs, origin(context, planned))
    return encode_commit_metadata(metadata)


def _logs(report: Report) -> list[MetadataLogFile]:
    logs = [*report.metadata_logs, *(begun.log for begun in report.begun)]
    return sorted(logs, key=lambda log: (log.partition, log.shard, log.name))


def metadata_commit(
    context: Context, planned: EpochPlanned, decided: CommitDecided, report: Report
) -> list[MetadataLogFile]:
    """Step 3: makes the metadata table's deltacommit of the same instant, before the data commit.

    Returns its log files, that of `files` first.
    Raises TimelineConflictError when a file of it is there with other content.
    """
    assert planned.instant is not None
    publishing = context.publishing
    inflight = begin_delta_commit(publishing, planned.instant)
    files = publish_files_log(publishing, planned.instant, file_changes(report.data))
    logs = _logs(report)
    held = context.prepared
    if held is not None and held.report is report:
        content = held.metadata
    else:
        content = _content(context, planned, [files, *logs])
    context.hit(CoordinatorFailpoint.BEFORE_METADATA_COMPLETED)
    lease = context.lock.lease()
    complete_delta_commit(publishing, inflight, decided.metadata_completion, content, lease)
    return [files, *logs]
