"""Both timelines archived by our handler, and Hudi on Spark on top, also when a coordinator died in the
middle, and behind a savepoint. Replaced file groups: Spark replaces them, we clean and archive. Increments
across archived instants, and files of the archive that we merged into the next level.

All of it is `make services-interop` (TIDEMARK_SERVICES=all); `make interop` draws a few such cases.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import IllegalArgumentException

from tests.interop.judge import HudiJudge, Rows
from tests.interop.served_story import (
    ARCHIVE,
    CLEAN_DATA,
    CLEANS,
    COW,
    INDEX,
    act,
    archived,
    compact,
    every_case,
    free_lock,
    goes_on_behind_a_death,
    holds,
    instants,
    is_merge_on_read,
    keys_since,
    may_act,
    newest_completion,
    old_story,
    spark_of,
    spark_upserts_beside_us,
    story_of,
)
from tests.interop.spark_operations import COMPACTS_INDEX, SparkOperations
from tests.interop.test_spark_behind_our_cleans import ANY_TIME, INLINE_SERVICES
from tests.interop.verdict import (
    assert_same_rows,
    assert_table_holds,
    hudi_rs_increment,
    hudi_rs_snapshot,
)
from tests.service_actions import DiedError
from tests.unit.commit_coordinator.table_services.story import ARROW, Story
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archiving import newest_manifest
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    ArchivedInstant,
    ArchivedTimeline,
    load_timeline,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, every_case]

STEPS = [
    (CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE, 1),
    (CoordinatorFailpoint.AFTER_SERVICE_METADATA, 1),
    (CoordinatorFailpoint.AFTER_SERVICE_COMPLETED, 1),
    (CoordinatorFailpoint.IN_SWEEP, 1),
    (CoordinatorFailpoint.IN_SWEEP, 2),
    (CoordinatorFailpoint.IN_SWEEP, 3),
]


@pytest.mark.parametrize("spark_writes", [False, True], ids=["spark-reads", "spark-writes"])
@pytest.mark.parametrize("root", [DATA_ROOT, METADATA_TABLE_ROOT])
@pytest.mark.parametrize(("step", "nth"), STEPS)
@pytest.mark.parametrize("table_type", TableType)
def test_a_coordinator_dies_and_spark_goes_on(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    root: str,
    step: CoordinatorFailpoint,
    nth: int,
    spark_writes: bool,
) -> None:
    story = old_story(tmp_path, table_type)
    if root == METADATA_TABLE_ROOT:
        act(story, ARCHIVE)
    story.served.dies_at(step, nth)
    with pytest.raises(DiedError):
        story.served.act(ARCHIVE)
    free_lock(story)
    goes_on_behind_a_death(judge, story, ARCHIVE, spark_upserts_beside_us, spark_writes)


def test_a_copy_on_write_table(judge: HudiJudge, tmp_path: Path) -> None:
    story = old_story(tmp_path, COW)
    act(story, ARCHIVE)
    act(story, ARCHIVE)
    holds(judge, story)
    spark_upserts_beside_us(judge, story, 1, 2, 40)
    act(story, INDEX)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    holds(judge, story)


@pytest.mark.parametrize("table_type", TableType)
def test_spark_restores_to_a_savepoint_behind_our_archival(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    story = old_story(tmp_path, table_type)
    kept, rows = dict(story.live), story.rows()
    spark = spark_of(judge, story)
    instant = instants(story)[-1]
    spark.savepoint(instant)
    for n, gone in enumerate((8, 9, 11, 20)):
        story.commit((3, 50 + n), deletes=(gone,))
        compact(story)
        may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    assert archived(story)
    assert archived(story, METADATA_TABLE_ROOT)
    assert max(archived(story)) < instant
    holds(judge, story)
    spark.restore(instant)
    spark.delete_savepoint(instant)
    story.live = kept
    assert_table_holds(judge, story.path, rows)
    spark_upserts_beside_us(judge, story, 1, 70)
    holds(judge, story)
    # Nothing that the restore left on the timeline may make archived commits look pending to Hudi.
    for n in range(4):
        story.commit((1, 80 + n))
        compact(story)
        may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
        holds(judge, story)
    # Spark compacts the metadata table behind its restore, too, and then we do once more.
    spark.write(story.changed((2, 90)), "upsert", **COMPACTS_INDEX)
    if is_merge_on_read(story):
        spark.compaction("schedule")
        spark.compaction("execute")
    holds(judge, story)
    story.commit((3, 91), deletes=(1,))
    compact(story)
    holds(judge, story)
    spark.close()


def clusters(spark: SparkOperations, story: Story) -> None:
    spark.clustering("scheduleAndExecute", "eu")


def overwrites(spark: SparkOperations, story: Story) -> None:
    rows = story.changed((6, 90))
    spark.write(rows, "insert_overwrite")
    keep = set(rows.column("id").to_pylist())
    story.live = {k: row for k, row in story.live.items() if k in keep or row[0] != "eu"}


def drops(spark: SparkOperations, story: Story) -> None:
    spark.delete_partition("eu", ARROW.empty_table())
    story.live = {k: row for k, row in story.live.items() if row[0] != "eu"}


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("replace", [clusters, overwrites, drops])
def test_replaced_groups_are_cleaned_and_their_replacecommit_is_archived(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    replace: Callable[[SparkOperations, Story], None],
) -> None:
    story = old_story(tmp_path, table_type)
    # Hudi takes entries out of the record index by base files alone.
    compact(story)
    spark = spark_of(judge, story)
    replace(spark, story)
    replaced = load_timeline(story.storage).completed(Action.REPLACE_COMMIT, Action.CLUSTERING)[-1].requested
    holds(judge, story)
    for n in (1, 3, 5):
        story.commit((n, 100 + n))
    act(story, INDEX)
    may_act(story, ARCHIVE)
    assert replaced not in archived(story), "its files are there"
    holds(judge, story)
    act(story, CLEAN_DATA)
    story.commit((7,))
    act(story, INDEX)
    act(story, ARCHIVE)
    assert replaced in archived(story)
    holds(judge, story)
    may_act(story, ARCHIVE)
    spark_upserts_beside_us(judge, story, 1, 2, 110)
    holds(judge, story)
    spark.close()


@pytest.mark.parametrize("table_type", TableType)
def test_increments_and_time_travel_across_archived_instants(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    """What docs/table-services.md says about them."""
    story = story_of(tmp_path, table_type)
    begin = str(load_timeline(story.storage).completed()[0].completion)
    story.commit((1, 30))
    then, rows = newest_completion(story), story.rows()
    before = keys_of(judge.incremental(story.path, begin))
    assert before == hudi_rs_increment(story.path, begin) == keys_since(story, 1)
    act(story, INDEX)
    story.commit((2, 31))
    story.commit((3, 32))
    act(story, INDEX)
    act(story, ARCHIVE)
    assert len(archived(story)) == 4
    # Spark takes archived commits from the archive, hudi-rs leaves them out and says nothing.
    assert keys_of(judge.incremental(story.path, begin)) == keys_since(story, 1)
    assert hudi_rs_increment(story.path, begin) == keys_since(story, 4) < keys_since(story, 1)
    assert_same_rows(judge.as_of(story.path, then), rows, "Spark at an archived instant")
    assert_same_rows(hudi_rs_snapshot(story.path, as_of=then), rows, "hudi-rs at an archived instant")
    compact(story)
    story.commit((4, 33))
    act(story, CLEAN_DATA)
    assert keys_of(judge.incremental(story.path, begin)) == keys_since(story, 1)
    with pytest.raises(IllegalArgumentException, match="ensure sufficient commits are retained"):
        judge.as_of(story.path, then)
    assert hudi_rs_snapshot(story.path, as_of=then) == [], "it says nothing"


ARCHIVES_BY_TWOS: Final = {
    **INLINE_SERVICES,
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.timeline.compaction.batch.size": "2",
}
"""Two files of a level of the archive become one of the next: Hudi's option is ten by default."""


@pytest.mark.parametrize("table_type", TableType)
def test_hudi_reads_archive_files_that_we_merged_and_merges_them_again(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels by two files instead of ten: we merge to level 1, Hudi to level 2, and then we on top of it."""
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 2)
    story = story_of(tmp_path, table_type)
    begin = str(load_timeline(story.storage).completed()[0].completion)
    story.commit((1, 30))
    then, rows = newest_completion(story), story.rows()
    written: dict[str, bytes] = {}
    for n in range(2):
        story.commit((1 + n,), deletes=(8 + 3 * n,))
        act(story, INDEX)
        story.commit((2 + n, 31 + n))
        story.commit((n,))
        act(story, INDEX)
        written |= active(story)
        act(story, ARCHIVE)
        act(story, ARCHIVE)
    assert levels(story, DATA_ROOT) == levels(story, METADATA_TABLE_ROOT) == [1]
    gone = {instant: text for instant, text in written.items() if instant not in active(story)}
    spark = spark_of(judge, story)
    assert shown(spark) == gone.keys()
    ours = contents(story)
    assert {row.requested: row.metadata for row in ours} == gone
    assert keys_of(judge.incremental(story.path, begin)) == keys_since(story, 1)
    assert_same_rows(judge.as_of(story.path, then), rows, "Spark at an instant of the merged file")
    holds(judge, story)

    spark_upserts_beside_us(judge, story, 1, 2, 40)
    holds(judge, story)
    for n in range(6):
        spark.write(story.changed((n, 50 + n)), "upsert", **ARCHIVES_BY_TWOS)
        if 2 in levels(story, DATA_ROOT):
            break
    assert 2 in levels(story, DATA_ROOT), "Hudi merges our file with its own"
    theirs = contents(story)
    assert theirs[: len(ours)] == ours
    assert len(theirs) > len(ours)
    assert shown(spark) == archived(story)
    assert keys_of(judge.incremental(story.path, begin)) == keys_since(story, 1)
    holds(judge, story)

    for n in range(2):
        story.commit((n, 60 + n))
        story.commit((n + 2,), deletes=(n + 6,))
        compact(story)
        may_act(story, ARCHIVE, ARCHIVE)
    assert contents(story)[: len(theirs)] == theirs
    assert len(contents(story)) > len(theirs)
    assert shown(spark) == archived(story)
    holds(judge, story)
    spark.close()
    spark_upserts_beside_us(judge, story, 3, 70)
    holds(judge, story)


def active(story: Story) -> dict[str, bytes]:
    """Requested time of each completed instant of the data table's active timeline -> what its file holds."""
    completed = load_timeline(story.storage).completed()
    return {each.requested: story.storage.read(instant_path(each)) for each in completed}


def levels(story: Story, root: str) -> list[int]:
    """The levels of the files that a timeline's archive has, by the newest manifest."""
    return sorted(file.level or 0 for file in newest_manifest(story.storage, root).files)


def contents(story: Story) -> list[ArchivedInstant]:
    """All rows of the data table's archive, with metadata and plans, in order of their requested times."""
    return ArchivedTimeline(story.storage, DATA_ROOT).instants()


def shown(spark: SparkOperations) -> set[str]:
    """The commits that Hudi finds in the archive."""
    return {row["commit_time"] for row in spark.shows("show_archived_commits", limit=1000, **ANY_TIME)}


def keys_of(rows: Rows) -> set[str]:
    return {row["id"] for row in rows}
