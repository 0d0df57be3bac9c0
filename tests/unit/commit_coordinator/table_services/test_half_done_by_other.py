"""Another engine executes a pending plan of ours, completes it in the metadata table, and dies before it
completes it in the table. Nobody else would end that: the action ends anyway.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service_actions import DiedError
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_service_handlers import prepare_for
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
)
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import name_of, parent_of
from tidemark.hudi_format.table_services.operations import decode_clean
from tidemark.hudi_format.timeline import load_timeline


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "made").copy(tmp_path / "t")


def killed_with_inflight(story: Story, kind: ServiceKind) -> str:
    """A coordinator that made the inflight file and died; returns its instant."""
    story.served.dies_at("after_service_inflight")
    with pytest.raises(DiedError):
        story.served.act(kind)
    return story.served.state.services[kind].planned.instant


def complete_in_metadata_table(story: Story, instant: str, changes: list[FileChange]) -> None:
    by = Unfenced(story.storage)
    story.pass_by(1.0)
    inflight = begin_delta_commit(by, instant)
    log = publish_files_log(by, instant, changes)
    times = InstantGenerator(story.clock)
    complete_delta_commit(by, inflight, times.next(), delta_commit_metadata(instant, [log]))


def test_a_compaction_is_taken_back_and_planned_again(story: Story) -> None:
    served, kind = story.served, ServiceKind.COMPACT_DATA
    instant = killed_with_inflight(story, kind)
    ours = next(iter(served.decided(kind).tickets))
    theirs = ours.replace("-0-0_", "-9-9_")
    assert theirs != ours
    story.storage.create(theirs, b"cut off")
    complete_in_metadata_table(story, instant, [FileChange(parent_of(theirs), name_of(theirs), 7)])
    story.check()
    served.begin()
    with pytest.raises(ActionLostError, match="died before it completed"):
        served.finish(kind)
    served.take_back(kind)
    assert not [info.path for info in story.storage.walk("") if instant in info.name]
    story.check()
    served.begin()
    assert served.act(kind)
    story.check()


def test_a_clean_goes_on(story: Story) -> None:
    served, kind = story.served, ServiceKind.CLEAN_DATA
    prepare_for(story, kind)
    instant = killed_with_inflight(story, kind)
    held = served.decided(kind)
    plan = decode_clean(held.plan, held.planned.plan_path)
    gone = [FileChange(partition, name, None) for partition, names in plan.files.items() for name in names]
    assert gone
    complete_in_metadata_table(story, instant, gone)
    story.check()
    served.begin()
    assert served.finish(kind)
    assert load_timeline(story.storage).completion_time(instant) is not None
    story.check()
    story.commit((4, 44))
    story.check()
