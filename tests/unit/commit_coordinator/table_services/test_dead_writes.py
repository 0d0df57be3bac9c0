"""The handler of `rollback`: dead writes of other engines go, and what they held back goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.commit_coordinator.table_services.story import ARROW, Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.commit.markers import MarkerType, create_marker
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit, complete_delta_commit
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata


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


def finish_metadata_only(story: Story, pending) -> None:
    by = Unfenced(story.storage)
    inflight = begin_delta_commit(by, pending.instant.requested)
    story.writer._instants.observe(load_timeline(story.storage, METADATA_TABLE_ROOT).times())
    complete_delta_commit(by, inflight, story.writer._instants.next(), pending.index_metadata)
