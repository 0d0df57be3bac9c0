"""A table with our services, and Spark beside it: how tests of both begin, act, and what they hold then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.spark_operations import SparkOperations
from tests.interop.test_rollback_with_hudi import died
from tests.interop.verdict import assert_record_index_is_data, assert_same_rows, assert_table_holds
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import DATA_ROOT, ArchivedTimeline, load_timeline
from tidemark.stream_runtime.clock import SystemClock

every_case = pytest.mark.every_case
"""`make services-interop` runs all of these, `make interop` a few that it draws (`drawn_cases.py`)."""
takes_minutes = pytest.mark.skipif(
    os.environ.get("TIDEMARK_SERVICES") != "all", reason="it takes minutes: `make services-interop` runs it"
)

MOR, COW = TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE
INDEX, DATA = COMPACTIONS = (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA)
CLEAN_DATA, CLEAN_INDEX = CLEANS = (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX)
ARCHIVE, ROLLBACK = ServiceKind.ARCHIVE, ServiceKind.ROLLBACK


def story_of(path: Path, table_type: TableType = MOR) -> Story:
    """A table with three commits, by the clock that Spark has, too."""
    story = Story(path / "t", table_type, SystemClock())
    story.serve()
    return story


def old_story(path: Path, table_type: TableType = MOR) -> Story:
    """A table whose first commits may be cleaned and archived."""
    story = story_of(path, table_type)
    compact(story)
    story.commit((1, 30), deletes=(5,))
    story.commit((6, 31))
    return story


def is_merge_on_read(story: Story) -> bool:
    """Whether data file groups have log files."""
    return story.served.table_config.is_merge_on_read


def compact(story: Story) -> None:
    """Both tables, where they have log files; the metadata table last."""
    may_act(story, *((DATA,) if is_merge_on_read(story) else ()), INDEX)


def act(story: Story, kind: ServiceKind) -> None:
    """One action, which has something to do. What has just been superseded is old enough: readers keep
    nothing here.
    """
    assert _acts(story, kind), (kind, story.served.dropped)


def may_act(story: Story, *kinds: ServiceKind) -> None:
    """Actions of those kinds that have something to do."""
    for kind in kinds:
        _acts(story, kind)


def _acts(story: Story, kind: ServiceKind) -> bool:
    story.served.list_files()
    time.sleep(0.01)
    has_acted = story.served.act(kind)
    free_lock(story)
    return has_acted


def free_lock(story: Story) -> None:
    """The coordinator's loop gives the lock back once clocks agree again."""
    story.served.context.lock.free()


def go_on(story: Story, kind: ServiceKind) -> None:
    """A successor ends the action. If Spark wrote meanwhile it may have to take it back."""
    story.served.begin()
    try:
        story.served.finish(kind)
    except ActionLostError:
        story.served.take_back(kind)
    free_lock(story)


def dead_write(story: Story) -> str:
    """A write of another engine, whose writer died while it committed to the metadata table; returns its
    instant.
    """
    action = story.served.context.table.action
    instant, _ = died(story.storage, action, "metadata-inflight")
    for path in (heartbeat_path(instant), f".hoodie/timeline/{instant}.{action.value}.requested"):
        os.utime(story.path / path, (0, 0))
    return instant


def instants(story: Story) -> list[str]:
    """Requested times of the data table's completed writes that are active."""
    return [each.requested for each in load_timeline(story.storage).completed() if each.action.is_write]


def newest_completion(story: Story) -> str:
    """Where an increment begins that has nothing yet."""
    return max(str(each.completion) for each in load_timeline(story.storage).completed())


def archived(story: Story, root: str = DATA_ROOT) -> set[str]:
    """Requested times of what is in a timeline's archive."""
    return {each.requested for each in ArchivedTimeline(story.storage, root).instants()}


def spark_of(judge: HudiJudge, story: Story) -> SparkOperations:
    """Spark with the options that other writers are told to use."""
    return SparkOperations(judge, story.path, foreign_writer_options(str(story.path)))


def spark_upserts(judge: HudiJudge, story: Story, *keys: int) -> None:
    """Known keys and new ones, by a single writer: it executes what it finds pending."""
    judge.upsert(story.path, story.changed(keys))


def spark_upserts_beside_us(judge: HudiJudge, story: Story, *keys: int) -> None:
    """Known keys and new ones, by the options for writers beside us."""
    spark = spark_of(judge, story)
    spark.write(story.changed(keys), "upsert")
    spark.close()


def goes_on_behind_a_death(
    judge: HudiJudge,
    story: Story,
    kind: ServiceKind,
    upsert: Callable[..., None],
    spark_writes: bool,
    successor: Callable[[Story, ServiceKind], None] = go_on,
) -> None:
    """Somebody died within our action: readers are right, also if Spark writes before a successor ends it."""
    readers_are_right(judge, story)
    if spark_writes:
        upsert(judge, story, 1, 2, 60)
        readers_are_right(judge, story)
    successor(story, kind)
    holds(judge, story)
    story.commit((2, 61), deletes=(4,))
    upsert(judge, story, 3, 62)
    holds(judge, story)


def holds(judge: HudiJudge, story: Story) -> None:
    """Everybody reads the story's rows, the index is the data, `verify` finds nothing."""
    assert_table_holds(judge, story.path, story.rows())


def readers_are_right(judge: HudiJudge, story: Story) -> None:
    """As `holds` without hudi-rs, while an action is half done."""
    rows = story.rows()
    assert_same_rows(judge.snapshot(story.path), rows, "Spark snapshot through the metadata table")
    assert_same_rows(judge.snapshot(story.path, metadata=False), rows, "Spark snapshot by listing")
    assert_record_index_is_data(judge, story.path)


def keys_since(story: Story, commit: int) -> set[str]:
    """Live keys that were written after so many writes."""
    return {key for key, (_, ts, _) in story.live.items() if ts > commit}
