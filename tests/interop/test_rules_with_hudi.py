"""`tests/hudi_rules` against Hudi on Spark, once per operation: before each the rules say what it will do,
and afterwards what readers see.

The simulation's other engine acts, and its checkers read, by these rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tests.hudi_rules import cleaning
from tests.hudi_rules.archiving import Keep, to_archive
from tests.hudi_rules.timeline import WRITES
from tests.hudi_rules.undoing import (
    check_restore,
    check_rollback,
    files_of,
    forgotten_by_restore,
    to_restore,
    written_after,
)
from tests.interop.judge import HudiJudge
from tests.interop.ruled_table import (
    assert_cleaned,
    assert_slices,
    look,
    metadata_timeline,
    newest,
)
from tests.interop.spark_operations import SparkOperations
from tests.interop.test_rollback_with_hudi import died
from tests.interop.test_timeline_with_hudi import rows
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.timeline import Action

pytestmark = pytest.mark.spark

COMPACTS = {"hoodie.metadata.compact.max.delta.commits": "1"}
"""A write with these begins with a compaction of the metadata table."""
DELTAS = 5
"""Hudi's default of hoodie.compact.inline.max.delta.commits."""


@pytest.fixture
def operations(judge: HudiJudge, tmp_path: Path) -> Iterator[SparkOperations]:
    table = tmp_path / "ruled"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="MERGE_ON_READ")
    made = SparkOperations(judge, table, {})
    yield made
    made.close()


def test_slices_compaction_and_clean(judge: HudiJudge, operations: SparkOperations) -> None:
    table = operations.table
    operations.write(rows(0, 10, 1), "upsert")
    assert_slices(judge, table)
    operations.compaction("schedule")
    operations.write(rows(0, 6, 2), "upsert")
    assert look(table).scheduled
    assert_slices(judge, table)
    # What a scheduled compaction needs stays, whatever the policy.
    assert_cleaned(operations, cleaning.plan_by_versions(look(table), 1), cleaning.VERSIONS, 1)
    operations.compaction("execute")
    assert not look(table).scheduled
    assert_slices(judge, table)
    operations.write(rows(30, 4, 3), "upsert")
    plan = cleaning.plan_by_commits(look(table), 1)
    assert plan is not None
    assert_cleaned(operations, plan, cleaning.COMMITS, 1)
    operations.write(rows(0, 20, 4), "upsert")
    operations.compaction("schedule")
    operations.compaction("execute")
    operations.write(rows(0, 4, 5), "upsert")
    assert_cleaned(operations, cleaning.plan_by_time(look(table), "0"), cleaning.HOURS, 24)
    plan = cleaning.plan_by_versions(look(table), 1)
    assert plan is not None
    assert_cleaned(operations, plan, cleaning.VERSIONS, 1)
    assert_slices(judge, table)


def test_replaced_file_groups(judge: HudiJudge, operations: SparkOperations) -> None:
    table = operations.table
    operations.write(rows(0, 10, 1), "upsert")
    before = set(look(table).read_slices())
    operations.clustering("schedule", "eu")
    assert {group for group in before if group[0] == "eu"} == set(look(table).clustered)
    operations.clustering("execute", "eu")
    assert {group for group in before if group[0] == "eu"} == set(look(table).replaced)
    assert_slices(judge, table)
    like = rows(100, 4, 2)
    operations.write(like.filter(pc.equal(like["region"], "us")), "insert_overwrite")
    assert {group for group in before if group[0] == "us"} <= set(look(table).replaced)
    assert_slices(judge, table)
    operations.delete_partition("us", like)
    assert not any(partition == "us" for partition, _ in look(table).read_slices())
    assert_slices(judge, table)
    operations.write(rows(41, 1, 3), "upsert")
    plan = cleaning.plan_by_commits(look(table), 1)
    assert plan is not None
    assert plan.partitions == ("us",)
    assert_cleaned(operations, plan, cleaning.COMMITS, 1)


def test_rollback_savepoint_and_restore(judge: HudiJudge, operations: SparkOperations) -> None:
    table = operations.table
    operations.write(rows(0, 10, 1), "upsert")
    kept = newest(table)
    operations.savepoint(kept.requested)
    ruled = look(table)
    for (partition, _), (base, logs) in ruled.read_slices().items():
        assert {*logs, *([base] if base else [])} <= ruled.savepoints[kept.requested][partition]

    operations.write(rows(0, 12, 2), "upsert")
    target, ruled = newest(table), look(table)
    check_rollback(ruled.timeline, metadata_timeline(table), target.requested)
    gone = files_of(ruled.files, target.requested)
    operations.rollback(target.requested)
    after = look(table)
    for partition, names in ruled.files.items():
        assert set(names) - set(after.files[partition]) == set(gone.get(partition, ()))
    assert target.requested not in after.timeline.instants
    assert target.requested not in metadata_timeline(table).instants
    assert_slices(judge, table)

    operations.write(rows(0, 12, 3), "upsert")
    operations.write(rows(20, 4, 4), "upsert")
    ruled = look(table)
    targets = to_restore(ruled.timeline, kept.requested)
    operations.restore(kept.requested)
    after = look(table)
    gone_instants = [*targets, *forgotten_by_restore(ruled.timeline, kept.requested)]
    assert {*ruled.timeline.instants} - {*after.timeline.instants} == {
        each.requested for each in gone_instants
    }
    done = after.timeline.completed("restore")[-1]
    named = {each["commitTime"] for each in after.document(done)["restoreInstantInfo"]}
    assert named == {each.requested for each in targets}
    assert_slices(judge, table)
    # What the metadata table has for it alone.
    alone = metadata_timeline(table).instants.keys() - after.timeline.instants.keys()
    assert [each for each in alone if not each.startswith("0000")]


def test_a_restore_over_a_clean_and_a_pending_write(judge: HudiJudge, operations: SparkOperations) -> None:
    table, storage = operations.table, LocalStorage(operations.table)
    operations.write(rows(0, 10, 1), "upsert")
    kept = newest(table).requested
    operations.savepoint(kept)
    operations.compaction("schedule")
    operations.compaction("execute")
    operations.write(rows(0, 10, 2), "upsert")
    plan = cleaning.plan_by_versions(look(table), 1)
    operations.clean(cleaning.VERSIONS, 1)
    pending, _ = died(storage, Action.DELTA_COMMIT, "data")
    donor = next(each for each in storage.walk(RECORD_INDEX_FOLDER) if ".log." in each.name)
    log = f"{RECORD_INDEX_FOLDER}/.record-index-0000-0_{pending}.log.1_0-0-0"
    storage.create(log, storage.read(donor.path))

    data, metadata = look(table).timeline, metadata_timeline(table)
    targets = to_restore(data, kept)
    check_restore(metadata, kept)
    assert pending in {each.requested for each in targets}
    cleaned = [each.requested for each in data.completed("clean")]
    assert len(cleaned) == (plan is not None)
    gone = written_after(metadata, kept)
    assert {each.requested for each in gone} > set(cleaned)
    operations.restore(kept)

    after, metadata_after = look(table).timeline, metadata_timeline(table)
    assert data.instants.keys() - after.instants.keys() == {each.requested for each in targets}
    assert set(cleaned) <= after.instants.keys()
    assert metadata.instants.keys() - metadata_after.instants.keys() == {each.requested for each in gone}
    restored, synchronised = sorted(metadata_after.instants.keys() - metadata.instants.keys())
    assert metadata_after.instants[restored].action == "restore"
    assert metadata_after.instants[synchronised].action == "deltacommit"
    assert not {restored, synchronised} & after.instants.keys()
    # Of the pending write its files go; not what the metadata table does not know of, nor the heartbeat.
    assert files_of(look(table).files, pending) == {}
    assert storage.exists(log)
    assert storage.exists(heartbeat.heartbeat_path(pending))
    assert_slices(judge, table)


def assert_archived(operations: SparkOperations, count: int, commits: int = 1) -> None:
    """Hudi archives what the rules say, and that are so many writes."""
    before = look(operations.table)
    keep = Keep(2, 3, commits, DELTAS)
    wanted = to_archive(before, metadata_timeline(operations.table), keep)
    operations.archive(keep.least, keep.most, commits)
    after = look(operations.table)
    moved = {each.requested: each.completion for each in wanted}
    assert after.archived == {**before.archived, **moved}
    assert before.timeline.instants.keys() - after.timeline.instants.keys() == moved.keys()
    assert sum(each.action in WRITES for each in wanted) == count


@contextmanager
def pending(table: Path, number: int) -> Iterator[None]:
    """The write at this place of the timeline is not completed yet."""
    done = table / ".hoodie" / "timeline" / look(table).timeline.writes()[number].name
    content = done.read_bytes()
    done.unlink()
    yield
    done.write_bytes(content)


def test_archival_beside_a_pending_write_and_for_the_next_compaction(
    judge: HudiJudge, tmp_path: Path
) -> None:
    table = tmp_path / "archived"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="MERGE_ON_READ")
    operations = SparkOperations(judge, table, {})
    try:
        for version in range(1, 8):
            operations.write(rows(0, 4, version), "upsert", **COMPACTS)
        # A clean has to keep what is above the second: there are not enough writes below that.
        with pending(table, 2):
            assert_archived(operations, 0)
        with pending(table, 4):
            assert_archived(operations, 2)
        # A clean that keeps more than there is asks for nothing. The one below the pending write stays.
        with pending(table, 1):
            assert_archived(operations, 0, commits=100)
        with pending(table, 2):
            assert_archived(operations, 1, commits=100)
        # Five deltacommits are left, and stay for the next compaction.
        assert_archived(operations, 0)
        assert len(look(table).timeline.writes()) == DELTAS
        operations.write(rows(0, 4, 8), "upsert", **COMPACTS)
        assert_archived(operations, 1)
        assert_slices(judge, table)
    finally:
        operations.close()


def test_archival_and_a_clean_beside_a_pending_write(judge: HudiJudge, tmp_path: Path) -> None:
    table = tmp_path / "archived"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="COPY_ON_WRITE")
    operations = SparkOperations(judge, table, {})
    try:
        for version in range(1, 4):
            operations.write(rows(0, 10, version), "upsert")
        with pending(table, 3):
            plan = cleaning.plan_by_commits(look(table), 1)
            assert plan is not None
            assert_cleaned(operations, plan, cleaning.COMMITS, 1)
        # Without a compaction of the metadata table nothing may go.
        assert_archived(operations, 0)
        for version in range(4, 7):
            operations.write(rows(0, 10, version), "upsert", **COMPACTS)
        assert_archived(operations, 5)
        # Nothing beyond a savepoint.
        operations.savepoint(newest(table).requested)
        operations.write(rows(0, 10, 7), "upsert", **COMPACTS)
        american = rows(100, 4, 8)
        operations.write(american.filter(pc.equal(american["region"], "us")), "insert_overwrite", **COMPACTS)
        for version in range(9, 12):
            operations.write(rows(0, 10, version), "upsert", **COMPACTS)
        assert_archived(operations, 1)
        # The savepoint's files stay: so does, once it is gone, what replaced them.
        plan = cleaning.plan_by_commits(look(table), 1)
        assert plan is not None
        assert_cleaned(operations, plan, cleaning.COMMITS, 1)
        operations.delete_savepoint(*look(table).timeline.savepoints)
        assert_archived(operations, 2)
        assert len(look(table).timeline.completed("replacecommit")) == 1
        # Until they are cleaned.
        operations.write(rows(0, 10, 12), "upsert", **COMPACTS)
        plan = cleaning.plan_by_commits(look(table), 1)
        assert plan is not None
        assert_cleaned(operations, plan, cleaning.COMMITS, 1)
        assert_archived(operations, 3)
        assert look(table).timeline.completed("replacecommit") == []
        assert_slices(judge, table)
        assert len(judge.snapshot(table)) == len(judge.snapshot(table, metadata=False))
    finally:
        operations.close()
