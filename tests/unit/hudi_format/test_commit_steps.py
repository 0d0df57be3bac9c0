"""Instants, markers and heartbeats: repeatable steps, and what refuses to happen."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import ManualClock
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import (
    complete,
    completed_file,
    create_inflight,
    create_requested,
    delete_pending,
    instant_path,
)
from tidemark.hudi_format.commit.markers import (
    Marker,
    MarkerType,
    create_marker,
    create_marker_list,
    delete_markers,
    list_markers,
)
from tidemark.hudi_format.errors import (
    CorruptFileError,
    InvalidTransitionError,
    StagingGoneError,
    TimelineConflictError,
)
from tidemark.hudi_format.metadata_table.delta_commit import publish_files_log
from tidemark.hudi_format.metadata_table.files_partition import FileChange
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, State, load_timeline

T, C, LATER = "20260101000000001", "20260101000000002", "20260101000000003"
STAGING = ".hoodie/.aux/tidemark/staging/term-5"


@pytest.fixture(params=[None, STAGING])
def staging(request: pytest.FixtureRequest) -> str | None:
    chosen: str | None = request.param
    return chosen


@pytest.fixture
def storage() -> InMemoryStorage:
    storage = InMemoryStorage()
    storage.make_dir(STAGING)
    return storage


def test_a_commit_goes_through_its_three_files_and_each_step_is_repeatable(
    storage: InMemoryStorage, staging: str | None
) -> None:
    for _ in range(2):
        requested = create_requested(storage, T, Action.COMMIT, staging_dir=staging)
    for _ in range(2):
        inflight = create_inflight(storage, requested, b"planned", staging_dir=staging)
        assert not load_timeline(storage).is_committed(T)
    for _ in range(2):
        completed = complete(storage, inflight, C, b"metadata", staging_dir=staging)
    assert completed.state is State.COMPLETED
    assert [info.name for info in storage.list(".hoodie/timeline")] == [
        f"{T}.commit.requested",
        f"{T}.inflight",
        f"{T}_{C}.commit",
    ]
    assert completed_file(storage, T) == f"{T}_{C}.commit"
    assert storage.list(STAGING) == []


def test_steps_of_the_metadata_table_go_to_its_own_timeline(storage: InMemoryStorage) -> None:
    requested = create_requested(storage, T, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    inflight = create_inflight(storage, requested, root=METADATA_TABLE_ROOT)
    complete(storage, inflight, C, b"m", root=METADATA_TABLE_ROOT)
    assert load_timeline(storage).instants == ()
    assert load_timeline(storage, METADATA_TABLE_ROOT).completion_time(T) == C


def test_another_plan_or_another_completion_time_is_a_conflict(storage: InMemoryStorage) -> None:
    requested = create_requested(storage, T, Action.COMPACTION, b"plan")
    with pytest.raises(TimelineConflictError):
        create_requested(storage, T, Action.COMPACTION, b"another plan")
    inflight = create_inflight(storage, requested)
    complete(storage, inflight, C, b"metadata")
    with pytest.raises(TimelineConflictError, match="completed already"):
        complete(storage, inflight, LATER, b"metadata")
    assert load_timeline(storage).completion_time(T) == C


def test_a_log_file_of_another_content_under_the_same_name_is_a_conflict(storage: InMemoryStorage) -> None:
    """Another writer made it: committed, it would list files that are not ours."""
    ours, theirs = FileChange("p", "a.parquet", 7), FileChange("p", "b.parquet", 7)
    for _ in range(2):
        publish_files_log(storage, T, [ours], STAGING)
    with pytest.raises(TimelineConflictError, match="another content"):
        publish_files_log(storage, T, [theirs], STAGING)


def test_what_another_version_wrote_at_the_same_name_is_done_whatever_its_bytes(
    storage: InMemoryStorage,
) -> None:
    requested = create_requested(storage, T, Action.DELTA_COMMIT)
    inflight = create_inflight(storage, requested, b"of one version")
    assert create_inflight(storage, requested, b"of another") == inflight
    done = complete(storage, inflight, C, b"of one version")
    assert complete(storage, inflight, C, b"of another") == done
    assert storage.read(instant_path(done)) == b"of one version"


def test_an_instant_that_was_rolled_back_can_not_be_continued(storage: InMemoryStorage) -> None:
    requested = create_requested(storage, T, Action.DELTA_COMMIT)
    inflight = create_inflight(storage, requested)
    delete_pending(storage, T, Action.DELTA_COMMIT)
    with pytest.raises(TimelineConflictError, match="rolled back"):
        complete(storage, inflight, C, b"metadata")
    with pytest.raises(TimelineConflictError, match="rolled back"):
        create_inflight(storage, requested)
    assert load_timeline(storage).instants == ()


def test_steps_can_not_be_skipped(storage: InMemoryStorage) -> None:
    requested = create_requested(storage, T, Action.COMMIT)
    with pytest.raises(InvalidTransitionError):
        complete(storage, requested, C, b"metadata")


def test_a_term_whose_folder_is_gone_makes_nothing(storage: InMemoryStorage) -> None:
    requested = create_requested(storage, T, Action.COMMIT, staging_dir=STAGING)
    inflight = create_inflight(storage, requested, staging_dir=STAGING)
    storage.rename(STAGING, f"{STAGING}-over")
    with pytest.raises(StagingGoneError):
        complete(storage, inflight, C, b"metadata", staging_dir=STAGING)
    with pytest.raises(StagingGoneError):
        create_requested(storage, LATER, Action.COMMIT, staging_dir=STAGING)
    assert completed_file(storage, T) is None
    assert not load_timeline(storage).contains(LATER)


def test_markers_name_the_data_files_with_their_partition(storage: InMemoryStorage) -> None:
    for _ in range(2):
        create_marker(storage, T, f"a=1/b/f-0_0-0-0_{T}.parquet", MarkerType.MERGE)
        create_marker(storage, T, f".g-0_{T}.log.1_0-0-0", MarkerType.CREATE)
    create_marker(storage, LATER, f"f-0_0-0-0_{LATER}.parquet", MarkerType.CREATE)
    assert storage.read(f".hoodie/.temp/{T}/a=1/b/f-0_0-0-0_{T}.parquet.marker.MERGE") == b""
    assert list_markers(storage, T) == [
        Marker(f".g-0_{T}.log.1_0-0-0", "CREATE"),
        Marker(f"a=1/b/f-0_0-0-0_{T}.parquet", "MERGE"),
    ]
    assert delete_markers(storage, T) == 2
    assert list_markers(storage, T) == []
    assert len(list_markers(storage, LATER)) == 1


def test_a_list_of_markers_is_made_once_and_by_one_writer(storage: InMemoryStorage) -> None:
    storage.make_dir("attempt")
    ours = [Marker(f"b/g-0_0-0-0_{T}.parquet", "MERGE"), Marker(f"a/.f-0_{T}.log.1_0-0-0", "CREATE")]
    other = Marker(f"c/h-0_1-0-0_{T}.parquet", "CREATE")
    for _ in range(2):
        create_marker_list(storage, T, 3, ours, staging_dir="attempt")
    create_marker_list(storage, T, 11, [other], staging_dir="attempt")
    assert storage.read(f".hoodie/.temp/{T}/MARKERS.type") == b"TIMELINE_SERVER_BASED"
    assert list_markers(storage, T) == sorted([*ours, other])
    with pytest.raises(TimelineConflictError, match=r"MARKERS3 .* c/h-0"):
        create_marker_list(storage, T, 3, [other], staging_dir="attempt")
    storage.rename("attempt", "void")
    with pytest.raises(StagingGoneError):
        create_marker_list(storage, T, 4, [other], staging_dir="attempt")
    assert delete_markers(storage, T) == 3


def test_markers_of_sparks_timeline_server_are_read_too(storage: InMemoryStorage) -> None:
    folder = f".hoodie/.temp/{T}"
    storage.create(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.create(f"{folder}/MARKERS0", b"p/x.parquet.marker.CREATE\np/y.parquet.marker.MERGE\n")
    storage.create(f"{folder}/MARKERS7", b"q/z.parquet.marker.CREATE\n")
    storage.create(f"{folder}/.MARKERS0.crc", b"crc")
    assert [each.data_path for each in list_markers(storage, T)] == [
        "p/x.parquet",
        "p/y.parquet",
        "q/z.parquet",
    ]


def test_a_stray_file_among_markers_is_reported(storage: InMemoryStorage) -> None:
    storage.create(f".hoodie/.temp/{T}/p/x.parquet", b"")
    with pytest.raises(CorruptFileError, match=r"x\.parquet"):
        list_markers(storage, T)


def test_a_heartbeat_is_alive_for_two_intervals() -> None:
    clock = ManualClock()
    storage = InMemoryStorage(clock=clock)
    assert not heartbeat.is_alive(storage, T, clock.now_ms())
    heartbeat.beat(storage, T)
    started = clock.now_ms()
    assert heartbeat.is_alive(storage, T, started + 120_000)
    assert not heartbeat.is_alive(storage, T, started + 120_001)
    clock.sleep_ms(100_000)
    heartbeat.beat(storage, T)
    assert heartbeat.is_alive(storage, T, started + 200_000)
    assert storage.read(f".hoodie/.heartbeat/{T}") == b""
    assert heartbeat.stop(storage, T)
    assert not heartbeat.stop(storage, T)
    assert not heartbeat.is_alive(storage, T, started)


def test_a_heartbeat_begins_behind_the_fence_and_is_kept_only_while_it_is_there() -> None:
    clock = ManualClock()
    storage = InMemoryStorage(clock=clock)
    storage.make_dir("term")
    heartbeat.begin(storage, T, "term")
    started = clock.now_ms()
    clock.sleep_ms(100_000)
    heartbeat.keep(storage, T)
    assert heartbeat.is_alive(storage, T, started + 200_000)
    heartbeat.begin(storage, T, "term")
    heartbeat.stop(storage, T)
    heartbeat.keep(storage, T)
    assert not heartbeat.is_alive(storage, T, clock.now_ms())
    storage.rename("term", "ended")
    with pytest.raises(StagingGoneError):
        heartbeat.begin(storage, T, "term")
    assert storage.walk("") == []


def test_a_marker_of_a_void_attempt_is_not_made() -> None:
    storage = InMemoryStorage()
    storage.make_dir("attempt")
    for _ in range(2):
        create_marker(storage, T, "p/file", MarkerType.CREATE, staging_dir="attempt")
    assert [marker.data_path for marker in list_markers(storage, T)] == ["p/file"]
    storage.rename("attempt", "void")
    with pytest.raises(StagingGoneError):
        create_marker(storage, T, "p/late", MarkerType.CREATE, staging_dir="attempt")
    assert len(list_markers(storage, T)) == 1
