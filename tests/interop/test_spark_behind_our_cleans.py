"""What our services write down for Hudi, beside the rows, and what Hudi on Spark makes of it: where its
incremental clean looks, which savepoints and times it refuses, what its procedures show.

All of it is `make services-interop` (TIDEMARK_SERVICES=all); `make interop` draws a few such cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import IllegalArgumentException

from tests.interop.judge import HudiJudge
from tests.interop.served_story import (
    ARCHIVE,
    CLEAN_DATA,
    CLEANS,
    DATA,
    INDEX,
    MOR,
    act,
    archived,
    compact,
    every_case,
    holds,
    instants,
    is_merge_on_read,
    keys_since,
    may_act,
    newest_completion,
    old_story,
    spark_of,
    story_of,
)
from tests.interop.spark_operations import COMPACTS_INDEX
from tests.interop.verdict import assert_same_rows, hudi_rs_increment, hudi_rs_snapshot
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.hudi_format.table_config import TableType

pytestmark = [pytest.mark.spark, pytest.mark.slow, every_case]

INLINE_SERVICES: Final = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    **COMPACTS_INDEX,
}
"""What a writer does that leaves Hudi's defaults on, with small numbers."""
INLINE_COMPACTION: Final = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
ANY_TIME: Final = {"start_ts": "20000101000000000", "end_ts": "29990101000000000"}
SHOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "show_timeline": {},
    "show_commits": {},
    "show_commits_metadata": {},
    "show_archived_commits": ANY_TIME,
    "show_archived_commits_metadata": ANY_TIME,
    "show_compaction": {},
    "show_cleans": {},
    "show_clean_plans": {},
    "show_cleans_metadata": {},
    "show_fsview_all": {},
    "stats_file_sizes": {},
    "stats_wa": {},
}
"""Procedure -> its arguments. Each decodes what the timelines or the metadata table hold of our actions."""


def data_files(story: Story) -> set[str]:
    return {path for path in story.table_files() if not path.startswith(".hoodie")}


@pytest.mark.parametrize("table_type", TableType)
def test_hudi_refuses_what_an_idle_table_has_lost(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    """Nobody wrote since the horizon: the clean names the last write. A savepoint of an earlier one would
    have no files, and a restore to it would lose the rows.
    """
    story = old_story(tmp_path, table_type)
    earlier = instants(story)[-1 if is_merge_on_read(story) else -2]
    compact(story)
    act(story, CLEAN_DATA)
    newest = instants(story)[-1]
    assert earlier < newest
    spark = spark_of(judge, story)
    with pytest.raises(IllegalArgumentException, match="beyond the lookup window"):
        spark.savepoint(earlier)
    with pytest.raises(IllegalArgumentException, match="Cleaner cleaned up"):
        judge.as_of(story.path, earlier)
    assert_same_rows(judge.as_of(story.path, newest), story.rows(), "time travel to the newest write")

    kept = dict(story.live)
    spark.savepoint(newest)
    story.commit((1, 80), deletes=(9,))
    spark.write(story.changed((2, 81)), "upsert")
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    holds(judge, story)
    spark.restore(newest)
    spark.delete_savepoint(newest)
    spark.close()
    story.live = kept
    holds(judge, story)
    story.commit((3, 82))
    compact(story)
    may_act(story, *CLEANS)
    holds(judge, story)


@pytest.mark.parametrize("saved", [False, True], ids=["", "a savepoint ends"])
@pytest.mark.parametrize("table_type", TableType)
def test_sparks_incremental_clean_leaves_nothing_behind_ours(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, saved: bool
) -> None:
    """It looks at partitions that were written since the instant that our clean names alone, and everywhere
    once a savepoint is deleted that our clean kept files for.
    """
    story = old_story(tmp_path, table_type)
    spark = spark_of(judge, story)
    compact(story)
    instant = instants(story)[-1]
    if saved:
        spark.savepoint(instant)
    story.commit((1, 2, 3, 4, 33))
    compact(story)
    # Odd keys: one of the two partitions alone is written from here on.
    story.commit((1, 35))
    act(story, CLEAN_DATA)
    if saved:
        spark.delete_savepoint(instant)
    for n in (71, 73):
        spark.write(story.changed((1, 3, n)), "upsert")
        if is_merge_on_read(story):
            spark.compaction("schedule")
            spark.compaction("execute")
    before = data_files(story)
    spark.clean("KEEP_LATEST_COMMITS", 1, **{"hoodie.cleaner.incremental.mode": "true"})
    incremental = data_files(story)
    assert before - incremental, "Spark cleans behind us"
    holds(judge, story)
    spark.clean("KEEP_LATEST_COMMITS", 1, **{"hoodie.clean.trigger.max.commits": "0"})
    assert incremental - data_files(story) == set(), "its incremental clean did not look there"
    spark.close()
    holds(judge, story)


@pytest.mark.parametrize("table_type", TableType)
def test_a_writer_with_hudis_inline_services(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    """It cleans, compacts and archives both tables in each write, and we do so in between."""
    story = old_story(tmp_path, table_type)
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    spark = spark_of(judge, story)
    before = archived(story)
    options = INLINE_SERVICES | (INLINE_COMPACTION if is_merge_on_read(story) else {})
    for n in range(4):
        spark.write(story.changed((n, 70 + n), moved=(8,)), "upsert", **options)
        spark.write(story.changed((n + 1, 80 + n)), "upsert", **options)
        holds(judge, story)
        story.commit((n, 90 + n), deletes=(20 + n,) if f"k{20 + n}" in story.live else ())
        compact(story)
        may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
        holds(judge, story)
    assert archived(story) > before
    spark.close()


@pytest.mark.parametrize("table_type", TableType)
def test_two_savepoints_between_our_actions(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    """One before the clean, one behind it; a restore to the later one, services, then to the earlier one."""
    story = old_story(tmp_path, table_type)
    spark = spark_of(judge, story)
    compact(story)
    saved = []
    for n in range(2):
        saved.append((instants(story)[-1], dict(story.live)))
        spark.savepoint(saved[-1][0])
        story.commit((n, 50 + n), deletes=(8 + n,))
        compact(story)
        may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    spark.write(story.changed((1, 60)), "upsert")
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    holds(judge, story)
    for n, (instant, live) in enumerate(reversed(saved)):
        spark.restore(instant)
        spark.delete_savepoint(instant)
        story.live = dict(live)
        holds(judge, story)
        if n == 0:
            story.commit((2, 61), deletes=(6,))
            compact(story)
            may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
            holds(judge, story)
    spark.close()
    story.commit((3, 62))
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    holds(judge, story)


def test_spark_takes_our_compaction_back(judge: HudiJudge, tmp_path: Path) -> None:
    """`rollback_to_instant` of its commit, which no clean and no compaction of the metadata table passed."""
    story = story_of(tmp_path, MOR)
    act(story, INDEX)
    story.commit((1, 30), deletes=(5,))
    act(story, DATA)
    spark = spark_of(judge, story)
    spark.rollback(instants(story)[-1])
    spark.close()
    holds(judge, story)
    story.commit((2, 31))
    act(story, DATA)
    holds(judge, story)


@pytest.mark.parametrize("table_type", TableType)
def test_each_time_within_the_window_is_read_behind_our_services(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    """Time travel and increments to and from each commit since the last clean, by Spark and by hudi-rs."""
    story = old_story(tmp_path, table_type)
    compact(story)
    act(story, CLEAN_DATA)
    spark = spark_of(judge, story)
    then = [(newest_completion(story), story.rows(), story.commits)]
    for n in range(3):
        if n == 1:
            spark.write(story.changed((n, 40 + n)), "upsert")
        else:
            story.commit((n, 40 + n), deletes=(9 + n,) if n else (), moved=(3,))
        compact(story)
        then.append((newest_completion(story), story.rows(), story.commits))
    may_act(story, ARCHIVE, ARCHIVE)
    spark.close()
    for completion, rows, commits in then:
        assert_same_rows(judge.as_of(story.path, completion), rows, f"Spark as of {completion}")
        assert_same_rows(hudi_rs_snapshot(story.path, as_of=completion), rows, f"hudi-rs as of {completion}")
        changed = {row["id"] for row in judge.incremental(story.path, completion)}
        assert changed == keys_since(story, commits)
        assert hudi_rs_increment(story.path, completion) <= changed, "it leaves out what is archived"


@pytest.mark.parametrize("table_type", TableType)
def test_hudis_procedures_show_what_we_did(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    story = old_story(tmp_path, table_type)
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    story.commit((2, 40))
    compact(story)
    act(story, CLEAN_DATA)
    spark = spark_of(judge, story)
    only_merge_on_read = () if is_merge_on_read(story) else ("show_compaction",)
    for procedure, arguments in SHOWN.items():
        if procedure not in only_merge_on_read:
            assert spark.shows(procedure, **arguments), procedure
    files = spark.shows("validate_metadata_table_files", verbose=True)
    spark.close()
    assert files
    assert all(row["is_present_in_fs"] == row["is_present_in_metadata"] for row in files), files
