"""The handler of `rollback`: dead writes of other engines go, and what they held back goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.unit.commit_coordinator.table_services.story import ARROW, HOUR_S, Story
from tests.unit.hudi_format.metadata_tables import write_archive
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.timeline_look import look
from tidemark.commit_coordinator.errors import LeftOutError
from tidemark.commit_coordinator.table_services import rollbacks
from tidemark.commit_coordinator.table_services.handler import ServiceFacts
from tidemark.commit_coordinator.table_services.rollbacks import LEFT_OUT_MS, TRIES, RollBackDead
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit import heartbeat, markers
from tidemark.hudi_format.commit.instants import (
    create_inflight,
    create_requested,
    delete_pending,
    instant_path,
)
from tidemark.hudi_format.commit.markers import MarkerType, create_marker
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit, complete_delta_commit
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.hudi_format.timeline.service_records import RollbackPlan, encode_rollback_plan


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path / "t")
    made.serve()
    return made


def test_the_dead_write_of_another_engine_is_rolled_back(story: Story):
    pending = story.writer.prepare(
        pa.Table.from_pylist([{"id": "z", "region": "eu", "ts": 99, "name": "z"}], schema=ARROW)
    )
    requested = pending.instant.requested
    story.pass_by(100)
    assert not story.served.act(ServiceKind.ROLLBACK), "its writer may live"
    story.later()
    assert story.served.act(ServiceKind.ROLLBACK)
    assert load_timeline(story.storage).find(requested) is None
    assert not story.storage.exists(heartbeat.heartbeat_path(requested))
    assert len(load_timeline(story.storage).completed(Action.ROLLBACK)) == 1
    story.check()
    assert not story.served.act(ServiceKind.ROLLBACK)
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    story.check()


def test_a_half_committed_write_of_another_engine_holds_the_index_back(story: Story):
    pending = story.writer.prepare(
        pa.Table.from_pylist([{"id": "z", "region": "eu", "ts": 99, "name": "z"}], schema=ARROW)
    )
    finish_metadata_only(story, pending)
    assert not story.served.act(ServiceKind.COMPACT_INDEX)
    assert "pending in the table" in story.served.dropped
    assert story.served.act(ServiceKind.COMPACT_DATA), "it merges nothing of that"
    story.check()
    story.later()
    assert story.served.act(ServiceKind.ROLLBACK), "it alone ends that"
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    story.check()


@pytest.mark.parametrize("action", [Action.REPLACE_COMMIT, Action.CLUSTERING])
def test_a_dead_overwrite_is_rolled_back_and_a_plan_of_a_clustering_is_not(
    story: Story, action: Action
) -> None:
    """An overwrite that died behind its commit of the metadata table holds that table's compaction back."""
    by, instant = Unfenced(story.storage), story.writer._instants.next()
    create_inflight(by, create_requested(by, instant, action, b""), b"")
    marked = f"eu/{'0' * 8}-0000-4000-8000-{'0' * 12}-0_0-0-0_{instant}.parquet"
    create_marker(by, instant, marked, MarkerType.CREATE)
    story.storage.create(marked, b"half a file")
    inflight = begin_delta_commit(by, instant)
    metadata = encode_commit_metadata(CommitMetadata())
    complete_delta_commit(by, inflight, story.writer._instants.next(), metadata)
    assert not story.served.act(ServiceKind.COMPACT_INDEX)
    assert not story.served.act(ServiceKind.ROLLBACK), "its writer may live"
    story.later()
    is_dead = action is Action.REPLACE_COMMIT
    assert story.served.act(ServiceKind.ROLLBACK) is is_dead
    assert story.storage.exists(marked) is not is_dead
    assert (load_timeline(story.storage).find(instant) is None) is is_dead
    if is_dead:
        assert story.served.act(ServiceKind.COMPACT_INDEX)
        story.check()


@pytest.mark.parametrize("root", [DATA_ROOT, METADATA_TABLE_ROOT])
@pytest.mark.parametrize(
    "action", [Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN, Action.ROLLBACK]
)
def test_a_plan_without_content_goes_once_its_writer_is_dead(story: Story, action: Action, root: str) -> None:
    """Nobody can carry it out, and archival of that timeline ends at it."""
    instant = story.writer._instants.next()
    create_requested(Unfenced(story.storage), instant, action, b"", root=root)
    story.pass_by(100)
    assert not story.served.act(ServiceKind.ROLLBACK)
    assert load_timeline(story.storage, root).contains(instant), "its writer may live"
    story.pass_by(30)
    assert not story.served.act(ServiceKind.ROLLBACK)
    assert not load_timeline(story.storage, root).contains(instant)
    for kind in (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA):
        assert story.served.act(kind), kind
    story.check()


def test_a_plan_with_content_and_one_that_was_begun_stay(story: Story) -> None:
    by, instants = Unfenced(story.storage), story.writer._instants
    planned = create_requested(by, instants.next(), Action.CLEAN, b"a plan")
    begun = create_inflight(by, create_requested(by, instants.next(), Action.CLEAN, b""))
    story.later()
    assert not story.served.act(ServiceKind.ROLLBACK)
    pending = [instant.requested for instant in load_timeline(story.storage).pending()]
    assert pending == [planned.requested, begun.requested]


def test_cleans_wait_for_a_plan_that_is_being_written(story: Story) -> None:
    instant = story.writer._instants.next()
    requested = create_requested(Unfenced(story.storage), instant, Action.CLUSTERING, b"")
    with pytest.raises(FileMissingError, match="has no content"):
        story.served.act(ServiceKind.CLEAN_DATA)
    story.storage.delete(instant_path(requested))
    create_requested(Unfenced(story.storage), instant, Action.COMPACTION, b"", root=METADATA_TABLE_ROOT)
    with pytest.raises(FileMissingError, match="has no content"):
        story.served.act(ServiceKind.CLEAN_INDEX)


def half_undone(story: Story) -> tuple[str, str]:
    """A write that is gone from the timeline, and the pending rollback that names it."""
    row = {"id": "z", "region": "eu", "ts": 99, "name": "z"}
    requested = story.writer.prepare(pa.Table.from_pylist([row], schema=ARROW)).instant.requested
    by, rollback = Unfenced(story.storage), story.writer._instants.next()
    plan = RollbackPlan(instant_to_rollback=requested, action="deltacommit", requests=())
    create_inflight(by, create_requested(by, rollback, Action.ROLLBACK, encode_rollback_plan(plan)))
    delete_pending(story.storage, requested, Action.DELTA_COMMIT)
    return requested, rollback


def test_a_rollback_of_a_write_that_was_completed_and_archived_is_left_alone(story: Story) -> None:
    requested, rollback = half_undone(story)
    content = encode_commit_metadata(CommitMetadata())
    write_archive(cast(Any, story.storage), [(requested, rollback, "deltacommit", content)])
    story.pass_by(2 * HOUR_S)
    assert not story.served.act(ServiceKind.ROLLBACK)
    assert [found.requested for found in load_timeline(story.storage).pending()] == [rollback]


def test_a_rollback_whose_writer_died_behind_the_writes_instant_is_completed(story: Story) -> None:
    """Archival ends at it, and its write is not there any more."""
    requested, rollback = half_undone(story)
    story.pass_by(HOUR_S - 60)
    assert not story.served.act(ServiceKind.ROLLBACK), "its writer may live"
    story.pass_by(120)
    assert story.served.act(ServiceKind.ROLLBACK)
    timeline = load_timeline(story.storage)
    assert timeline.pending() == ()
    assert [found.requested for found in timeline.completed(Action.ROLLBACK)] == [rollback]
    assert not story.storage.exists(heartbeat.heartbeat_path(requested))
    story.check()
    assert not story.served.act(ServiceKind.ROLLBACK)


def finish_metadata_only(story: Story, pending) -> None:
    by = Unfenced(story.storage)
    inflight = begin_delta_commit(by, pending.instant.requested)
    story.writer._instants.observe(load_timeline(story.storage, METADATA_TABLE_ROOT).times())
    complete_delta_commit(by, inflight, story.writer._instants.next(), pending.index_metadata)


def dead_write(story: Story, *marked: str) -> str:
    """Another engine begins a write, announces these files of it, makes them, and dies."""
    by, instant = Unfenced(story.storage), story.writer._instants.next()
    create_inflight(by, create_requested(by, instant, Action.DELTA_COMMIT, b""), b"")
    for name in marked or ("a",):
        path = f"eu/{name}_0-0-0_{instant}.parquet"
        create_marker(by, instant, path, MarkerType.CREATE)
        story.storage.create(path, b"half a file")
    return instant


def poisoned_write(story: Story) -> tuple[str, str]:
    """A dead write that cannot be undone, and the path of the marker that is the cause: it names the file of
    another instant.
    """
    instant = dead_write(story)
    create_marker(Unfenced(story.storage), instant, "eu/a_0-0-0_20240101000000000.parquet", MarkerType.CREATE)
    (marker,) = [
        info.path
        for info in story.storage.walk(f".hoodie/.temp/{instant}")
        if "20240101000000000" in info.name
    ]
    return instant, marker


def pending(story: Story) -> list[str]:
    return [instant.requested for instant in load_timeline(story.storage).pending()]


def handler(story: Story) -> RollBackDead:
    found = story.served.handlers[ServiceKind.ROLLBACK]
    assert isinstance(found, RollBackDead)
    return found


def fails_until_it_is_left_out(story: Story) -> None:
    """One action, as the runner tries its steps again."""
    assert story.served.plan(ServiceKind.ROLLBACK)
    for step in (story.served.decide, *[story.served.finish] * (TRIES - 2)):
        with pytest.raises(CorruptFileError):
            step(ServiceKind.ROLLBACK)
    with pytest.raises(LeftOutError, match="cannot be undone"):
        story.served.finish(ServiceKind.ROLLBACK)
    story.served.take_back(ServiceKind.ROLLBACK)


def test_each_dead_write_is_undone_in_an_action_of_its_own_and_the_next_follows_at_once(story: Story):
    """So the lock is given back between two."""
    dead = [dead_write(story) for _ in range(3)]
    story.later()
    for number in range(3):
        facts = ServiceFacts(story.served.state, {ServiceKind.ROLLBACK: story.clock.now_ms()})
        assert (handler(story).due(facts, story.clock.now_ms()) is not None) is (number > 0)
        assert story.served.act(ServiceKind.ROLLBACK)
        assert pending(story) == dead[number + 1 :]
    facts = ServiceFacts(story.served.state, {ServiceKind.ROLLBACK: story.clock.now_ms()})
    assert handler(story).due(facts, story.clock.now_ms()) is None
    assert not story.served.act(ServiceKind.ROLLBACK)
    story.check()


def test_a_dead_write_that_cannot_be_undone_keeps_no_other_one_from_being_undone(story: Story):
    (poisoned, marker), dead = poisoned_write(story), dead_write(story)
    story.later()
    fails_until_it_is_left_out(story)
    assert story.served.act(ServiceKind.ROLLBACK)
    assert pending(story) == [poisoned]
    assert not story.served.act(ServiceKind.ROLLBACK), "it has a pause"
    (told,) = handler(story).left_out(story.clock.now_ms())
    assert told.startswith(f"the dead write {poisoned} could not be undone: a marker of {poisoned} names")
    assert "which is not of that instant" in told
    assert "; next try in " in told
    story.pass_by(LEFT_OUT_MS / 1_000)
    assert dead not in pending(story)
    assert story.served.plan(ServiceKind.ROLLBACK)
    with pytest.raises(LeftOutError):
        story.served.decide(ServiceKind.ROLLBACK)
    story.served.take_back(ServiceKind.ROLLBACK)
    assert not story.served.act(ServiceKind.ROLLBACK), "it has a pause again"
    story.storage.delete(marker)
    assert story.served.act(ServiceKind.ROLLBACK, asked=True), "an operator does not wait"
    assert (pending(story), list(handler(story).left_out(story.clock.now_ms()))) == ([], [])
    story.check()


def test_a_write_that_is_not_dead_any_more_is_not_said_to_be_left_out(story: Story):
    """Its own engine undid it, which has the marker repaired."""
    poisoned, marker = poisoned_write(story)
    story.later()
    fails_until_it_is_left_out(story)
    story.storage.delete(marker)
    rollback_pending(Unfenced(story.storage), poisoned, story.writer._instants)
    assert not story.served.act(ServiceKind.ROLLBACK)
    assert list(handler(story).left_out(story.clock.now_ms())) == []


def test_of_many_writes_that_cannot_be_undone_three_are_named(story: Story):
    poisoned = [poisoned_write(story)[0] for _ in range(5)]
    story.later()
    for _ in poisoned:
        fails_until_it_is_left_out(story)
    told = list(handler(story).left_out(story.clock.now_ms()))
    assert [text.split()[3] for text in told[:3]] == poisoned[:3]
    assert told[3:] == ["2 more dead writes could not be undone"]


def test_a_dead_write_that_did_not_fail_comes_before_an_older_one_that_did(story: Story):
    poisoned, _ = poisoned_write(story)
    story.later()
    fails_until_it_is_left_out(story)
    dead = dead_write(story)
    story.later()
    assert story.served.act(ServiceKind.ROLLBACK), "both wait for their turn"
    assert dead > poisoned
    assert pending(story) == [poisoned]


def test_a_full_disk_leaves_no_dead_write_out(story: Story, monkeypatch: pytest.MonkeyPatch):
    """It refuses all of them, and would have each wait for ten minutes after there is space again."""
    dead = dead_write(story)
    story.later()

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert story.served.plan(ServiceKind.ROLLBACK)
    with monkeypatch.context() as full:
        full.setattr(rollbacks, "rollback_pending", refuse)
        for step in (story.served.decide, *[story.served.finish] * (2 * TRIES)):
            with pytest.raises(OSError, match="No space left"):
                step(ServiceKind.ROLLBACK)
    assert list(handler(story).left_out(story.clock.now_ms())) == []
    assert story.served.finish(ServiceKind.ROLLBACK)
    assert dead not in pending(story)


def test_a_rollback_that_cannot_delete_markers_is_no_foreign_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    """The write is undone, and its markers belong to another user: else the stream would be rewound."""
    dead = dead_write(story)
    story.later()
    assert story.served.plan(ServiceKind.ROLLBACK)

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as theirs:
        theirs.setattr(markers, "delete_markers", refuse)
        for step in (story.served.decide, *[story.served.finish] * (TRIES - 2)):
            with pytest.raises(PermissionError):
                step(ServiceKind.ROLLBACK)
        with pytest.raises(LeftOutError, match="Permission denied"):
            story.served.finish(ServiceKind.ROLLBACK)
    story.served.take_back(ServiceKind.ROLLBACK)
    assert dead not in pending(story)
    found = look(story.storage, load_timelines(story.storage), story.served.state)
    assert (found.surprises, found.harmless) == ((), ())
