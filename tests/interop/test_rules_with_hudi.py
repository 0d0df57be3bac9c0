"""`tests/hudi_rules` against Hudi on Spark, once per operation: before each the rules say what it will do,
and afterwards what readers see.

The simulation's other engine acts, and its checkers read, by these rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tests.hudi_rules import cleaning
from tests.hudi_rules.archiving import to_archive
from tests.hudi_rules.undoing import check_rollback, files_of, forgotten_by_restore, to_restore
from tests.interop.judge import HudiJudge
from tests.interop.ruled_table import (
    assert_cleaned,
    assert_slices,
    look,
    metadata_timeline,
    newest,
)
from tests.interop.spark_operations import SparkOperations
from tests.interop.test_timeline_with_hudi import rows

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


def assert_archived(operations: SparkOperations, retained: str | None) -> bool:
    """Hudi archives what the rules say; whether that was anything."""
    before = look(operations.table)
    metadata = metadata_timeline(operations.table)
    wanted = to_archive(before.timeline, metadata, 2, 3, retained, DELTAS)
    operations.archive(2, 3)
    after = look(operations.table)
    moved = {each.requested: each.completion for each in wanted}
    assert after.archived == {**before.archived, **moved}
    assert before.timeline.instants.keys() - after.timeline.instants.keys() == moved.keys()
    return bool(wanted)


def test_archival_beside_a_pending_write_and_for_the_next_compaction(
    judge: HudiJudge, tmp_path: Path
) -> None:
    table = tmp_path / "archived"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="MERGE_ON_READ")
    operations = SparkOperations(judge, table, {})
    try:
        for version in range(1, 8):
            operations.write(rows(0, 4, version), "upsert", **COMPACTS)
        third = look(table).timeline.writes()[2]
        done = table / ".hoodie" / "timeline" / third.name
        content = done.read_bytes()
        done.unlink()
        assert assert_archived(operations, None)
        assert len(look(table).archived) == 1
        done.write_bytes(content)
        assert assert_archived(operations, None)
        assert len(look(table).archived) == 3
        assert_slices(judge, table)
    finally:
        operations.close()


def test_archival(judge: HudiJudge, tmp_path: Path) -> None:
    table = tmp_path / "archived"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="COPY_ON_WRITE")
    operations = SparkOperations(judge, table, {})
    try:
        for version in range(1, 4):
            operations.write(rows(0, 10, version), "upsert")
        # Without a compaction of the metadata table nothing may go.
        assert not assert_archived(operations, None)
        for version in range(4, 7):
            operations.write(rows(0, 10, version), "upsert", **COMPACTS)
        assert assert_archived(operations, None)
        # Nothing beyond a savepoint.
        operations.savepoint(newest(table).requested)
        operations.write(rows(0, 10, 7), "upsert", **COMPACTS)
        american = rows(100, 4, 8)
        operations.write(american.filter(pc.equal(american["region"], "us")), "insert_overwrite", **COMPACTS)
        for version in range(9, 12):
            operations.write(rows(0, 10, version), "upsert", **COMPACTS)
        assert assert_archived(operations, None)
        assert look(table).timeline.savepoints <= look(table).timeline.instants.keys()
        operations.delete_savepoint(*look(table).timeline.savepoints)
        # Nothing beyond a replacecommit whose groups are not cleaned.
        assert assert_archived(operations, None)
        replacing = look(table).timeline.completed("replacecommit")
        assert len(replacing) == 1
        plan = cleaning.plan_by_commits(look(table), 1)
        assert plan is not None
        assert_cleaned(operations, plan, cleaning.COMMITS, 1)
        operations.write(rows(0, 10, 12), "upsert", **COMPACTS)
        assert plan.retained is not None
        assert assert_archived(operations, plan.retained.requested)
        assert look(table).timeline.completed("replacecommit") == []
        assert_slices(judge, table)
        assert len(judge.snapshot(table)) == len(judge.snapshot(table, metadata=False))
    finally:
        operations.close()
