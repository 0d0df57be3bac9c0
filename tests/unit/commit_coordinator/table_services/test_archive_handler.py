"""The handler of archival on real files: both timelines, a coordinator that dies at any step, another engine
that archives at the same time, and what has to stay.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.replaced_groups import replace_commit
from tests.service_actions import DiedError
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services import archivals, steps
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.commit_coordinator.table_services.handler import ServiceFacts
from tidemark.commit_coordinator.table_services.index_slices import in_slices
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import create_inflight, create_requested, instant_path
from tidemark.hudi_format.file_group.names import LogFileName, parse_data_file
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    DELETED,
    RECORD_INDEX_FOLDER,
    RecordIndexEntries,
    record_index_log,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.snapshot import metadata_slices
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archiving import history_of, newest_manifest
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    ArchivedTimeline,
    Instant,
    State,
    Timeline,
    load_timeline,
)

ARCHIVE = ServiceKind.ARCHIVE
COMPACTIONS = (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA)
CLEANS = (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX)


def compacted_and_written_on(story: Story) -> Story:
    """The first three commits may go. The coordinator's own files are removed, so that it can be copied."""
    assert all(story.served.act(kind) for kind in COMPACTIONS)
    story.commit((1, 5))
    story.commit((6, 31), deletes=(9,))
    return story.forget_coordinator()


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Story:
    base = tmp_path_factory.mktemp("archive")
    return compacted_and_written_on(Story(base / "made").copy(base / "t"))


@pytest.fixture
def story(compacted: Story, tmp_path: Path) -> Story:
    return compacted.copy(tmp_path / "t")


def active(story: Story, root: str = DATA_ROOT) -> list[str]:
    return [each.requested for each in load_timeline(story.storage, root).completed()]


def archived(story: Story, root: str = DATA_ROOT) -> list[str]:
    return [each.requested for each in ArchivedTimeline(story.storage, root).instants()]


def writes(story: Story) -> list[str]:
    return [each.requested for each in load_timeline(story.storage).completed() if each.action.is_write]


def test_the_data_tables_timeline_goes_first_and_the_metadata_tables_follows(story: Story) -> None:
    before = active(story), active(story, METADATA_TABLE_ROOT)
    handler = story.served.handlers[ARCHIVE]
    assert handler.due(facts(story), 0) is not None
    assert story.served.act(ARCHIVE)
    assert active(story, METADATA_TABLE_ROOT) == before[1]
    assert archived(story) + active(story) == before[0]
    assert len(writes(story)) == 3, "the metadata table's compaction holds the data table's back"
    story.check()
    assert handler.due(facts(story), 0) == "the data table's timeline was archived"
    assert story.served.act(ARCHIVE)
    story.check()
    assert archived(story, METADATA_TABLE_ROOT) + active(story, METADATA_TABLE_ROOT) == before[1]
    assert load_timeline(story.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
    assert not story.served.act(ARCHIVE)


def facts(story: Story) -> ServiceFacts:
    return ServiceFacts(story.served.state, {})


STEPS = [
    (CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE, 1),
    (CoordinatorFailpoint.AFTER_SERVICE_METADATA, 1),
    (CoordinatorFailpoint.AFTER_SERVICE_COMPLETED, 1),
    (CoordinatorFailpoint.IN_SWEEP, 1),
    (CoordinatorFailpoint.IN_SWEEP, 2),
    (CoordinatorFailpoint.IN_SWEEP, 3),
]


@pytest.mark.parametrize("root", [DATA_ROOT, METADATA_TABLE_ROOT])
@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_a_coordinator_that_dies_at_any_step_has_a_successor_that_goes_on(
    story: Story, root: str, step: CoordinatorFailpoint, nth: int
) -> None:
    if root == METADATA_TABLE_ROOT:
        assert story.served.act(ARCHIVE)
    before = archived(story, root) + active(story, root)
    story.served.dies_at(step, nth)
    with pytest.raises(DiedError):
        story.served.act(ARCHIVE)
    story.check()
    story.served.begin()
    story.check_readers()
    assert story.served.finish(ARCHIVE)
    assert archived(story, root) + active(story, root) == before
    assert len(archived(story, root)) > 1
    story.check()
    story.commit((4, 41))
    story.check()


def test_a_decided_archival_is_taken_back_where_another_engine_was_faster(story: Story) -> None:
    served = story.served
    served.dies_at(CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE)
    with pytest.raises(DiedError):
        served.act(ARCHIVE)
    first = active(story)[0]
    for name in story.storage.names(f"{DATA_ROOT}/timeline"):
        if name.startswith(first):
            story.storage.delete(f"{DATA_ROOT}/timeline/{name}")
    served.begin()
    with pytest.raises(ActionLostError):
        served.finish(ARCHIVE)
    served.take_back(ARCHIVE)
    assert archived(story) == []
    assert story.storage.names(history_of(DATA_ROOT)) == []


def test_what_is_archived_is_never_taken_back(story: Story) -> None:
    served = story.served
    served.dies_at(CoordinatorFailpoint.AFTER_SERVICE_COMPLETED)
    with pytest.raises(DiedError):
        served.act(ARCHIVE)
    served.begin()
    held = served.state.services[ARCHIVE]
    assert held.decided is not None
    assert not steps.take_back(
        served.context, served.handlers[ARCHIVE], held.planned, held.decided, "a test says so"
    )
    assert served.finish(ARCHIVE)
    assert archived(story)


def test_a_plan_that_does_not_hold_any_more_is_dropped(story: Story) -> None:
    assert story.served.plan(ARCHIVE)
    late = Instant(f"{int(active(story)[1]) - 1}", Action.DELTA_COMMIT, State.REQUESTED)
    story.storage.create(instant_path(late), b"")
    assert not story.served.decide(ARCHIVE)
    assert "the pending write" in story.served.dropped
    assert archived(story) == []


def test_an_operator_who_asks_gets_what_may_go(story: Story) -> None:
    story.served.config = replace(
        story.served.config, archive=replace(story.served.config.archive, min=2, max=100, batch=50)
    )
    story.served.begin()
    assert not story.served.act(ARCHIVE)
    assert story.served.act(ARCHIVE, asked=True)
    assert archived(story)


@pytest.mark.parametrize("at_once_bytes", [1 << 20, 0], ids=["in a step", "beside the loop"])
def test_full_levels_are_merged_and_old_manifests_go(
    story: Story, at_once_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 3)
    monkeypatch.setattr(archiving, "MANIFESTS_KEPT", 3)
    monkeypatch.setattr(archivals, "_MERGED_AT_ONCE_BYTES", at_once_bytes)
    for n in range(100, 112, 4):
        # New keys of both shards: an update of a row changes nothing in the index.
        story.commit((n, n + 1))
        assert story.served.act(ServiceKind.COMPACT_INDEX)
        for key in (n + 2, n + 3):
            story.commit((key,))
        for kind in (ServiceKind.COMPACT_INDEX, ARCHIVE, ARCHIVE):
            assert story.served.act(kind)
    for root in (DATA_ROOT, METADATA_TABLE_ROOT):
        names = [file.name for file in newest_manifest(story.storage, root).files]
        assert [name[-10:] for name in names] == ["_1.parquet"], root
        kept = [name for name in story.storage.names(history_of(root)) if name.startswith("manifest")]
        assert len(kept) == 3
    story.check()


def test_a_replacecommit_stays_until_neither_a_folder_nor_the_metadata_table_has_its_files(
    story: Story,
) -> None:
    handler = story.served.handlers[ARCHIVE]
    assert isinstance(handler, Archive)
    folder = story.storage.names("eu")
    file_id = next(name for name in folder if name.endswith(".parquet")).partition("_")[0]
    replacing = Instant("20300101000000000", Action.REPLACE_COMMIT, State.COMPLETED, "20300101000000001")
    content = replace_commit({"eu": [file_id]})
    story.storage.create(instant_path(replacing), content)
    assert not handler._is_gone(story.storage, replacing)
    for name in folder:
        if file_id in name:
            story.storage.delete(join_path("eu", name))
    assert not handler._is_gone(story.storage, replacing), "the metadata table lists them"


def drop_partition(story: Story, partition: str) -> str:
    """What Hudi's DELETE_PARTITION leaves; returns its instant."""
    storage, by, instants = story.storage, Unfenced(story.storage), story.writer._instants
    timelines = [load_timeline(storage, root) for root in (DATA_ROOT, METADATA_TABLE_ROOT)]
    instants.observe([time for timeline in timelines for time in timeline.times()])
    instant = instants.next()
    requested = create_requested(by, instant, Action.REPLACE_COMMIT)
    create_inflight(by, requested)
    gone = sorted(key for key, (region, _, _) in story.live.items() if region == partition)
    keys, logs = pa.array(gone, pa.string()), []
    shards = record_index_shard(keys, 2)
    for shard in np.unique(shards).tolist():
        of_shard = keys.filter(pa.array(shards == shard))
        count = len(of_shard)
        ids = np.full(count, DELETED, np.int32)
        content = write_record_index_log(
            RecordIndexEntries(of_shard, ids, [], np.zeros(count, np.int64)), instant
        )
        log = record_index_log(instant, shard, len(content), 0, count)
        publish_log(by, log, content)
        logs.append(log)
    metadata = delta_commit_metadata(instant, logs)
    complete_delta_commit(by, begin_delta_commit(by, instant), instants.next(), metadata)
    parsed = (parse_data_file(name) for name in storage.names(partition))
    groups = sorted({each.file_id for each in parsed if each is not None})
    completed = Instant(instant, Action.REPLACE_COMMIT, State.COMPLETED, instants.next())
    storage.create(instant_path(completed), replace_commit({partition: groups}))
    for key in gone:
        del story.live[key]
    story.clock.advance(1.0)
    return instant


def test_a_replacecommit_is_archived_once_its_groups_are_cleaned(story: Story) -> None:
    """It may not go before: without it the rows of the dropped partition would be there again."""
    dropped = drop_partition(story, "eu")
    story.check()
    for n in (1, 3, 5):
        story.commit((n, n + 60))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    assert story.served.act(ARCHIVE)
    assert dropped in active(story)
    story.check()
    story.served.act(ARCHIVE, asked=True)
    assert dropped in active(story)
    story.later()
    assert story.served.act(ServiceKind.CLEAN_DATA)
    story.commit((7,))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    assert story.served.act(ARCHIVE)
    assert dropped in archived(story)
    story.check()
    assert_same_rows(hudi_rs_snapshot(story.path), story_rows(story), "hudi-rs")
    story.commit((2, 8, 70))
    story.check()


def story_rows(story: Story) -> list[dict[str, object]]:
    return [{"id": k, "region": r, "ts": ts, "name": name} for k, (r, ts, name) in story.live.items()]


@pytest.mark.parametrize("seed", range(20))
def test_log_files_of_current_slices_are_those_that_slicing_finds(seed: int) -> None:
    """The short way and the long one, with late commits, and compactions that are pending."""
    chance = random.Random(seed)
    times = [f"202601010000{n:05d}" for n in range(400)]
    metadata, names = [], []
    for n in range(0, 300, 10):
        action = Action.COMPACTION if n % 50 == 40 else Action.DELTA_COMMIT
        is_done = chance.random() < 0.9
        completion = times[n + chance.choice([3, 25, 60])] if is_done else None
        metadata.append(
            Instant(times[n], action, State.COMPLETED if is_done else State.REQUESTED, completion)
        )
        for file_id in ("record-index-0000-0", "record-index-0001-0"):
            if chance.random() < 0.7:
                log = f".{file_id}_{times[n]}.log.1_0-0-0"
                names.append(f"{file_id}_0-0-0_{times[n]}.hfile" if action is Action.COMPACTION else log)
    data = [each for each in metadata if each.action is Action.DELTA_COMMIT]
    validity = InstantValidity(Timeline(tuple(data)), Timeline(tuple(metadata)))
    done = {each.requested for each in metadata if each.is_completed}
    slices = metadata_slices({"record_index": names}, validity)
    parsed = [LogFileName.parse(name) for each in slices for name in each.log_files]
    expected = {each.instant for each in parsed if each is not None}
    assert in_slices({"record_index": names}, validity, done) == expected & done


def test_instants_stay_whose_log_files_a_compaction_left_out(story: Story) -> None:
    """Hudi reads a log block only while its instant is on an active timeline."""
    assert story.served.act(ARCHIVE)
    for name in story.storage.names(RECORD_INDEX_FOLDER):
        if name.startswith("record-index-0001-0") and name.endswith(".hfile"):
            story.storage.delete(join_path(RECORD_INDEX_FOLDER, name))
    logs = [LogFileName.parse(name) for name in story.storage.names(RECORD_INDEX_FOLDER)]
    left = {each.instant for each in logs if each is not None and each.file_id == "record-index-0001-0"}
    story.served.act(ARCHIVE, asked=True)
    assert left & set(archived(story)), "the data table's timeline does not keep them"
    assert left <= set(active(story, METADATA_TABLE_ROOT))
