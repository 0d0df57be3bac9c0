"""The sweep of a clean on real files: it comes after the commit, and others may list the files meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES
from pathlib import Path
from typing import Any

import pytest

from testing.ids import SeededIds
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
from tidemark.hudi_format.publication.beside import PosixCommand
from tidemark.hudi_format.publication.folders import (
    ENDED,
    command_beat,
    end_command,
    has_commands,
    remove_dead_commands,
)
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action


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
    marker = f"{marker_folder(gone)}/eu/f-0_0-0-0_{gone}.parquet.marker.CREATE"
    story.storage.create(marker, b"")
    story.storage.touch(heartbeat_path(gone))
    on_metadata, living = (
        [
            f"{METADATA_TABLE_ROOT}/.temp/{instant}/files/f-0_0-0-0_{instant}.hfile.marker.CREATE",
            f"{METADATA_TABLE_ROOT}/.heartbeat/{instant}",
        ]
        for instant in (gone, pending)
    )
    for path in (*on_metadata, *living):
        story.storage.create(path, b"")
    story.later()
    young = instant_from_ms(story.clock.now_ms())
    story.storage.touch(heartbeat_path(young))
    now_s = story.clock.now_ms() / 1000
    os.utime(story.path / heartbeat_path(young), (now_s, now_s))
    assert served.act(kind) is has_files
    kept = [heartbeat_path(pending), heartbeat_path(young)]
    assert [info.path for info in story.storage.list(".hoodie/.heartbeat")] == kept
    assert not story.storage.exists(marker)
    assert gone not in story.storage.names(".hoodie/.temp")
    assert not any(map(story.storage.exists, on_metadata))
    assert all(map(story.storage.exists, living)), "it is pending in the table, and may be tried again"


@pytest.mark.parametrize("has_files", [True, False])
def test_what_a_killed_index_command_prepared_goes_with_a_look_for_files(story: Story, has_files: bool):
    """It is as large as the index, and nobody may ever call such a command again."""
    kind, served = ServiceKind.CLEAN_DATA, story.served
    if not has_files:
        assert served.act(kind)
    living, killed, ended = (SeededIds(seed).uuid() for seed in range(3))
    for seed in range(3):
        PosixCommand(story.storage, story.clock, SeededIds(seed), "").stage("d/file", b"content")
    os.utime(story.path / command_beat(killed), (0, 0))
    end_command(story.storage, ended)
    assert served.act(kind) is has_files
    left = [*story.storage.names(ROOT), *story.storage.names(ENDED)]
    assert [name for name in left if name.startswith("command-")] == [f"command-{living}"]


def test_what_a_command_of_another_user_left_holds_up_no_clean(
    story: Story, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor do those of others stay for it, whichever comes first."""
    for seed in range(4):
        PosixCommand(story.storage, story.clock, SeededIds(seed), "").stage("d/file", b"content")
    kept, half_kept, killed, ended = sorted(SeededIds(seed).uuid() for seed in range(4))
    for command in (kept, killed):
        os.utime(story.path / command_beat(command), (0, 0))
    for command in (half_kept, ended):
        end_command(story.storage, command)

    def refusing(name: str, refused: str) -> None:
        method = getattr(LocalStorage, name)

        def called(storage: LocalStorage, path: str, *args: str) -> Any:
            if refused in path:
                raise PermissionError(EACCES, "Permission denied", path)
            return method(storage, path, *args)

        monkeypatch.setattr(LocalStorage, name, called)

    refusing("rename", kept)
    refusing("delete", half_kept)
    assert story.served.act(ServiceKind.CLEAN_DATA)
    assert f"command-{kept}" in caplog.text
    left = [name for at in (ROOT, ENDED) for name in story.storage.names(at) if "command-" in name]
    assert left == [f"command-{kept}", f"command-{half_kept}"]


def test_what_a_command_prepared_is_deleted_by_and_by(story: Story) -> None:
    """It can be as large as the index, and the table's lock is held meanwhile."""
    command = PosixCommand(story.storage, story.clock, SeededIds(0), "")
    for n in range(3):
        command.stage(f"d/file-{n}", b"content")
    end_command(story.storage, SeededIds(0).uuid())
    assert remove_dead_commands(story.storage, 0, lambda: True) == 1
    assert has_commands(story.storage)
    left = remove_dead_commands(story.storage, 0)
    assert left == 3  # two files and the sign of life
    assert not has_commands(story.storage)


def test_leftovers_are_deleted_in_slices(story: Story):
    """One may be the markers of a write of many files; the lock is given back between two slices."""
    kind, served = ServiceKind.CLEAN_DATA, story.served
    gone = [f"2020010100000{number:04}" for number in range(5)]
    for instant in gone:
        story.storage.touch(heartbeat_path(instant))
    story.later()
    assert served.plan(kind)
    assert served.decide(kind)
    handler, action = served.handlers[kind], served.decided(kind)
    left = []
    while not handler.sweep(served.context, action, False, 0):
        left.append(sum(map(story.storage.exists, map(heartbeat_path, gone))))
    assert left == [5] * (len(left) - 4) + [4, 3, 2, 1]
    assert not any(map(story.storage.exists, map(heartbeat_path, gone)))
