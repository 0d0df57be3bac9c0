"""Compactions and cleans by our handlers, and Hudi on Spark on top: it reads, finds every key, upserts,
compacts, cleans and restores, also when a coordinator died in the middle, on the way forward or back, or
while it rolled dead writes of others back.

`make interop` does one table with all services and a few drawn cases; `make services-interop`
(TIDEMARK_SERVICES=all) every kind by itself, each step at which a coordinator may die, and savepoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.read_table import ReadTable
from tests.interop.served_story import (
    ARCHIVE,
    CLEANS,
    COMPACTIONS,
    COW,
    INDEX,
    MOR,
    ROLLBACK,
    act,
    archived,
    compact,
    dead_write,
    every_case,
    free_lock,
    go_on,
    goes_on_behind_a_death,
    holds,
    is_merge_on_read,
    may_act,
    old_story,
    spark_of,
    spark_upserts,
    spark_upserts_beside_us,
    story_of,
)
from tests.interop.spark_operations import SparkOperations
from tests.interop.verdict import assert_same_rows, assert_table_holds, hudi_rs_snapshot
from tests.service_actions import DiedError
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_service_handlers import crashes
from tidemark.commit_coordinator.failpoints import OF_A_ROLLBACK, CoordinatorFailpoint
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_hudi_goes_on_with_a_table_that_all_services_served(judge: HudiJudge, tmp_path: Path) -> None:
    story = old_story(tmp_path)
    for kind in (*CLEANS, ARCHIVE, ARCHIVE):
        act(story, kind)
    assert archived(story)
    assert archived(story, METADATA_TABLE_ROOT)
    holds(judge, story)
    spark = spark_of(judge, story)
    spark.write(story.changed((1, 2, 40)), "upsert")
    judge.compact(story.path)
    judge.clean(story.path)
    act(story, ServiceKind.COMPACT_INDEX)
    before = archived(story)
    spark.archive(2, 3)
    assert archived(story) > before, "Hudi archives on top of ours"
    story.commit((2, 41), deletes=(3,))
    story.commit((4, 42))
    compact(story)
    act(story, ARCHIVE)
    holds(judge, story)
    spark.close()


@every_case
@pytest.mark.parametrize("kind", COMPACTIONS)
def test_each_compaction_alone(judge: HudiJudge, tmp_path: Path, kind: ServiceKind) -> None:
    story = story_of(tmp_path)
    act(story, kind)
    holds(judge, story)
    spark_upserts(judge, story, 1, 2, 40)
    holds(judge, story)
    act(story, kind)
    holds(judge, story)


@every_case
@pytest.mark.parametrize("kind", CLEANS)
def test_each_clean_alone(judge: HudiJudge, tmp_path: Path, kind: ServiceKind) -> None:
    story = story_of(tmp_path)
    for compaction in COMPACTIONS:
        act(story, compaction)
    story.commit((1,))
    act(story, kind)
    holds(judge, story)
    spark_upserts(judge, story, 1, 2, 40)
    holds(judge, story)


@every_case
def test_a_copy_on_write_table_is_cleaned(judge: HudiJudge, tmp_path: Path) -> None:
    story = story_of(tmp_path, COW)
    act(story, ServiceKind.CLEAN_DATA)
    holds(judge, story)
    spark_upserts(judge, story, 1, 2, 40)
    holds(judge, story)
    act(story, ServiceKind.COMPACT_INDEX)
    act(story, ServiceKind.CLEAN_DATA)
    # The newest write may get a savepoint, so its slices of the metadata table stay until there is another.
    may_act(story, ServiceKind.CLEAN_INDEX)
    story.commit((3, 41))
    act(story, ServiceKind.CLEAN_INDEX)
    holds(judge, story)


@every_case
def test_sparks_own_services_on_top_of_ours(judge: HudiJudge, tmp_path: Path) -> None:
    story = story_of(tmp_path)
    for kind in (*COMPACTIONS, *CLEANS):
        act(story, kind)
    story.commit((1, 30), deletes=(5,))
    judge.compact(story.path)
    holds(judge, story)
    judge.clean(story.path)
    holds(judge, story)
    story.commit((2, 31))
    for kind in COMPACTIONS:
        act(story, kind)
    holds(judge, story)
    judge.clean(story.path)
    spark_upserts(judge, story, 1, 50)
    holds(judge, story)


def with_work(path: Path, table_type: TableType, kind: ServiceKind) -> Story:
    """A table with three commits, in which the kind finds something to do."""
    story = story_of(path, table_type)
    if kind in CLEANS:
        for compaction in COMPACTIONS:
            if compaction is INDEX or is_merge_on_read(story):
                act(story, compaction)
        story.commit((1,))
        time.sleep(0.01)
    return story


spark_writes_too = pytest.mark.parametrize("spark_writes", [False, True], ids=["spark-reads", "spark-writes"])


@every_case
@pytest.mark.parametrize(
    ("table_type", "kind", "failpoint"),
    [
        *((MOR, kind, point) for kind, point in crashes()),
        *((COW, kind, point) for kind, point in crashes() if kind in (INDEX, *CLEANS)),
    ],
)
@spark_writes_too
def test_a_coordinator_dies_and_spark_goes_on(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    kind: ServiceKind,
    failpoint: CoordinatorFailpoint,
    spark_writes: bool,
) -> None:
    story = with_work(tmp_path, table_type, kind)
    story.served.dies_at(failpoint.value)
    with pytest.raises(DiedError):
        story.served.act(kind)
    goes_on_behind_a_death(judge, story, kind, spark_upserts, spark_writes)


def takes_back(story: Story, kind: ServiceKind) -> None:
    """A successor takes the action back, too: nothing of it is left, and the next one does the work."""
    instant = story.served.state.services[kind].planned.instant
    story.served.begin()
    story.served.take_back(kind)
    free_lock(story)
    assert files_of(story, instant) == []
    act(story, kind)


def files_of(story: Story, instant: str) -> list[str]:
    """The paths of all files that have the instant in their names."""
    return [info.path for info in story.storage.walk("") if instant in info.name]


@every_case
@pytest.mark.parametrize(
    ("table_type", "kind"),
    [*((MOR, kind) for kind in (*COMPACTIONS, *CLEANS)), *((COW, kind) for kind in (INDEX, *CLEANS))],
)
@pytest.mark.parametrize(
    ("spark_writes", "successor"),
    [(False, takes_back), (False, go_on), (True, go_on)],
    ids=["spark-reads-and-taken-back", "spark-reads", "spark-writes"],
)
def test_a_coordinator_dies_while_it_takes_an_action_back_and_spark_goes_on(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    kind: ServiceKind,
    spark_writes: bool,
    successor: Callable[[Story, ServiceKind], None],
) -> None:
    """The base files and what tasks prepared are gone, the instant is pending. Spark carries a pending
    compaction of the metadata table and a pending clean out; then the successor finds its action done.
    """
    is_compaction = kind in COMPACTIONS
    story = with_work(tmp_path, table_type, kind)
    story.served.dies_at("after_each_service_file" if is_compaction else "after_service_inflight")
    with pytest.raises(DiedError):
        story.served.act(kind)
    instant = story.served.state.services[kind].planned.instant
    bases = [path for path in files_of(story, instant) if path.endswith((".parquet", ".hfile"))]
    assert bool(bases) == is_compaction
    story.served.begin()
    story.served.dies_at(CoordinatorFailpoint.IN_TAKE_BACK)
    with pytest.raises(DiedError):
        story.served.take_back(kind)
    left = files_of(story, instant)
    assert {path.rpartition(".")[2] for path in left} == {"requested", "inflight"}, left
    goes_on_behind_a_death(judge, story, kind, spark_upserts, spark_writes, successor)
    compact(story)
    may_act(story, kind)
    holds(judge, story)


_BEFORE_THE_INSTANT = (
    CoordinatorFailpoint.AFTER_ROLLBACK_PLANNED,
    CoordinatorFailpoint.AFTER_ROLLBACK_METADATA,
    CoordinatorFailpoint.AFTER_ROLLBACK_FILES,
)


@every_case
@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize(
    ("failpoint", "nth"),
    [*((failpoint, 1) for failpoint in sorted(OF_A_ROLLBACK)), (CoordinatorFailpoint.AFTER_EACH_ROLLBACK, 2)],
)
@pytest.mark.parametrize(
    ("upsert", "spark_writes"),
    [(spark_upserts, False), (spark_upserts, True), (spark_upserts_beside_us, True)],
    ids=["spark-reads", "spark-rolls-back", "spark-writes-beside-us"],
)
def test_a_coordinator_dies_in_a_rollback_and_spark_goes_on(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    failpoint: CoordinatorFailpoint,
    nth: int,
    upsert: Callable[..., None],
    spark_writes: bool,
) -> None:
    """Behind each step of the first of two dead writes' rollbacks, or when both are rolled back. A single
    writer of Hudi's takes a pending rollback up, and rolls the other one back.
    """
    story = story_of(tmp_path, table_type)
    dead = [dead_write(story) for _ in range(2)]
    if nth == 2:
        assert story.served.act(ROLLBACK)
    story.served.dies_at(failpoint)
    with pytest.raises(DiedError):
        story.served.act(ROLLBACK)
    free_lock(story)
    timeline = load_timeline(story.storage)
    assert [timeline.contains(instant) for instant in dead] == [failpoint in _BEFORE_THE_INSTANT, nth == 1]
    goes_on_behind_a_death(judge, story, ROLLBACK, upsert, spark_writes)
    may_act(story, ROLLBACK)
    # Who rolls a write back in Hudi leaves its heartbeat, which a clean deletes.
    left = [path for instant in dead for path in files_of(story, instant) if "/.heartbeat/" not in path]
    assert left == []
    compact(story)
    holds(judge, story)


@every_case
@pytest.mark.parametrize("kinds", [COMPACTIONS, (*COMPACTIONS, *CLEANS)], ids=["compacted", "and cleaned"])
def test_an_upsert_in_flight_stands_beside_our_services(
    judge: HudiJudge, tmp_path: Path, kinds: Sequence[ServiceKind]
) -> None:
    """With optimistic concurrency control, as other writers are told to. What the upsert reads is kept,
    though readers keep nothing here.
    """
    story = story_of(tmp_path)
    act(story, ServiceKind.COMPACT_INDEX)
    story.commit((1,))
    spark = spark_of(judge, story)
    rows = story.changed((1, 2, 95))
    with spark.in_flight(rows, "upsert"):
        may_act(story, *kinds)
    holds(judge, story)
    story.commit((3, 96), deletes=(5,))
    act(story, ServiceKind.COMPACT_DATA)
    holds(judge, story)


def overwritten(story: Story, spark: SparkOperations) -> None:
    story.live = {key: row for key, row in story.live.items() if row[0] != "eu"}
    spark.write(story.changed((80, 82)), "insert_overwrite")


def partition_deleted(story: Story, spark: SparkOperations) -> None:
    story.live = {key: row for key, row in story.live.items() if row[0] != "eu"}
    spark.delete_partition("eu", story.changed(()))


def clustered(_: Story, spark: SparkOperations) -> None:
    spark.clustering("scheduleAndExecute", "eu")


@every_case
@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("replaces", [overwritten, partition_deleted, clustered])
def test_replaced_file_groups_go_wholly(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    replaces: Callable[[Story, SparkOperations], None],
) -> None:
    story = story_of(tmp_path, table_type)
    spark = SparkOperations(judge, story.path, {})
    before = {path for path in story.table_files() if path.startswith("eu/")}
    replaces(story, spark)
    view = TableView.load(story.storage)
    assert {group[0] for group in view.replaced} == {"eu"}
    act(story, ServiceKind.COMPACT_INDEX)
    act(story, ServiceKind.CLEAN_DATA)
    gone = {path for path in before if not story.storage.exists(path)}
    assert gone == {path for path in before if path[3:].lstrip(".").split("_")[0] in ids_of(view)}
    agree(judge, story)
    # Hudi leaves entries of replaced rows in the index, and moves those of clustered ones.
    if replaces is clustered:
        holds(judge, story)
    spark_upserts(judge, story, 1, 90)
    agree(judge, story)


def ids_of(view: TableView) -> set[str]:
    return {file_id for _, file_id in view.replaced}


def agree(judge: HudiJudge, story: Story) -> None:
    """Spark, with and without the metadata table, and hudi-rs."""
    rows = story.rows()
    assert_same_rows(judge.snapshot(story.path), rows, "Spark snapshot through the metadata table")
    assert_same_rows(judge.snapshot(story.path, metadata=False), rows, "Spark snapshot by listing")
    assert_same_rows(hudi_rs_snapshot(story.path), rows, "hudi-rs snapshot")


@every_case
def test_spark_restores_to_a_savepoint_behind_our_services(judge: HudiJudge, tmp_path: Path) -> None:
    story = story_of(tmp_path)
    act(story, ServiceKind.COMPACT_INDEX)
    story.commit((2, 30), deletes=(5,))
    kept, rows = dict(story.live), story.rows()
    spark = SparkOperations(judge, story.path, {})
    instant = load_timeline(story.storage).completed(Action.DELTA_COMMIT)[-1].requested
    spark.savepoint(instant)
    story.commit((3, 31), deletes=(1,))
    for kind in COMPACTIONS:
        act(story, kind)
    story.commit((6, 32))
    act(story, ServiceKind.COMPACT_DATA)
    act(story, ServiceKind.COMPACT_INDEX)
    act(story, ServiceKind.CLEAN_DATA)
    story.served.act(ServiceKind.CLEAN_INDEX)
    story.commit((7, 33))
    holds(judge, story)
    spark.restore(instant)
    spark.delete_savepoint(instant)
    story.live = kept
    assert_table_holds(judge, story.path, rows)
    spark_upserts(judge, story, 1, 70)
    holds(judge, story)
    story.commit((8, 71))
    for kind in COMPACTIONS:
        act(story, kind)
    holds(judge, story)
    assert load_timeline(story.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
    assert ReadTable(story.path).rows().num_rows == len(story.live)
