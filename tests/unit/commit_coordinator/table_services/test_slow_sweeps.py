"""Sweeps on a disk that is slow: to read the action's documents, to take the lock and to list the timeline
takes longer than a slice may.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import compacted_and_written_on
from tidemark.commit_coordinator.commit.stored_documents import STORE
from tidemark.commit_coordinator.table_services import steps
from tidemark.epoch_protocol.service_entries import ServiceKind

STEP_MS = 50
LISTING_MS = 200
READING_MS = 60
DELETION_MS = 10
KINDS = [ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX, ServiceKind.ARCHIVE]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """There is something to clean and to archive."""
    made = compacted_and_written_on(Story(tmp_path / "made").copy(tmp_path / "t")).copy(tmp_path / "u")
    made.later()
    made.served.list_files()
    return made


def slow_down(story: Story, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the paths that are deleted from now on."""
    deleted: list[str] = []
    storage, clock = story.served.context.storage, story.clock
    assert isinstance(clock, ManualClock)
    names, read, delete = storage.names, storage.read, storage.delete

    def slow_names(path: str) -> list[str]:
        clock.advance(LISTING_MS / 1_000)
        return names(path)

    def slow_read(path: str) -> bytes:
        # Not the lock, which is read before each deletion.
        if path.startswith(STORE):
            clock.advance(READING_MS / 1_000)
        return read(path)

    def slow_delete(path: str) -> bool:
        clock.advance(DELETION_MS / 1_000)
        deleted.append(path)
        return delete(path)

    monkeypatch.setattr(storage, "names", slow_names)
    monkeypatch.setattr(storage, "read", slow_read)
    monkeypatch.setattr(storage, "delete", slow_delete)
    return deleted


def slices_of(story: Story, kind: ServiceKind, at_most: int) -> int:
    """Sweeps the decided action to its end; returns how many slices that took."""
    served = story.served
    planned, decided = served._held(kind)
    for count in range(1, at_most + 1):
        handler, completed = served.handlers[kind], served._completed
        if steps.sweep(served.context, handler, planned, decided, completed, STEP_MS):
            return count
    raise AssertionError(f"{kind} is not swept after {at_most} slices")


@pytest.mark.parametrize("kind", KINDS)
def test_each_slice_deletes_for_as_long_as_it_may_however_long_it_took_to_begin(
    story: Story, kind: ServiceKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = story.served
    assert served.plan(kind)
    assert served.decide(kind)
    deleted = slow_down(story, monkeypatch)
    slices = slices_of(story, kind, at_most=50)
    monkeypatch.undo()
    assert len(deleted) > 1
    # Some slices of an archival delete nothing: it looks for files to merge, and ends.
    assert slices <= len(deleted) * DELETION_MS / STEP_MS + 4
    story.check()
