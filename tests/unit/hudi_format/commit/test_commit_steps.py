"""Instants, markers and heartbeats: repeatable steps, and what refuses to happen."""

from __future__ import annotations

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term, publication_of
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
    FencedOutError,
    InvalidTransitionError,
    TimelineConflictError,
)
from tidemark.hudi_format.metadata_table.delta_commit import publish_files_log
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.publication.folders import TERMS
from tidemark.hudi_format.publication.port import Publisher
from tidemark.hudi_format.publication.posix import PosixAttempt
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, State, load_timeline

T, C, LATER = "20260101000000001", "20260101000000002", "20260101000000003"


@pytest.fixture
def storage() -> InMemoryStorage:
    return InMemoryStorage()


@pytest.fixture(params=["of a term", "of nobody"])
def by(request: pytest.FixtureRequest, storage: InMemoryStorage) -> Publisher:
    return begin_term(storage) if request.param == "of a term" else Unfenced(storage)


def test_a_commit_goes_through_its_three_files_and_each_step_is_repeatable(
    storage: InMemoryStorage, by: Publisher
) -> None:
    for _ in range(2):
        requested = create_requested(by, T, Action.COMMIT)
    for _ in range(2):
        inflight = create_inflight(by, requested, b"planned")
        assert not load_timeline(storage).is_committed(T)
    for _ in range(2):
        completed = complete(by, inflight, C, b"metadata")
    assert completed.state is State.COMPLETED
    assert [info.name for info in storage.list(".hoodie/timeline")] == [
        f"{T}.commit.requested",
        f"{T}.inflight",
        f"{T}_{C}.commit",
    ]
    assert completed_file(storage, T) == f"{T}_{C}.commit"
    assert storage.walk(TERMS) == []


def test_steps_of_the_metadata_table_go_to_its_own_timeline(storage: InMemoryStorage) -> None:
    requested = create_requested(Unfenced(storage), T, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    inflight = create_inflight(Unfenced(storage), requested, root=METADATA_TABLE_ROOT)
    complete(Unfenced(storage), inflight, C, b"m", root=METADATA_TABLE_ROOT)
    assert load_timeline(storage).instants == ()
    assert load_timeline(storage, METADATA_TABLE_ROOT).completion_time(T) == C


def test_another_plan_or_another_completion_time_is_a_conflict(storage: InMemoryStorage) -> None:
    requested = create_requested(Unfenced(storage), T, Action.COMPACTION, b"plan")
    with pytest.raises(TimelineConflictError):
        create_requested(Unfenced(storage), T, Action.COMPACTION, b"another plan")
    inflight = create_inflight(Unfenced(storage), requested)
    complete(Unfenced(storage), inflight, C, b"metadata")
    with pytest.raises(TimelineConflictError, match="completed already"):
        complete(Unfenced(storage), inflight, LATER, b"metadata")
    assert load_timeline(storage).completion_time(T) == C


def test_a_log_file_of_another_content_under_the_same_name_is_a_conflict(storage: InMemoryStorage) -> None:
    """Another writer made it: committed, it would list files that are not ours."""
    ours, theirs = FileChange("p", "a.parquet", 7), FileChange("p", "b.parquet", 7)
    for _ in range(2):
        publish_files_log(Unfenced(storage), T, [ours])
    with pytest.raises(TimelineConflictError, match="another content"):
        publish_files_log(Unfenced(storage), T, [theirs])


def test_what_another_version_wrote_at_the_same_name_is_done_whatever_its_bytes(
    storage: InMemoryStorage,
) -> None:
    requested = create_requested(Unfenced(storage), T, Action.DELTA_COMMIT)
    inflight = create_inflight(Unfenced(storage), requested, b"of one version")
    assert create_inflight(Unfenced(storage), requested, b"of another") == inflight
    done = complete(Unfenced(storage), inflight, C, b"of one version")
    assert complete(Unfenced(storage), inflight, C, b"of another") == done
    assert storage.read(instant_path(done)) == b"of one version"


def test_an_instant_that_was_rolled_back_can_not_be_continued(storage: InMemoryStorage) -> None:
    requested = create_requested(Unfenced(storage), T, Action.DELTA_COMMIT)
    inflight = create_inflight(Unfenced(storage), requested)
    delete_pending(storage, T, Action.DELTA_COMMIT)
    with pytest.raises(TimelineConflictError, match="rolled back"):
        complete(Unfenced(storage), inflight, C, b"metadata")
    with pytest.raises(TimelineConflictError, match="rolled back"):
        create_inflight(Unfenced(storage), requested)
    assert load_timeline(storage).instants == ()


def test_steps_can_not_be_skipped(storage: InMemoryStorage) -> None:
    requested = create_requested(Unfenced(storage), T, Action.COMMIT)
    with pytest.raises(InvalidTransitionError):
        complete(Unfenced(storage), requested, C, b"metadata")


def test_a_term_that_is_over_makes_nothing(storage: InMemoryStorage) -> None:
    term = begin_term(storage, 1)
    requested = create_requested(term, T, Action.COMMIT)
    inflight = create_inflight(term, requested)
    begin_term(storage, 2)
    with pytest.raises(FencedOutError):
        complete(term, inflight, C, b"metadata")
    with pytest.raises(FencedOutError):
        create_requested(term, LATER, Action.COMMIT)
    assert completed_file(storage, T) is None
    assert not load_timeline(storage).contains(LATER)


def test_markers_name_the_data_files_with_their_partition(storage: InMemoryStorage) -> None:
    for _ in range(2):
        create_marker(Unfenced(storage), T, f"a=1/b/f-0_0-0-0_{T}.parquet", MarkerType.MERGE)
        create_marker(Unfenced(storage), T, f".g-0_{T}.log.1_0-0-0", MarkerType.CREATE)
    create_marker(Unfenced(storage), LATER, f"f-0_0-0-0_{LATER}.parquet", MarkerType.CREATE)
    assert storage.read(f".hoodie/.temp/{T}/a=1/b/f-0_0-0-0_{T}.parquet.marker.MERGE") == b""
    assert list_markers(storage, T) == [
        Marker(f".g-0_{T}.log.1_0-0-0", "CREATE"),
        Marker(f"a=1/b/f-0_0-0-0_{T}.parquet", "MERGE"),
    ]
    assert delete_markers(storage, T) == 2
    assert list_markers(storage, T) == []
    assert len(list_markers(storage, LATER)) == 1


def test_a_list_of_markers_is_made_once_and_by_one_writer(storage: InMemoryStorage) -> None:
    term = begin_term(storage)
    attempt = PosixAttempt(storage, term.open_attempt(1, 1))
    ours = [Marker(f"b/g-0_0-0-0_{T}.parquet", "MERGE"), Marker(f"a/.f-0_{T}.log.1_0-0-0", "CREATE")]
    other = Marker(f"c/h-0_1-0-0_{T}.parquet", "CREATE")
    for _ in range(2):
        create_marker_list(attempt, T, 3, ours)
    create_marker_list(attempt, T, 11, [other])
    assert storage.read(f".hoodie/.temp/{T}/MARKERS.type") == b"TIMELINE_SERVER_BASED"
    assert list_markers(storage, T) == sorted([*ours, other])
    with pytest.raises(TimelineConflictError, match=r"MARKERS3 .* c/h-0"):
        create_marker_list(attempt, T, 3, [other])
    term.close_attempt(1, 1)
    with pytest.raises(FencedOutError):
        create_marker_list(attempt, T, 4, [other])
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
    term, publication = begin_term(storage, clock=clock), publication_of(storage)
    assert not heartbeat.is_alive(publication, T, clock.now_ms())
    heartbeat.begin(term, T)
    started = clock.now_ms()
    assert heartbeat.is_alive(publication, T, started + 120_000)
    assert not heartbeat.is_alive(publication, T, started + 120_001)
    clock.sleep_ms(100_000)
    heartbeat.keep(term, T)
    assert heartbeat.is_alive(publication, T, started + 200_000)
    assert storage.read(f".hoodie/.heartbeat/{T}") == b""
    assert heartbeat.stop(storage, T)
    assert not heartbeat.stop(storage, T)
    assert not heartbeat.is_alive(publication, T, started)


def test_a_heartbeat_begins_behind_the_fence_and_is_kept_only_while_it_is_there() -> None:
    clock = ManualClock()
    storage = InMemoryStorage(clock=clock)
    term, publication = begin_term(storage, clock=clock), publication_of(storage)
    heartbeat.begin(term, T)
    started = clock.now_ms()
    clock.sleep_ms(100_000)
    heartbeat.keep(term, T)
    assert heartbeat.is_alive(publication, T, started + 200_000)
    heartbeat.begin(term, T)
    heartbeat.stop(storage, T)
    heartbeat.keep(term, T)
    assert not heartbeat.is_alive(publication, T, clock.now_ms())
    begin_term(storage, 2)
    with pytest.raises(FencedOutError):
        heartbeat.begin(term, T)
    assert storage.walk("") == []


def test_a_marker_of_a_void_attempt_is_not_made() -> None:
    storage = InMemoryStorage()
    term = begin_term(storage)
    attempt = PosixAttempt(storage, term.open_attempt(1, 1))
    for _ in range(2):
        create_marker(attempt, T, "p/file", MarkerType.CREATE)
    assert [marker.data_path for marker in list_markers(storage, T)] == ["p/file"]
    term.close_attempt(1, 1)
    with pytest.raises(FencedOutError):
        create_marker(attempt, T, "p/late", MarkerType.CREATE)
    assert len(list_markers(storage, T)) == 1
