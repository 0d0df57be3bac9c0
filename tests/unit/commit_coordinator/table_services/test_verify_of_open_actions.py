"""`verify` finds nothing at any moment of a service action: after each file that comes or goes while it is
committed and swept, taken back, or rolls a dead write back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.service_actions import DiedError
from tests.simulation.clocked_storage import ClockedStorage
from tests.unit.commit_coordinator.table_services.story import ARROW, Story
from tests.unit.commit_coordinator.table_services.test_dead_writes import finish_metadata_only
from tests.unit.commit_coordinator.table_services.test_service_handlers import (
    CLEANS,
    COMPACTIONS,
    prepare_for,
)
from tidemark.commit_coordinator.table_services import compactions
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit
from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import FileContent
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.table_verification.verify import Verification, verify_table


class Watched(ClockedStorage):
    """The coordinator's; calls ``look`` after each file of the table that comes or goes."""

    def __init__(self, path: Path, clock: Clock, look: Callable[[], None]) -> None:
        super().__init__(path, clock)
        self._look = look

    def _changed(self, path: str) -> None:
        if not path.startswith((".hoodie/.aux", ".hoodie/lock")):
            self._look()

    def publish(self, staging_dir: str, path: str, data: FileContent, overwrite: bool = False) -> None:
        super().publish(staging_dir, path, data, overwrite)
        self._changed(path)

    def link(self, src: str, dst: str, durable: bool = True) -> None:
        super().link(src, dst, durable)
        self._changed(dst)

    def delete(self, path: str) -> bool:
        was_there = super().delete(path)
        self._changed(path)
        return was_there


class Judge:
    """Verifies while `is_on`, from a storage of its own as another process would."""

    def __init__(self, story: Story) -> None:
        self.story, self.is_on = story, False
        self.found: list[Verification] = []
        self._storage = LocalStorage(story.path)
        story.served.storage = Watched(story.path, story.clock, self.look)
        story.served.begin()

    def look(self) -> None:
        if self.is_on:
            self.found.append(verify_table(self._storage, lambda _: None))

    def watches(self, act: Callable[[], object]) -> None:
        """Every moment of what is done."""
        self.is_on = True
        act()
        self.is_on = False
        assert [each.findings.examples for each in self.found if not each.agrees] == []
        assert {(each.rows, each.entries) for each in self.found} == {(len(self.story.live),) * 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("made") / "t")


@pytest.fixture
def story(made: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setattr(compactions, "PUBLISHED_AT_ONCE", 1)
    return made.copy(tmp_path / "t")


@pytest.mark.parametrize("kind", [*COMPACTIONS, *CLEANS])
def test_verify_agrees_at_each_moment_of_an_action(story: Story, kind: ServiceKind) -> None:
    prepare_for(story, kind)
    judge = Judge(story)
    judge.watches(lambda: story.served.act(kind))
    assert not story.served.state.services
    # Requested, inflight, completed, and a file at least.
    assert len(judge.found) > 3
    if kind is ServiceKind.COMPACT_DATA:
        assert max(each.ignored_files for each in judge.found) > 1, "base files before the instant completes"
    if kind is ServiceKind.CLEAN_DATA:
        left = [each.to_be_deleted for each in judge.found if each.to_be_deleted]
        assert left == sorted(left, reverse=True)
        assert left


@pytest.mark.parametrize("kind", [*COMPACTIONS, *CLEANS])
def test_verify_agrees_at_each_moment_in_which_an_action_is_taken_back(
    story: Story, kind: ServiceKind
) -> None:
    prepare_for(story, kind)
    served = story.served
    point = "after_each_service_file" if kind in COMPACTIONS else "after_service_inflight"
    served.dies_at(point, 2 if kind in COMPACTIONS else 1)
    with pytest.raises(DiedError):
        served.act(kind)
    judge = Judge(story)
    judge.watches(lambda: served.take_back(kind))
    assert not served.state.services
    assert len(judge.found) > 1


@pytest.mark.parametrize("reached", ["data", "metadata inflight", "metadata completed"])
def test_verify_agrees_at_each_moment_of_a_rollback(story: Story, reached: str) -> None:
    places = (("z", "eu"), ("k1", "us"))
    rows = [{"id": key, "region": region, "ts": 99, "name": "z"} for key, region in places]
    pending = story.writer.prepare(pa.Table.from_pylist(rows, schema=ARROW))
    if reached == "metadata inflight":
        begin_delta_commit(Unfenced(story.storage), pending.instant.requested)
    elif reached == "metadata completed":
        finish_metadata_only(story, pending)
    story.check()
    story.later()
    # Its age goes by the storage's clock, too.
    instant = pending.instant.requested
    for path in (heartbeat_path(instant), f".hoodie/timeline/{instant}.deltacommit.requested"):
        os.utime(story.path / path, (0, 0))
    judge = Judge(story)
    judge.watches(lambda: story.served.act(ServiceKind.ROLLBACK))
    timeline = load_timeline(story.storage)
    assert timeline.find(pending.instant.requested) is None
    assert len(timeline.completed(Action.ROLLBACK)) == 1
    # Of the rollback three files; of what it takes back two instant files and two data files at least.
    assert len(judge.found) > 6
