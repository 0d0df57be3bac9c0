"""Another engine dies while it builds an index: what it leaves pending on the timelines holds nothing back
for ever, and a builder who may live is left alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commit_coordinator.table_services.story import HOUR_S, Story
from tidemark.commit_coordinator.commit.builds_of_others import end_dead_builds
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_config import update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, load_timeline

COUNTER = "00000000000000007"
UNREAD = "column_stats"
"""A folder that no property names: its builder died, and the property was taken back."""


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path / "t")
    made.serve()
    assert made.served.act(ServiceKind.COMPACT_INDEX)
    assert made.served.act(ServiceKind.COMPACT_DATA)
    return made


def begin_build(story: Story, counter: str = COUNTER) -> None:
    """The deltacommit of an index, and a log file of it."""
    begin_delta_commit(Unfenced(story.storage), counter)
    story.storage.create(log_of(UNREAD, counter), b"half a block")


def log_of(folder: str, counter: str = COUNTER) -> str:
    return join_path(METADATA_TABLE_PATH, folder, f".col-stats-0000-0_{counter}.log.1_0-0-0")


def plan_index(story: Story, begin: bool = True) -> Instant:
    """The indexing instant of a CREATE INDEX."""
    story.pass_by(10)
    by, instant = Unfenced(story.storage), story.writer._instants.next()
    requested = create_requested(by, instant, Action.INDEXING, b"plan")
    return create_inflight(by, requested) if begin else requested


def pending(story: Story) -> list[tuple[str, Action]]:
    both = (load_timeline(story.storage), load_timeline(story.storage, METADATA_TABLE_ROOT))
    return [(instant.requested, instant.action) for timeline in both for instant in timeline.pending()]


def look(story: Story) -> None:
    """`rollback` looks at the table; there is no dead write."""
    assert not story.served.act(ServiceKind.ROLLBACK)


def go_on(story: Story) -> None:
    """Cleaning and the archival of both timelines."""
    for kind in (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX, ServiceKind.ARCHIVE, ServiceKind.ARCHIVE):
        assert story.served.act(kind), kind
    story.check()


def test_a_dead_build_without_an_indexing_instant_is_ended(story: Story):
    """A write that switches an index on builds it when it begins, under the lock."""
    begin_build(story)
    story.pass_by(100)
    look(story)
    assert pending(story) == [(COUNTER, Action.DELTA_COMMIT)]
    story.pass_by(30)
    look(story)
    assert pending(story) == []
    assert not story.storage.exists(log_of(UNREAD))
    story.later()
    story.commit((1, 2))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    go_on(story)


@pytest.mark.parametrize("begun", [True, False])
def test_a_build_with_an_indexing_instant_has_its_time_and_no_more(story: Story, begun: bool):
    """Cleans keep what it may read, and go on once it is dead."""
    planned = plan_index(story, begun)
    begin_build(story)
    story.commit((1, 2))
    story.pass_by(HOUR_S - 60)
    look(story)
    expected = [(planned.requested, Action.INDEXING), (COUNTER, Action.DELTA_COMMIT)]
    assert pending(story) == expected, "its builder may live"
    story.pass_by(120)
    look(story)
    assert pending(story) == []
    assert load_timeline(story.storage).find(planned.requested) is None
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    go_on(story)


def test_cleans_keep_what_a_living_build_reads_and_do_not_wait_for_the_end_of_a_dead_one(story: Story):
    """Readers keep nothing here. The base files of before the build are superseded while it is running."""
    story.pass_by(10)
    assert story.served.act(ServiceKind.CLEAN_DATA)
    before = bases(story)
    plan_index(story)
    begin_build(story)
    story.commit(range(3, 8))
    story.served.list_files()
    assert story.served.act(ServiceKind.COMPACT_DATA)
    story.pass_by(HOUR_S / 2)
    assert not story.served.act(ServiceKind.CLEAN_DATA)
    assert before < bases(story)
    story.later()
    assert story.served.act(ServiceKind.CLEAN_DATA)
    assert (COUNTER, Action.DELTA_COMMIT) in pending(story), "nobody has ended it yet"
    assert not before & bases(story)
    story.check_readers()


def bases(story: Story) -> set[str]:
    return {path for path in story.table_files() if path.endswith(".parquet")}


def test_a_build_that_began_later_gives_an_older_one_its_time(story: Story):
    """Whose the deltacommit is nobody can tell."""
    plan_index(story)
    begin_build(story)
    story.later()
    plan_index(story)
    look(story)
    assert len(pending(story)) == 3
    story.later()
    look(story)
    assert pending(story) == []


def test_a_deltacommit_of_the_time_of_an_indexing_instant_is_the_builds(story: Story):
    """Hudi's indexer makes one of that time instead of a counter."""
    planned = plan_index(story)
    begin_build(story, planned.requested)
    story.pass_by(HOUR_S / 2)
    look(story)
    assert len(pending(story)) == 2
    story.pass_by(HOUR_S)
    look(story)
    assert pending(story) == []


def test_an_indexer_that_begins_while_dead_builds_are_ended_keeps_its_instant(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    """Hudi's indexer takes no lock for that."""
    planned = plan_index(story, begin=False)
    story.later()
    context, timelines = story.served.context, load_timelines(story.storage)
    check = context.lock.check

    def begins_now() -> None:
        check()
        create_inflight(Unfenced(story.storage), planned)

    monkeypatch.setattr(context.lock, "check", begins_now)
    end_dead_builds(context, timelines)
    assert [each for each, _ in pending(story)] == [planned.requested]


def test_a_build_that_completed_stays(story: Story):
    planned = plan_index(story)
    complete(Unfenced(story.storage), planned, story.writer._instants.next(), b"")
    story.later()
    look(story)
    names = story.storage.names(".hoodie/timeline")
    assert sum(name.startswith(planned.requested) for name in names) == 3


def test_files_of_a_folder_in_use_stay_whatever_their_number(story: Story):
    """Hudi numbers builds from what is on the active timeline: an archived build of an index that is in use
    may have had the same number.
    """
    begin_build(story)
    own = log_of("files")
    story.storage.create(own, b"")
    story.pass_by(130)
    look(story)
    assert pending(story) == []
    assert story.storage.exists(own)
    assert not story.storage.exists(log_of(UNREAD))


@pytest.mark.parametrize("needed", ["files", "record_index"])
def test_a_half_built_index_that_the_table_needs_is_left_to_people(story: Story, needed: str):
    """Services do not run then. An epoch that takes another dead build out meets it."""
    begin_build(story)
    update_properties(story.storage, {keys.METADATA_PARTITIONS_INFLIGHT: needed})
    story.later()
    end_dead_builds(story.served.context, load_timelines(story.storage))
    assert pending(story) == [(COUNTER, Action.DELTA_COMMIT)]
