"""A coordinator dies with a decided action, and another engine schedules a compaction of the metadata table
before the next one goes on: at the decided time the action's file list would lie below that compaction, in a
slice that nobody reads.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.other_engine import OtherEngine
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_half_done_by_other import killed_with_inflight
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action


def test_the_decision_is_taken_back(tmp_path: Path) -> None:
    story, kind = Story(tmp_path / "made").copy(tmp_path / "t"), ServiceKind.COMPACT_DATA
    instant = killed_with_inflight(story, kind)
    story.pass_by(1.0)
    other = OtherEngine(story.storage, story.clock, Action.DELTA_COMMIT)
    scheduled = other.schedule_compaction(METADATA_TABLE_ROOT)
    story.served.begin()
    with pytest.raises(ActionLostError, match=f"{scheduled}.*was scheduled since the decision"):
        story.served.finish(kind)
    story.served.take_back(kind)
    assert not [info.path for info in story.storage.walk("") if instant in info.name]
