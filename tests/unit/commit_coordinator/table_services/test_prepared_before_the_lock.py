"""What takes long is done before a service takes the table's lock, for which others wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    archived,
    compacted_and_written_on,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
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
