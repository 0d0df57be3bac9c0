"""Compactions of the metadata table as a planner and `status` see them."""

from __future__ import annotations

import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.hudi_format.commit.instants import create_requested
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.metadata_table.compaction import (
    delta_commits_since_compaction,
    pending_compactions,
)
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    compaction_metrics,
    encode_compaction_plan,
)


def plan(*file_ids: str) -> bytes:
    operations = tuple(
        CompactionOperation(
            base_instant="00000000000000001",
            log_files=(),
            file_id=file_id,
            partition_path="record_index",
            metrics=compaction_metrics(1, 80, 0),
        )
        for file_id in file_ids
    )
    return encode_compaction_plan(RequestedCompaction(operations=operations))


def test_the_file_groups_of_a_pending_plan_are_named() -> None:
    table = IndexedTable()
    instant = table.times.next()
    create_requested(
        Unfenced(table.storage),
        instant,
        Action.COMPACTION,
        plan("record-index-0000-0", "record-index-0001-0"),
        root=METADATA_TABLE_ROOT,
    )
    snapshot = table.snapshot()
    assert pending_compactions(table.storage, snapshot.metadata_timeline) == {
        ("record_index", "record-index-0000-0"): instant,
        ("record_index", "record-index-0001-0"): instant,
    }
    table.storage.delete(f"{METADATA_TABLE_ROOT}/timeline/{instant}.compaction.requested")
    with pytest.raises(FileMissingError):
        pending_compactions(table.storage, snapshot.metadata_timeline)


def test_deltacommits_are_counted_from_the_newest_compaction_by_completion() -> None:
    table = IndexedTable()
    assert delta_commits_since_compaction(table.snapshot().metadata_timeline) == 0
    table.commit({"a": 1})
    table.commit({"b": 1})
    assert delta_commits_since_compaction(table.snapshot().metadata_timeline) == 2
    compaction = table.schedule_compaction()
    before = dict(table.live)
    table.commit({"c": 1})
    assert delta_commits_since_compaction(table.snapshot().metadata_timeline) == 3
    table.finish_compaction(compaction, before)
    assert delta_commits_since_compaction(table.snapshot().metadata_timeline) == 1
    assert pending_compactions(table.storage, table.snapshot().metadata_timeline) == {}
