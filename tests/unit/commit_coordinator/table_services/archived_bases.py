"""Tables whose record index has base files of archived compactions, and what another engine's new index
leaves behind on their metadata table's timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import compacted_and_written_on
from tidemark.commit_coordinator.commit.hidden_bases import HiddenBases
from tidemark.commit_coordinator.table_services import archivals
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import (
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    load_timeline,
)
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.hudi_format.timeline.instant import requested_in

BUILT: Final = "00000000000000005"


def updated_alone(story: Story) -> None:
    """Updates rows for so long that the newest compaction of the record index goes to the archive. To be
    called while `archivals.under_slices` keeps none: else it stays on the timeline.
    """
    for _ in range(3):
        story.commit((1, 5))
        story.commit((3, 4))
        assert story.served.act(ServiceKind.COMPACT_INDEX)
    while story.served.act(ServiceKind.ARCHIVE):
        pass


def build_of_another_index(story: Story, instant: str = BUILT, completion: str = "20200101000000000") -> None:
    """What a writer leaves on the metadata table's timeline that adds an index: the timeline begins there."""
    built = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, completion)
    states = ("deltacommit.requested", "deltacommit.inflight")
    for name in (*(f"{built.requested}.{state}" for state in states), built.file_name):
        content = encode_commit_metadata(CommitMetadata())
        story.storage.create(f"{METADATA_TABLE_ROOT}/timeline/{name}", content)


def assert_instants_are_whole(storage: Storage) -> None:
    """Nothing is pending on the metadata table's timeline, and each instant has its three files."""
    assert load_timeline(storage, METADATA_TABLE_ROOT).pending() == ()
    names = storage.names(f"{METADATA_TABLE_ROOT}/timeline")
    times = [requested_in(name) for name in names if name[0].isdigit()]
    assert {times.count(time) for time in times} == {3}


def rows_updated_alone(base: Path) -> Story:
    """A table below the folder: the compaction of its record index went to the archive."""
    story = compacted_and_written_on(Story(base / "made").copy(base / "t")).copy(base / "archived")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archivals, "under_slices", lambda *_: set())
        updated_alone(story)
    story.check()
    return story.forget_coordinator()


def bases_that_count(story: Story) -> int:
    """Of the shards of the record index."""
    snapshot = MetadataTableSnapshot.load(story.storage)
    shards = [snapshot.shard(ShardId(number)) for number in range(snapshot.num_shards)]
    return sum(shard.base_name is not None for shard in shards)


@contextmanager
def locked(story: Story) -> Iterator[Term]:
    story.served.context.lock.acquire(0)
    try:
        yield story.served.term
    finally:
        story.served.context.lock.release(story.clock.now_ms())


def check_hidden(story: Story, bases: HiddenBases, generation: int, term: Any = None) -> None:
    with locked(story) as own:
        metadata = load_timeline(story.storage, METADATA_TABLE_ROOT)
        bases.check(cast(Term, term or own), metadata, generation)
