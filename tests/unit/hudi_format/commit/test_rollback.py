"""Rolling back a pending write: what goes, what stays, and that a crash anywhere leaves it repeatable."""

from __future__ import annotations

import errno
import itertools
import threading

import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.unit.hudi_format.doubles import ManualClock
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import Marker, MarkerType, create_marker, create_marker_list
from tidemark.hudi_format.commit.rollback import belongs_to, rollback_pending
from tidemark.hudi_format.errors import CorruptFileError, FencedOutError, TimelineConflictError
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import FolderStorage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.service_records import decode_rollback_metadata, decode_rollback_plan

EARLIER, T = "20251231000000000", "20251231000001000"
DATA_LOG = f"p/.f-0_{T}.log.1_0-0-0"
DATA_BASE = f"q/g-0_0-0-0_{T}.parquet"
NEVER_WRITTEN = f"q/h-0_0-0-0_{T}.parquet"
INDEX_LOG = f"{RECORD_INDEX_FOLDER}/.record-index-0000-0_{T}.log.1_0-0-0"
FILES_LOG = f".hoodie/metadata/files/.files-0000-0_{T}.log.1_0-0-0"
KEPT = (
    f"p/f-0_0-0-0_{EARLIER}.parquet",
    f"{RECORD_INDEX_FOLDER}/.record-index-0000-0_{EARLIER}.log.1_0-0-0",
    f"{RECORD_INDEX_FOLDER}/record-index-0000-0_0-0-0_{EARLIER}.hfile",
)


def commit_in_flight(
    storage: FolderStorage,
    action: Action = Action.DELTA_COMMIT,
    metadata: str = "inflight",
    requested_only: bool = False,
) -> None:
    """Instant T with data files, markers, heartbeat; `metadata`: how far T got on the metadata table."""
    for root, done in ((".hoodie", Action.DELTA_COMMIT), (METADATA_TABLE_ROOT, Action.DELTA_COMMIT)):
        instant = create_inflight(
            Unfenced(storage), create_requested(Unfenced(storage), EARLIER, done, root=root), root=root
        )
        complete(Unfenced(storage), instant, "20251231000000500", b"metadata", root=root)
    for path in (*KEPT, DATA_LOG, DATA_BASE, INDEX_LOG):
        storage.create(path, b"data")
    storage.touch(heartbeat.heartbeat_path(T))
    for path in (DATA_LOG, DATA_BASE, NEVER_WRITTEN):
        create_marker(Unfenced(storage), T, path, MarkerType.CREATE)
    requested = create_requested(Unfenced(storage), T, action)
    if not requested_only:
        create_inflight(Unfenced(storage), requested, b"planned")
    if metadata == "absent":
        return
    storage.create(FILES_LOG, b"data")
    started = create_requested(Unfenced(storage), T, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    if metadata != "requested":
        started = create_inflight(Unfenced(storage), started, root=METADATA_TABLE_ROOT)
    if metadata == "completed":
        complete(Unfenced(storage), started, "20251231000001500", b"metadata", root=METADATA_TABLE_ROOT)


def assert_no_trace_of_t(storage: FolderStorage) -> None:
    of_t = [info.path for info in storage.walk("") if T in info.path]
    assert of_t == []
    assert all(storage.read(path) == b"data" for path in KEPT)
    for root in (".hoodie", METADATA_TABLE_ROOT):
        timeline = load_timeline(storage, root)
        assert timeline.pending() == ()
        assert not timeline.contains(T)
        assert timeline.is_committed(EARLIER)


def generator() -> InstantGenerator:
    return InstantGenerator(ManualClock())


@pytest.mark.parametrize("metadata", ["absent", "requested", "inflight", "completed"])
@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
@pytest.mark.parametrize("requested_only", [False, True])
def test_nothing_of_the_instant_is_left_and_a_rollback_says_so(
    metadata: str, action: Action, requested_only: bool
) -> None:
    storage = InMemoryStorage("/base")
    commit_in_flight(storage, action, metadata, requested_only)
    outcome = rollback_pending(Unfenced(storage), T, generator())
    assert_no_trace_of_t(storage)
    rollbacks = load_timeline(storage).completed(Action.ROLLBACK)
    assert [each.requested for each in rollbacks] == [outcome.rollback_instant]
    folder = ".hoodie/timeline/"
    plan = decode_rollback_plan(
        storage.read(f"{folder}{outcome.rollback_instant}.rollback.requested"),
        f"{folder}{outcome.rollback_instant}.rollback.requested",
    )
    assert (plan.instant_to_rollback, plan.action) == (T, action.value)
    named = [path for request in plan.requests for path in request.files_to_delete]
    assert sorted(named) == [f"/base/{path}" for path in sorted((DATA_LOG, DATA_BASE, NEVER_WRITTEN))]
    result = decode_rollback_metadata(
        storage.read(folder + rollbacks[0].file_name), folder + rollbacks[0].file_name
    )
    assert result.rolled_back == ((T, action.value),)
    assert {each.partition_path for each in result.partitions} == {"p", "q"}
    on_metadata = load_timeline(storage, METADATA_TABLE_ROOT).completed(Action.ROLLBACK)
    # The same instant on both timelines, and none on the metadata table's where T never was.
    assert (
        [each.requested for each in on_metadata] == [] if metadata == "absent" else [outcome.rollback_instant]
    )
    if on_metadata:
        assert str(on_metadata[0].completion) < str(rollbacks[0].completion)


@pytest.mark.parametrize("attempt", ["on the timeline", "rolled back before"])
def test_a_compaction_of_the_metadata_table_that_has_the_same_time_stays(attempt: str) -> None:
    """Another engine's clock is behind, and takes the millisecond that was ours."""
    storage = InMemoryStorage("/base")
    commit_in_flight(storage, metadata="absent")
    if attempt == "rolled back before":
        rollback_pending(Unfenced(storage), T, generator())
        storage.create(INDEX_LOG, b"a zombie's")
    base = f"{RECORD_INDEX_FOLDER}/record-index-0000-0_0-0-0_{T}.hfile"
    storage.create(base, b"compacted")
    planned = create_requested(Unfenced(storage), T, Action.COMPACTION, root=METADATA_TABLE_ROOT)
    started = create_inflight(Unfenced(storage), planned, root=METADATA_TABLE_ROOT)
    complete(Unfenced(storage), started, "20251231000001700", b"metadata", root=METADATA_TABLE_ROOT)
    rollback_pending(Unfenced(storage), T, generator())
    assert storage.read(base) == b"compacted"
    assert not storage.exists(INDEX_LOG)
    compacted = load_timeline(storage, METADATA_TABLE_ROOT).find(T)
    assert compacted is not None
    assert compacted.is_completed
    assert load_timeline(storage).find(T) is None


def test_a_table_without_metadata_table_is_rolled_back_too() -> None:
    storage = InMemoryStorage()
    create_inflight(Unfenced(storage), create_requested(Unfenced(storage), T, Action.COMMIT))
    create_marker(Unfenced(storage), T, DATA_BASE, MarkerType.MERGE)
    storage.create(DATA_BASE, b"data")
    outcome = rollback_pending(Unfenced(storage), T, generator())
    assert outcome.deleted_files == (DATA_BASE,)
    assert [info.path for info in storage.walk("") if T in info.path] == []
    assert not storage.exists(METADATA_TABLE_ROOT)


def test_an_attempt_that_never_reached_the_timeline_leaves_no_rollback() -> None:
    storage = InMemoryStorage()
    storage.touch(heartbeat.heartbeat_path(T))
    create_marker(Unfenced(storage), T, DATA_LOG, MarkerType.CREATE)
    for path in (DATA_LOG, INDEX_LOG):
        storage.create(path, b"data")
    outcome = rollback_pending(Unfenced(storage), T, generator())
    assert outcome.rollback_instant is None
    assert set(outcome.deleted_files) == {DATA_LOG, INDEX_LOG}
    assert load_timeline(storage).instants == ()
    assert [info.path for info in storage.walk("") if T in info.path] == []


@pytest.mark.parametrize("search", [False, True])
def test_what_was_made_after_another_engine_took_the_markers_is_found_by_a_search(search: bool) -> None:
    storage = InMemoryStorage()
    commit_in_flight(storage)
    rollback_pending(Unfenced(storage), T, generator())
    late = (DATA_LOG, DATA_BASE, f"root-0_0-0-0_{T}.parquet")
    for path in (*late, INDEX_LOG):
        storage.create(path, b"data")
    outcome = rollback_pending(Unfenced(storage), T, generator(), search=search)
    left = {info.path for info in storage.walk("") if T in info.path}
    assert left == (set() if search else set(late))
    assert set(outcome.deleted_files) == {INDEX_LOG, *(late if search else ())}
    assert all(storage.read(path) == b"data" for path in KEPT)


def test_rolling_back_again_changes_nothing() -> None:
    storage = InMemoryStorage()
    commit_in_flight(storage)
    issue = generator()
    rollback_pending(Unfenced(storage), T, issue)
    before = [info.path for info in storage.walk("")]
    assert rollback_pending(Unfenced(storage), T, issue).rollback_instant is None
    assert [info.path for info in storage.walk("")] == before


def test_a_completed_or_foreign_instant_is_not_touched() -> None:
    storage = InMemoryStorage()
    commit_in_flight(storage)
    create_requested(Unfenced(storage), "20251231000009000", Action.COMPACTION, b"plan")
    create_requested(Unfenced(storage), "20251231000009001", Action.CLUSTERING, b"plan")
    before = [(info.path, info.mtime_ms) for info in storage.walk("")]
    for instant in (EARLIER, "20251231000009000", "20251231000009001", "../x"):
        with pytest.raises(TimelineConflictError):
            rollback_pending(Unfenced(storage), instant, generator())
    assert [(info.path, info.mtime_ms) for info in storage.walk("")] == before


def test_a_marker_that_names_another_instants_file_stops_everything() -> None:
    storage = InMemoryStorage()
    commit_in_flight(storage)
    create_marker(Unfenced(storage), T, KEPT[0], MarkerType.MERGE)
    with pytest.raises(CorruptFileError, match=EARLIER):
        rollback_pending(Unfenced(storage), T, generator())
    assert storage.read(KEPT[0]) == b"data"
    assert storage.read(DATA_LOG) == b"data"
    assert load_timeline(storage).contains(T)


def many_files(storage: InMemoryStorage) -> list[str]:
    """A dead write that made 200 files, and their paths."""
    create_inflight(Unfenced(storage), create_requested(Unfenced(storage), T, Action.COMMIT))
    paths = [f"p{n % 3}/f{n}_0-0-0_{T}.parquet" for n in range(200)]
    create_marker_list(Unfenced(storage), T, 0, [Marker(path, "CREATE") for path in paths])
    for path in paths:
        storage.create(path, b"data")
    return paths


def test_many_files_are_deleted_several_at_once() -> None:
    """A deletion waits for the disk, and the table's lock is held for all of them."""

    class Meeting(InMemoryStorage):
        """No file is deleted before a second deletion has begun."""

        def delete(self, path: str) -> bool:
            if path.endswith(".parquet"):
                begun.append(path)
                if len(begun) > 1:
                    met.set()
                assert met.wait(180)
            return super().delete(path)

    begun, met, storage = list[str](), threading.Event(), Meeting("/base")
    paths = many_files(storage)
    outcome = rollback_pending(Unfenced(storage), T, generator())
    assert sorted(outcome.deleted_files) == sorted(paths)
    assert [info.path for info in storage.walk("") if T in info.path] == []


def test_one_of_many_files_that_cannot_be_deleted_keeps_the_write_pending() -> None:
    class Refusing(InMemoryStorage):
        def delete(self, path: str) -> bool:
            if refuses and path == paths[100]:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return super().delete(path)

    refuses, storage = True, Refusing("/base")
    paths = many_files(storage)
    with pytest.raises(PermissionError):
        rollback_pending(Unfenced(storage), T, generator())
    timeline = load_timeline(storage)
    assert timeline.contains(T)
    assert timeline.completed(Action.ROLLBACK) == ()
    refuses = False
    rollback_pending(Unfenced(storage), T, generator())
    assert [info.path for info in storage.walk("") if T in info.path] == []


def test_a_coordinator_whose_term_is_over_rolls_nothing_back() -> None:
    storage = InMemoryStorage()
    commit_in_flight(storage)
    former = begin_term(storage, 1)
    begin_term(storage, 2)
    with pytest.raises(FencedOutError):
        rollback_pending(former, T, generator())
    assert storage.read(DATA_LOG) == b"data"
    assert load_timeline(storage).contains(T)


@pytest.mark.parametrize("metadata", ["absent", "inflight", "completed"])
@pytest.mark.parametrize("when", list(When))
def test_after_a_fault_at_any_write_the_rollback_is_finished_by_running_it_again(
    metadata: str, when: When
) -> None:
    for nth in itertools.count(1):
        storage = FaultyStorage(InMemoryStorage("/base"))
        commit_in_flight(storage, metadata=metadata)
        storage.fail("*", nth, when)
        issue = generator()
        try:
            rollback_pending(Unfenced(storage), T, issue)
        except InjectedFaultError:
            storage.crash()
            rollback_pending(Unfenced(storage), T, issue)
        else:
            break
        assert_no_trace_of_t(storage)
        assert len(load_timeline(storage).completed(Action.ROLLBACK)) == 1, f"fault at write {nth}"
    assert nth > 10


@pytest.mark.parametrize("metadata", ["absent", "inflight", "completed"])
def test_a_machine_crash_after_the_rollback_completed_brings_no_data_file_back(metadata: str) -> None:
    storage = FaultyStorage(InMemoryStorage("/base"))
    commit_in_flight(storage, metadata=metadata)
    rollback_pending(Unfenced(storage), T, generator())
    restored = storage.crash()
    # Markers and heartbeat may come back; they are cleaned again. Data and instants may not.
    assert all(path.startswith((".hoodie/.temp/", ".hoodie/.heartbeat/")) for path in restored)
    assert len(restored) == 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"f-0_0-0-0_{T}.parquet", True),
        (f"record-index-0000-0_1-2-3_{T}.hfile", True),
        (f".f-0_{T}.log.1_0-0-0", True),
        (f".f-0_{T}.log.12_3-4-5.cdc", True),
        (f"f-0_0-0-0_{EARLIER}.parquet", False),
        (f".f-0_{T}.log.1_0-0-0.crc", False),
        (f".f-0_{EARLIER}.log.1_0-0-0", False),
        (f"{T}.parquet", False),
        (f"f_{T}_0-0-0_{EARLIER}.parquet", False),
        (".hoodie_partition_metadata", False),
    ],
)
def test_only_files_named_by_the_instant_belong_to_it(name: str, expected: bool) -> None:
    assert belongs_to(name, T) is expected
