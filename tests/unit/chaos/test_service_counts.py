"""The kill campaign counts what table services did by what timelines say, active or archived, and leaves what
a dead writer of another engine leaves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.archived import archived
from tests.chaos.dead_writes import is_pending, leave_dead_write
from tests.chaos.end_checks import check_files
from tests.chaos.service_counts import ALWAYS_DUE, COMPACT_DATA, ROLLBACK, due_services, ended_services
from tests.chaos.timeline_watch import DATA_TIMELINE, METADATA_TIMELINE
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_config import TableType

BOTH_COMPACTIONS = (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA)
BOTH_CLEANS = (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX)
TYPES = {"merge_on_read": TableType.MERGE_ON_READ, "copy_on_write": TableType.COPY_ON_WRITE}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path / "t")
    made.serve()
    return made


def ended(story: Story, *dead_writes: str) -> dict[str, int]:
    """What is counted, without kinds that did nothing."""
    return {kind: count for kind, count in ended_services(story.path, dead_writes).items() if count}


def test_each_action_of_each_kind_is_counted_also_when_it_is_archived(story: Story):
    assert ended(story) == {}
    compacted = {"compact-index": 1, "compact-data": 1}
    assert all(story.served.act(kind) for kind in BOTH_COMPACTIONS)
    assert ended(story) == compacted
    story.commit((1, 5))
    story.later()
    assert all(story.served.act(kind) for kind in BOTH_CLEANS)
    counted = compacted | {"clean-data": 1, "clean-index": 1}
    assert ended(story) == counted
    story.commit((6, 3))
    story.commit((4, 2))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    counted["compact-index"] = 2
    assert story.served.act(ServiceKind.ARCHIVE)
    assert ended(story) == counted | {"archive-data": 1}
    assert story.served.act(ServiceKind.ARCHIVE)
    assert ended(story) == counted | {"archive-data": 1, "archive-index": 1}
    actions = {row.action for of in (DATA_TIMELINE, METADATA_TIMELINE) for row in archived(story.path, of)}
    assert "commit" in actions, "a compaction that went into the archive is counted, too"


def test_a_copy_on_write_tables_epochs_are_no_compactions(tmp_path: Path):
    story = Story(tmp_path / "t", TableType.COPY_ON_WRITE)
    story.serve()
    assert ended(story) == {}
    assert COMPACT_DATA in due_services("merge_on_read", ())
    assert due_services("copy_on_write", ()) == ALWAYS_DUE


@pytest.mark.parametrize("table_type", TYPES)
def test_the_dead_write_that_is_left_is_rolled_back_and_counted(tmp_path: Path, table_type: str):
    story = Story(tmp_path / "t", TYPES[table_type])
    story.serve()
    before = story.table_files()
    instant = leave_dead_write(story.path, table_type)
    assert is_pending(story.path, instant)
    (half,) = story.table_files() - before
    assert instant in half
    assert ended(story, instant) == {}
    assert story.served.act(ServiceKind.ROLLBACK), "its writer does not look alive"
    assert not is_pending(story.path, instant)
    assert story.table_files() == before
    assert not [each for each in check_files(story.path, []) if instant in each or "still holds" in each]
    assert ended(story, instant) == {ROLLBACK: 1}
    assert ended(story, "20200101000000000") == {}, "attempts of epochs end as rollbacks, too"
    assert ROLLBACK in due_services(table_type, {instant})
    story.check()
