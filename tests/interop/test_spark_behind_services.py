"""Behind each of our services, in tables of both types, Spark does each thing that it does to a table: it
looks up and reads increments, upserts and deletes, compacts, cleans, archives, takes its newest commit back,
restores to a savepoint. Then we commit, and the service acts again. Everybody agrees each time. What Spark
logs in either form our compaction merges.

All of it is `make services-interop` (TIDEMARK_SERVICES=all); `make interop` draws a few such cases.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.served_story import (
    ARCHIVE,
    CLEAN_DATA,
    CLEAN_INDEX,
    CLEANS,
    COMPACTIONS,
    COW,
    DATA,
    INDEX,
    MOR,
    ROLLBACK,
    act,
    archived,
    compact,
    dead_write,
    every_case,
    holds,
    instants,
    is_merge_on_read,
    keys_since,
    may_act,
    newest_completion,
    old_story,
    spark_of,
)
from tests.interop.spark_operations import COMPACTS_INDEX, SparkOperations
from tests.interop.verdict import assert_same_rows, hudi_rs_increment, without_meta
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.log_file.blocks import BlockType, read_blocks
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline

pytestmark = [pytest.mark.spark, pytest.mark.slow, every_case]

SERVICES = [
    *((MOR, kind) for kind in (INDEX, DATA, CLEAN_DATA, CLEAN_INDEX, ARCHIVE, ROLLBACK)),
    *((COW, kind) for kind in (INDEX, CLEAN_DATA, CLEAN_INDEX, ARCHIVE, ROLLBACK)),
]


def served(path: Path, table_type: TableType, kind: ServiceKind) -> Story:
    """A table to which the service was done last. Its index was compacted since its newest commit."""
    story = old_story(path, table_type)
    if kind not in COMPACTIONS:
        compact(story)
    if kind is ROLLBACK:
        dead_write(story)
    act(story, kind)
    if kind is ARCHIVE:
        act(story, kind)
    return story


def looks_up(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """By key, by increments, and at the newest commit."""
    begin, before = newest_completion(story), story.commits
    story.commit((1, 50), deletes=(6,), moved=(3,))
    for key, row in (("k1", 1), ("k3", 1), ("k50", 1), ("k7", 1), ("k6", 0), ("k0", 0)):
        found = judge.lookup(story.path, "id", key)
        expected = [each for each in story.rows() if each["id"] == key]
        assert len(expected) == row
        assert_same_rows(without_meta(found.rows), expected, f"look-up of {key}")
    assert {row["id"] for row in judge.incremental(story.path, begin)} == keys_since(story, before)
    assert hudi_rs_increment(story.path, begin) == keys_since(story, before)
    assert_same_rows(judge.as_of(story.path, newest_completion(story)), story.rows(), "time travel")


def writes(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """Updates, an insert, a row that moves, deletes."""
    spark.write(story.changed((1, 60), moved=(4,)), "upsert")
    rows = story.changed((3, 7))
    for key in rows.column("id").to_pylist():
        story.live.pop(key)
    spark.write(rows, "delete")


def compacts(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """The metadata table, and the data table by a plan that a commit of ours passes."""
    if is_merge_on_read(story):
        spark.compaction("schedule")
    story.commit((4, 61), deletes=(8,))
    compactions = load_timeline(story.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
    spark.write(story.changed((1, 62)), "upsert", **COMPACTS_INDEX)
    spark.write(story.changed((2, 63)), "upsert", **COMPACTS_INDEX)
    now = load_timeline(story.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
    assert set(now) - set(compactions), "Spark compacts the metadata table behind ours"
    if is_merge_on_read(story):
        spark.compaction("execute")


def cleans(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """By commits, and down to the newest slices."""
    spark.write(story.changed((1, 64)), "upsert")
    files = story.table_files()
    compact(story)
    spark.write(story.changed((2, 65)), "upsert")
    spark.clean("KEEP_LATEST_COMMITS", 1)
    spark.write(story.changed((4, 66)), "upsert")
    spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)
    assert files - story.table_files(), "Spark cleans behind our services"


def archives(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """What Hudi's archival takes, with a metadata table that is compacted."""
    before = archived(story)
    for n in range(3):
        spark.write(story.changed((n, 70 + n)), "upsert", **COMPACTS_INDEX)
    compact(story)
    spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)
    spark.archive(2, 3)
    assert archived(story) > before, "Spark archives behind our services"


def takes_back(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """Its own newest commit."""
    live = dict(story.live)
    spark.write(story.changed((1, 67)), "upsert")
    spark.rollback(instants(story)[-1])
    story.live = live


def restores(judge: HudiJudge, spark: SparkOperations, story: Story) -> None:
    """To a savepoint that is made now, behind commits and services that come after it."""
    kept, instant = dict(story.live), instants(story)[-1]
    spark.savepoint(instant)
    story.commit((4, 68), deletes=(9,))
    spark.write(story.changed((1, 69)), "upsert")
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    spark.restore(instant)
    spark.delete_savepoint(instant)
    story.live = kept


@pytest.mark.parametrize("spark_does", [looks_up, writes, compacts, cleans, archives, takes_back, restores])
@pytest.mark.parametrize(("table_type", "kind"), SERVICES)
def test_spark_goes_on_behind_a_service(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    kind: ServiceKind,
    spark_does: Callable[[HudiJudge, SparkOperations, Story], None],
) -> None:
    story = served(tmp_path, table_type, kind)
    spark = spark_of(judge, story)
    spark_does(judge, spark, story)
    spark.close()
    holds(judge, story)
    story.commit((2, 90), deletes=(11,))
    if kind is ROLLBACK:
        dead_write(story)
    else:
        compact(story)
    may_act(story, kind)
    holds(judge, story)


@pytest.mark.parametrize(
    ("form", "expected"), [("avro", BlockType.AVRO_DATA), ("parquet", BlockType.PARQUET_DATA)]
)
def test_log_blocks_of_spark_are_merged_in_either_form(
    judge: HudiJudge, tmp_path: Path, form: str, expected: BlockType
) -> None:
    """Updates, a move and deletes by Spark, between commits of ours."""
    story = old_story(tmp_path)
    spark, option = spark_of(judge, story), {"hoodie.logfile.data.block.format": form}
    files = story.table_files()
    spark.write(story.changed((1, 2, 70), moved=(4,)), "upsert", **option)
    rows = story.changed((3, 7))
    for key in rows.column("id").to_pylist():
        story.live.pop(key)
    spark.write(rows, "delete", **option)
    made = story.table_files() - files
    logs = [path for path in made if path.startswith(("eu/.", "us/.")) and not path.endswith(".crc")]
    blocks = [block.block_type for path in logs for block in read_blocks(story.storage.read(path), path)]
    assert set(blocks) == {expected, BlockType.DELETE}
    for kind in (DATA, INDEX):
        act(story, kind)
        holds(judge, story)
    spark.write(story.changed((1, 8)), "upsert", **option)
    story.commit((8, 9), deletes=(2,))
    act(story, DATA)
    holds(judge, story)
    spark.write(story.changed((1, 9, 71)), "upsert", **option)
    spark.close()
    holds(judge, story)
