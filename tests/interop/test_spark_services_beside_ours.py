"""Spark's own services at the same time as ours: between our plan and our decision, across a plan of Spark's
that is carried out later, and both at once. One of the two does it, or both, and everybody agrees.

All of it is `make services-interop` (TIDEMARK_SERVICES=all); `make interop` draws a few such cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.judge import HudiJudge
from tests.interop.served_story import (
    ARCHIVE,
    CLEAN_DATA,
    CLEAN_INDEX,
    CLEANS,
    COW,
    DATA,
    INDEX,
    MOR,
    archived,
    compact,
    every_case,
    free_lock,
    holds,
    instants,
    is_merge_on_read,
    may_act,
    old_story,
    spark_of,
)
from tests.interop.spark_operations import COMPACTS_INDEX, SparkOperations
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.table_config import TableType

pytestmark = [pytest.mark.spark, pytest.mark.slow, every_case]

KINDS = [
    *((MOR, kind) for kind in (INDEX, DATA, CLEAN_DATA, CLEAN_INDEX, ARCHIVE)),
    *((COW, kind) for kind in (CLEAN_DATA, ARCHIVE)),
]


def with_work(path: Path, table_type: TableType) -> Story:
    """A table in which each kind finds something to do, Spark's services, too."""
    story = old_story(path, table_type)
    compact(story)
    story.commit((2, 40), deletes=(7,))
    story.commit((3, 41))
    return story


def compacts_data(spark: SparkOperations, story: Story) -> None:
    if is_merge_on_read(story):
        spark.compaction("schedule")
        spark.compaction("execute")
    else:
        spark.write(story.changed((1,)), "upsert")


def compacts_index(spark: SparkOperations, story: Story) -> None:
    """And archives the metadata table, as every write does."""
    spark.write(story.changed((1, 50)), "upsert", **COMPACTS_INDEX)
    spark.write(story.changed((4, 51)), "upsert", **COMPACTS_INDEX)


def cleans(spark: SparkOperations, story: Story) -> None:
    spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)


def archives(spark: SparkOperations, story: Story) -> None:
    spark.archive(2, 3)


def clusters(spark: SparkOperations, story: Story) -> None:
    spark.clustering("scheduleAndExecute", "eu")


@pytest.mark.parametrize("spark_does", [compacts_data, compacts_index, cleans, archives, clusters])
@pytest.mark.parametrize(("table_type", "kind"), KINDS)
def test_spark_acts_between_our_plan_and_our_decision(
    judge: HudiJudge,
    tmp_path: Path,
    table_type: TableType,
    kind: ServiceKind,
    spark_does: Callable[[SparkOperations, Story], None],
) -> None:
    story = with_work(tmp_path, table_type)
    story.served.list_files()
    assert story.served.plan(kind), story.served.dropped
    report = story.served.work(kind)
    free_lock(story)
    spark = spark_of(judge, story)
    spark_does(spark, story)
    if story.served.decide(kind, report):
        story.served.sweep(kind)
    free_lock(story)
    holds(judge, story)
    story.commit((1, 60), deletes=(11,))
    may_act(story, INDEX, kind)
    spark.write(story.changed((2, 61)), "upsert")
    spark.close()
    holds(judge, story)


@pytest.mark.parametrize("kind", [*CLEANS, ARCHIVE])
@pytest.mark.parametrize("table_type", TableType)
def test_spark_makes_a_savepoint_between_our_plan_and_our_decision(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, kind: ServiceKind
) -> None:
    """Of a write whose files or instant we were about to take; then it restores to it."""
    story = old_story(tmp_path, table_type)
    kept, instant = dict(story.live), instants(story)[-1]
    compact(story)
    story.commit((2, 40), deletes=(7,))
    story.commit((3, 41))
    compact(story)
    story.served.list_files()
    assert story.served.plan(kind), story.served.dropped
    free_lock(story)
    spark = spark_of(judge, story)
    spark.savepoint(instant)
    if story.served.decide(kind):
        story.served.sweep(kind)
    free_lock(story)
    holds(judge, story)
    story.commit((1, 42))
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    spark.restore(instant)
    spark.delete_savepoint(instant)
    spark.close()
    story.live = kept
    holds(judge, story)
    story.commit((2, 43), deletes=(11,))
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    holds(judge, story)


def plans_compaction(spark: SparkOperations) -> Callable[[], object]:
    spark.compaction("schedule")
    return lambda: spark.compaction("execute")


def plans_clustering(spark: SparkOperations) -> Callable[[], object]:
    spark.clustering("schedule", "eu")
    return lambda: spark.clustering("execute", "eu")


@pytest.mark.parametrize("plans", [plans_compaction, plans_clustering])
def test_spark_executes_a_plan_that_all_our_services_passed(
    judge: HudiJudge, tmp_path: Path, plans: Callable[[SparkOperations], Callable[[], object]]
) -> None:
    story = with_work(tmp_path, MOR)
    spark = spark_of(judge, story)
    executes = plans(spark)
    if plans is plans_compaction:
        story.commit((4, 70), deletes=(8,))
    for _ in range(2):
        may_act(story, DATA, INDEX, *CLEANS, ARCHIVE, ARCHIVE)
        holds(judge, story)
    executes()
    holds(judge, story)
    story.commit((1, 71))
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    spark.close()
    holds(judge, story)


def all_of_sparks(spark: SparkOperations, story: Story, rounds: int, ours: Collection[str]) -> None:
    """``ours``: instants of our actions, so far."""
    for n in range(rounds):
        spark.write(story.changed((1, 80 + n)), "upsert", **COMPACTS_INDEX)
        while not compacted_data(spark, story, ours):
            pass
        cleans(spark, story)
        archives(spark, story)


def compacted_data(spark: SparkOperations, story: Story, ours: Collection[str]) -> bool:
    """False when Hudi saw a pending compaction of ours that was over, and archived or taken back, before it
    came to carry it out: it says so, and is called again.
    """
    try:
        compacts_data(spark, story)
    except Py4JJavaError as error:
        said = re.search(r"instant (\d+) is not present as pending or already completed", str(error))
        if said is None or said[1] not in ours:
            raise
        return False
    return True


def goes_on(story: Story, kind: ServiceKind) -> None:
    """One step of an action. Who has the lock is not waited for, and what is lost is taken back."""
    served = story.served
    held = served.state.services.get(kind)
    try:
        if held is None:
            served.list_files()
            served.plan(kind)
        elif held.decided is not None:
            served.finish(kind)
        elif served.decide(kind):
            served.sweep(kind)
        free_lock(story)
    except LockHeldError:
        pass
    except ActionLostError:
        served.take_back(kind)


@pytest.mark.parametrize("table_type", TableType)
def test_both_at_once(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    story = with_work(tmp_path, table_type)
    kinds = [kind for kind in (INDEX, DATA, *CLEANS, ARCHIVE) if kind is not DATA or table_type is MOR]
    spark = spark_of(judge, story)
    ours: set[str] = set()
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(all_of_sparks, spark, story, 3, ours)
        while not theirs.done():
            for kind in kinds:
                goes_on(story, kind)
                ours.update(held.planned.instant for held in story.served.state.services.values())
        theirs.result()
    for kind in tuple(story.served.state.services):
        goes_on(story, kind)
    holds(judge, story)
    story.commit((2, 90), deletes=(9,))
    compact(story)
    may_act(story, *CLEANS, ARCHIVE, ARCHIVE)
    assert archived(story)
    spark.close()
    holds(judge, story)
