"""What takes long is done before a service takes the table's lock, for which others wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    archived,
    compacted_and_written_on,
)
from tidemark.commit_coordinator.table_services import index_look
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.snapshot import metadata_slices
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import ArchivePlan
from tidemark.hudi_format.timeline import ArchivedInstant


def test_rows_of_an_archival_are_read_and_packed_before_the_lock_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = compacted_and_written_on(Story(tmp_path / "made").copy(tmp_path / "t"))
    story.serve()
    held, lock = [], story.served.context.lock
    rows = archiving.archived_rows

    def noted(storage: Storage, plan: ArchivePlan) -> list[ArchivedInstant]:
        held.append(lock.is_held)
        return rows(storage, plan)

    monkeypatch.setattr(archiving, "archived_rows", noted)
    assert story.served.act(ServiceKind.ARCHIVE)
    assert held == [False]
    assert archived(story)
    story.check()


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_slices_of_the_index_are_found_before_the_lock_is_taken_unless_somebody_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """``writes``: commits while the plan, and then the decision, waits for the lock."""
    story = Story(tmp_path / "t")
    story.serve()
    held, lock, left = [], story.served.context.lock, writes
    acquire = lock.acquire

    def noted(
        files: Mapping[str, Iterable[str]], validity: InstantValidity, as_of: str | None = None
    ) -> list[FileSlice]:
        held.append(lock.is_held)
        return metadata_slices(files, validity, as_of)

    def acquired(timeout_ms: int, ends_epoch: bool = False) -> None:
        nonlocal left
        if left:
            left -= 1
            story.pass_by(5.0)
            story.commit((3, 4))
        acquire(timeout_ms, ends_epoch)

    monkeypatch.setattr(index_look, "metadata_slices", noted)
    monkeypatch.setattr(lock, "acquire", acquired)
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    assert held == [[False, False], [False, True, False], [False, True, False, True]][writes]
    logs = story.index_log_files()
    assert (logs == 0) is (writes < 2), "what completed before the plan took the lock is merged"
    story.check()
