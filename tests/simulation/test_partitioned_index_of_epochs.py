"""Epochs of a table with a partitioned record index: what they write, who sees the file groups of partitions
that they begin, and what happens when another engine begins the same one, or a coordinator dies.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.hudi_rules.slices import begins_with_uncommitted, groups_of
from tests.hudi_rules.timeline import parse_timeline
from tests.simulation.begun_groups_world import instant_counts
from tests.simulation.commit_path import ATTEMPTS_MAX, CommitPath
from tests.simulation.lived_table import LivedTable
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import (
    EXPECTED,
    EXPECTED_INDEX,
    GROUP_A,
    GROUP_B,
    check_traces,
    first_epoch,
    row,
    second_epoch,
)
from tests.simulation.watched_life import SOON
from tidemark.commit_coordinator.commit.attempt_effects import free_lock
from tidemark.commit_coordinator.commit.stored_report import read_report, report_document
from tidemark.commit_coordinator.errors import EntriesLeftOutError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.kept_indexes import KeptPartitioned
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested, delete_pending
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    empty_log,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitioned_index import IndexGroup, initial_logs, layout_of
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, ShardId
from tidemark.hudi_format.publication.held import HELD_MAX
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError
from tidemark.stream_writer.task_outcome import TaskSucceeded
from tidemark.table_verification.verify import verify_table

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
AFTER_THE_DECISION = [
    CoordinatorFailpoint.AFTER_COMMIT_DECIDED,
    CoordinatorFailpoint.BEFORE_METADATA_COMPLETED,
    CoordinatorFailpoint.AFTER_METADATA_COMMIT,
    CoordinatorFailpoint.AFTER_DATA_COMMIT,
    CoordinatorFailpoint.BEFORE_EPOCH_COMMITTED,
]
EXPECTED_ENTRIES = {(day, key): file_id for key, (day, file_id) in EXPECTED_INDEX.items()}


def new_path(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> CommitPath:
    return CommitPath(folder, table_type, ordered=True, partition_shards=2)


def index_files(path: CommitPath) -> list[str]:
    return sorted(name for name in path.storage.names(RECORD_INDEX_FOLDER) if "record-index" in name)


def entries(path: CommitPath) -> dict[tuple[str, str], str]:
    """File group by (partition, key)."""
    snapshot = MetadataTableSnapshot.load(path.storage)
    found: dict[tuple[str, str], str] = {}
    for group in layout_of(snapshot).groups():
        of_group = snapshot.shard(group.shard, group.partition_path).entries()
        for key, at in zip(of_group.keys.to_pylist(), of_group.location_ids.tolist(), strict=True):
            assert of_group.locations[at].partition_path == group.partition_path
            assert (group.partition_path, key) not in found
            found[group.partition_path, key] = of_group.locations[at].file_id
    return found


def check_nothing_hidden(path: CommitPath) -> None:
    """By Hudi's rule, with code of its own."""
    roots = (".hoodie/timeline", f"{METADATA_TABLE_ROOT}/timeline")
    data, metadata = (parse_timeline(path.storage.names(root)) for root in roots)
    for names in groups_of({"": index_files(path)}).values():
        assert not begins_with_uncommitted(names, lambda instant: instant_counts(instant, data, metadata))


def finish(path: CommitPath, steps_max: int = 60) -> None:
    """Until nothing is uncommitted; whenever others may take the lock, Hudi sees all that is there."""
    for _ in range(steps_max):
        path.step()
        if not path.storage.exists(LOCK_PATH):
            check_nothing_hidden(path)
        if path.is_idle():
            return
    raise AssertionError(path.coordinator and path.coordinator.doing)


def both_epochs(path: CommitPath) -> None:
    first_epoch(path)
    finish(path)
    second_epoch(path)
    finish(path)


def check_end(path: CommitPath) -> None:
    assert path.rows() == EXPECTED
    assert entries(path) == EXPECTED_ENTRIES
    assert layout_of(MetadataTableSnapshot.load(path.storage)).shards == {"d1": 2, "d2": 2}
    check_nothing_hidden(path)
    check_traces(path)


@BOTH_TYPES
def test_each_partition_gets_its_groups_with_the_first_epoch_that_writes_into_it(
    tmp_path: Path, table_type: TableType
) -> None:
    path = new_path(tmp_path, table_type)
    both_epochs(path)
    check_end(path)
    first = sorted({name.partition("_")[2].partition(".")[0] for name in index_files(path)})[0]
    of_first = [name for name in index_files(path) if f"_{first}." in name]
    assert len([name for name in of_first if name.endswith("_0-0-0")]) == 4
    found = load_timeline(path.storage, METADATA_TABLE_ROOT).find(first)
    assert found is not None
    content = path.storage.read(f"{METADATA_TABLE_ROOT}/timeline/{found.file_name}")
    named = decode_commit_metadata(content, first).write_stats["record_index"]
    assert sorted(stat.path.rpartition("/")[2] for stat in named) == of_first


def test_an_epoch_may_begin_more_files_than_a_term_holds_in_memory(tmp_path: Path) -> None:
    shards = HELD_MAX // 2
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True, partition_shards=shards)
    path.tag([(row("a", 1, 1), DataOp.INSERT, GROUP_A), (row("b", 1, 1, "d2"), DataOp.INSERT, GROUP_B)])
    finish(path)
    assert path.state().committed.epoch == 1
    assert len(index_files(path)) == 2 * (shards + 1)
    assert entries(path) == {("d1", "a"): GROUP_A, ("d2", "b"): GROUP_B}
    assert layout_of(MetadataTableSnapshot.load(path.storage)).shards == {"d1": shards, "d2": shards}


def test_an_epoch_that_begins_too_many_partitions_is_committed_in_parts(tmp_path: Path) -> None:
    """Its writer says that the report is too large, until an attempt begins at most two."""
    path, partitions = new_path(tmp_path), 8
    for number in range(partitions):
        rows = row(f"k{number}", 1, 1, f"d{number}")
        path.tag([(rows, DataOp.INSERT, f"00000000-0000-4000-8000-{number:012}-0")])
    failed: Counter[int] = Counter()
    for _ in range(200):
        path.step_coordinator()
        view = path.attempts.wait_for_unreported(0.0)
        if view is not None and len(view.manifest) > 2:
            failed[view.planned.epoch] += 1
            path.fail_open_attempt(rewind=False)
        else:
            path.write_open_attempt()
        if path.is_idle():
            break
    assert path.is_idle()
    assert failed[1] == 3
    assert max(failed.values()) < ATTEMPTS_MAX
    assert len(entries(path)) == partitions
    check_nothing_hidden(path)


def test_a_key_has_a_row_in_each_of_two_partitions(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    path.tag([(row("a", 1, 1), DataOp.INSERT, GROUP_A), (row("a", 1, 2, "d2"), DataOp.INSERT, GROUP_B)])
    finish(path)
    assert entries(path) == {("d1", "a"): GROUP_A, ("d2", "a"): GROUP_B}
    path.tag([(row("a", 2, 1), DataOp.DELETE, GROUP_A)])
    finish(path)
    assert entries(path) == {("d2", "a"): GROUP_B}


def test_of_a_new_partition_nobody_sees_a_file_before_the_decision(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    first_epoch(path)
    path.step_coordinator()
    planned = path.state().planned
    assert planned is not None
    build = newest_build(load_timeline(path.storage, METADATA_TABLE_ROOT))
    assert planned.partitioned == KeptPartitioned(2, build)
    view = path.open_attempt()
    outcomes = path.outcomes_of(view, path.run_open_attempt())
    assert index_files(path) == []
    of_firsts = [msgspec.structs.replace(each, begun=each.begun[1:]) for each in outcomes]
    at = (planned.epoch, planned.attempt, str(planned.instant))
    with pytest.raises(EntriesLeftOutError, match="with their first files"):
        path.report(*at, of_firsts)
    assert path.report(*at, outcomes)
    report = path.attempts.report_of(planned)
    assert read_report(report_document(report), str(planned.instant)) == report
    finish(path)
    assert set(entries(path)) == {("d1", "a"), ("d1", "b"), ("d2", "c")}


def test_a_writer_that_writes_a_global_index_is_refused(tmp_path: Path) -> None:
    path, other = new_path(tmp_path / "p"), CommitPath(tmp_path / "g", TableType.MERGE_ON_READ, ordered=True)
    made: list[list[TaskSucceeded]] = []
    for each in (path, other):
        first_epoch(each)
        each.step_coordinator()
        view = each.open_attempt()
        made.append(each.outcomes_of(view, each.run_open_attempt()))
    for each, outcomes in ((path, made[1]), (other, made[0])):
        planned = each.state().planned
        assert planned is not None
        with pytest.raises(EntriesLeftOutError, match="a record index of the other kind"):
            each.report(planned.epoch, planned.attempt, str(planned.instant), outcomes)


@pytest.mark.parametrize("point", AFTER_THE_DECISION)
def test_a_coordinator_that_dies_after_the_decision_leaves_all_to_its_successor(
    tmp_path: Path, point: CoordinatorFailpoint
) -> None:
    """The writer's files are not needed any more: the decided document has their bytes."""
    path = new_path(tmp_path)
    first_epoch(path)
    path.failpoints.arm(point, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        finish(path)
    path.crash()
    finish(path)
    assert path.state().committed.epoch == 1
    second_epoch(path)
    finish(path)
    check_end(path)


def dying(path: str) -> bool:
    raise FailpointHitError(f"deletes {path}")


@pytest.mark.parametrize("coordinator", ["lives", "dies"])
def test_groups_of_an_attempt_that_is_taken_back_go_before_the_lock_does(
    tmp_path: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were published, then somebody took the lock away, and a compaction was scheduled in the gap."""
    path = new_path(tmp_path)
    first_epoch(path)
    path.failpoints.arm(CoordinatorFailpoint.BEFORE_METADATA_COMPLETED, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        finish(path)
    planned = path.state().planned
    assert planned is not None
    void = str(planned.instant)
    assert [name for name in index_files(path) if void in name]
    path.crash()
    path.storage.delete_tree(LOCK_PATH)
    path.clock.advance(1.0)
    OtherEngine(path.storage, path.clock, path.action).schedule_compaction(METADATA_TABLE_ROOT)
    if coordinator == "dies":
        # Just behind the entry that takes the decision back.
        with monkeypatch.context() as patched:
            patched.setattr(path.storage, "delete", dying)
            with pytest.raises(FailpointHitError):
                path.run_until_idle()
        assert path.state().voided
        assert path.storage.exists(LOCK_PATH)
        path.crash()
        path.start_coordinator()
        assert path.context is not None
        free_lock(path.context)
        assert not [name for name in index_files(path) if void in name]
        check_nothing_hidden(path)
    finish(path)
    assert not [name for name in index_files(path) if void in name]
    second_epoch(path)
    finish(path)
    check_end(path)


def test_services_compact_and_clean_groups_of_each_partition(tmp_path: Path) -> None:
    """Three partitions with two groups each, for as long as each of these services runs several times."""
    life = LivedTable(tmp_path, SOON, groups=3, keys=30, seed=3, partition_shards=2)
    for _ in range(25):
        life.second()
    life.settle()
    ended = [number for number, end in life.ended().items() if isinstance(end, ServiceCommitted)]
    kinds = Counter(life.planned_services()[number].kind for number in ended)
    several = (
        ServiceKind.COMPACT_DATA,
        ServiceKind.COMPACT_INDEX,
        ServiceKind.CLEAN_DATA,
        ServiceKind.CLEAN_INDEX,
    )
    assert min(kinds[kind] for kind in several) >= 2, kinds
    assert life.rows() == life.model
    found = verify_table(life.storage, lambda _: None)
    assert found.agrees, found.findings
    assert (found.shards, found.entries) == (6, len(life.model))
    bases = [name for name in life.storage.names(RECORD_INDEX_FOLDER) if name.endswith(".hfile")]
    groups = {name.partition("_")[0] for name in bases}
    assert groups == {f"record-index-d{day}-000{shard}-0" for day in range(3) for shard in range(2)}


def test_of_a_group_that_another_engine_began_after_the_plan_nobody_sees_a_file_of_ours(
    tmp_path: Path,
) -> None:
    """The attempt's instant is the smaller one, so its file would be the group's first."""
    path = new_path(tmp_path)
    first_epoch(path)
    path.step_coordinator()
    view = path.open_attempt()
    path.clock.advance(1.0)
    by, times = Unfenced(path.storage), InstantGenerator(path.clock)
    theirs = times.next()
    pending = create_inflight(by, create_requested(by, theirs, path.action))
    inflight = begin_delta_commit(by, theirs)
    log = initial_logs([IndexGroup("d2", ShardId(0))], theirs)
    for each, data in log:
        publish_log(by, each, data)
    logs = [*(each for each, _ in log), publish_files_log(by, theirs, [])]
    complete_delta_commit(by, inflight, times.next(), delta_commit_metadata(theirs, logs))
    complete(by, pending, times.next(), encode_commit_metadata(CommitMetadata()))
    path.outcomes_of(view, path.run_open_attempt())
    assert index_files(path) == [each.name for each, _ in log]
    check_nothing_hidden(path)
    finish(path)
    assert path.state().committed.epoch == 0
    check_nothing_hidden(path)


def test_a_partition_that_another_engine_begins_meanwhile_is_waited_for(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    first_epoch(path)
    path.step_coordinator()
    by = Unfenced(path.storage)
    theirs = InstantGenerator(path.clock).next()
    requested = create_requested(by, theirs, path.action)
    create_inflight(by, requested, encode_commit_metadata(CommitMetadata()))
    log = f"{RECORD_INDEX_FOLDER}/.record-index-d2-0000-0_{theirs}.log.1_0-0-0"
    path.storage.create(log, empty_log(theirs))
    for _ in range(12):
        path.step()
    assert path.state().committed.epoch == 0
    assert path.coordinator is not None
    assert path.coordinator.seen.halted is None
    assert path.coordinator.seen.awaited is not None
    assert "began the record index of partition 'd2' with 1" in path.coordinator.seen.awaited.reason
    assert index_files(path) == [log.rpartition("/")[2]]
    path.storage.delete(log)
    delete_pending(path.storage, theirs, path.action)
    path.clock.advance(60.0)
    finish(path)
    second_epoch(path)
    finish(path)
    check_end(path)
