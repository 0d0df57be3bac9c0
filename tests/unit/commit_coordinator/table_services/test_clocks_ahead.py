"""The coordinator's clock is hours ahead of the storage's, as it is after its machine's clock once was."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from testing.clock import ManualClock
from tests.simulation.clocked_storage import ClockedStorage
from tests.unit.commit_coordinator.table_services.story import HOUR_S, Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.timeline import load_timeline


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path / "t")
    made.serve()
    return made


def ahead(story: Story) -> ManualClock:
    """Our clock jumps; returns the storage's, which goes on."""
    storage = cast(ClockedStorage, story.storage)
    storage.clock = right = ManualClock(story.clock.now_ms())
    story.later()
    return right


def test_the_write_of_another_engine_is_alive_as_long_as_it_beats(story: Story) -> None:
    requested = story.writer.prepare(story.changed((1,))).instant.requested
    right = ahead(story)
    story.storage.touch(heartbeat_path(requested))
    assert not story.served.act(ServiceKind.ROLLBACK)
    right.advance(119.0)
    assert not story.served.act(ServiceKind.ROLLBACK)
    assert load_timeline(story.storage).find(requested) is not None
    right.advance(2 * HOUR_S)
    assert story.served.act(ServiceKind.ROLLBACK), "by the storage's clock it is dead"
    assert load_timeline(story.storage).find(requested) is None


def test_a_write_lives_while_the_storages_clock_is_ahead_for_a_moment(story: Story) -> None:
    requested = story.writer.prepare(story.changed((1,))).instant.requested
    storage = cast(ClockedStorage, story.storage)
    storage.touch(heartbeat_path(requested))
    storage.clock = ManualClock(story.clock.now_ms() + 600_000)
    assert not story.served.act(ServiceKind.ROLLBACK), "ours is right"


def test_side_files_and_superseded_files_stay_for_as_long_as_they_are_young(story: Story) -> None:
    begun = "20200101000000000"
    story.storage.touch(heartbeat_path(begun))
    assert story.served.act(ServiceKind.COMPACT_DATA)
    before = story.table_files()
    right = ahead(story)
    assert not story.served.act(ServiceKind.CLEAN_DATA)
    assert story.storage.exists(heartbeat_path(begun)), "its writer may be about to request the instant"
    assert before <= story.table_files()
    right.advance(2 * HOUR_S)
    assert story.served.act(ServiceKind.CLEAN_DATA)
    assert not story.storage.exists(heartbeat_path(begun))
    assert not before <= story.table_files()
