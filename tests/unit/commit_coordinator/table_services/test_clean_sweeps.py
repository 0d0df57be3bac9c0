"""The sweep of a clean on real files: it comes after the commit, and others may list the files meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import marker_folder
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
)
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import Action


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """There is something to clean, and nobody reads it any more."""
    made = Story(tmp_path / "made").copy(tmp_path / "t")
    assert all(made.served.act(kind) for kind in (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA))
    made.later()
    made.served.list_files()
    return made


def data_files(story: Story) -> set[str]:
    return {path for path in story.table_files() if not path.startswith(".hoodie")}


def takes_back(story: Story, clean: str) -> None:
    """A restore takes the metadata table back behind the clean."""
    for info in story.storage.walk(METADATA_TABLE_PATH):
        if clean in info.name:
            story.storage.delete(info.path)


def lists_anew(story: Story, clean: str) -> None:
    """A restore to a later commit adds what is there to the list."""
    by, times = Unfenced(story.storage), story.served.context.instants
    restore = create_inflight(by, create_requested(by, times.next(), Action.RESTORE))
    instant = times.next()
    begun = begin_delta_commit(by, instant)
    folders = [path.rpartition("/") for path in sorted(data_files(story))]
    log = publish_files_log(by, instant, [FileChange(folder, name, 100) for folder, _, name in folders])
    complete_delta_commit(by, begun, times.next(), delta_commit_metadata(instant, [log]))
    complete(by, restore, times.next(), b"restored")


@pytest.mark.parametrize("restores", [takes_back, lists_anew])
def test_a_sweep_deletes_nothing_that_a_restore_has_listed_again(
    story: Story, restores: Callable[[Story, str], None]
):
    kind, served = ServiceKind.CLEAN_DATA, story.served
    before = data_files(story)
    assert served.plan(kind)
    assert served.decide(kind)
    restores(story, served.state.services[kind].planned.instant)
    assert served.sweep(kind)
    assert data_files(story) == before
    assert served.act(kind), "the next clean takes them"
    assert data_files(story) < before


def test_the_sweep_of_a_clean_waits_for_another_writer_that_has_the_lock(story: Story):
    """It may be a restore, which is about to list what is there."""
    kind, served = ServiceKind.CLEAN_DATA, story.served
    assert served.plan(kind)
    assert served.decide(kind)
    served.context.lock.free()
    before = data_files(story)
    story.storage.make_dir(LOCK_PATH)
    with pytest.raises(LockHeldError):
        served.sweep(kind)
    assert data_files(story) == before


@pytest.mark.parametrize("has_files", [True, False])
def test_side_files_of_dead_writers_go_also_where_no_data_file_does(story: Story, has_files: bool):
    """A table of inserts alone never has a file to clean."""
    kind, served, gone = ServiceKind.CLEAN_DATA, story.served, "20200101000000000"
    if not has_files:
        assert served.act(kind)
    pending = story.writer.prepare(story.changed((1,))).instant.requested
    story.storage.create(f"{marker_folder(gone)}/eu/f.parquet.marker.CREATE", b"")
    story.storage.touch(heartbeat_path(gone))
    story.later()
    young = instant_from_ms(story.clock.now_ms())
    story.storage.touch(heartbeat_path(young))
    now_s = story.clock.now_ms() / 1000
    os.utime(story.path / heartbeat_path(young), (now_s, now_s))
    assert served.act(kind) is has_files
    kept = [heartbeat_path(pending), heartbeat_path(young)]
    assert [info.path for info in story.storage.list(".hoodie/.heartbeat")] == kept
    assert not story.storage.exists(f"{marker_folder(gone)}/eu/f.parquet.marker.CREATE")
    assert gone not in story.storage.names(".hoodie/.temp")
