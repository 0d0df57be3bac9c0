"""What a timeline says about instants: states, completion, archival."""

from __future__ import annotations

import json

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.metadata_tables import write_archive
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, UnsupportedTableError
from tidemark.hudi_format.storage.base import Names
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, State, load_timeline
from tidemark.hudi_format.timeline.archived import ArchivedTimeline


def t(n: int) -> str:
    return f"20260101000000{n:03d}"


def timeline_with(*names: str, root: str = ".hoodie") -> InMemoryStorage:
    storage = InMemoryStorage()
    for name in names:
        storage.create(f"{root}/timeline/{name}", b"")
    return storage


def written(n: int, completion: int, word: str = "deltacommit") -> list[str]:
    return [f"{t(n)}.{word}.requested", f"{t(n)}.{word}.inflight", f"{t(n)}_{t(completion)}.{word}"]


def archive(storage: InMemoryStorage, rows: list[tuple[int, int, str]], root: str = ".hoodie") -> None:
    write_archive(storage, [(t(n), t(c), action, b"meta%d" % n) for n, c, action in rows], root)


def test_an_absent_folder_is_an_empty_timeline() -> None:
    timeline = load_timeline(InMemoryStorage())
    assert timeline.instants == ()
    assert timeline.first_active is None
    assert timeline.latest_completion() is None
    assert not timeline.is_committed(t(1))


def test_each_instant_shows_once_in_its_furthest_state() -> None:
    names = [*written(1, 3), f"{t(4)}.commit.requested", f"{t(4)}.inflight", f"{t(5)}.clean.requested"]
    timeline = load_timeline(timeline_with(*names, ".5.crc", ".x.tmp"))
    assert [(each.requested, each.action, each.state) for each in timeline.instants] == [
        (t(1), Action.DELTA_COMMIT, State.COMPLETED),
        (t(4), Action.COMMIT, State.INFLIGHT),
        (t(5), Action.CLEAN, State.REQUESTED),
    ]
    assert [each.requested for each in timeline.completed()] == [t(1)]
    assert [each.requested for each in timeline.pending()] == [t(4), t(5)]
    assert [each.requested for each in timeline.pending(Action.CLEAN)] == [t(5)]
    assert timeline.contains(t(5))
    assert not timeline.contains(t(2))


@pytest.mark.parametrize(
    ("word", "completed", "action"),
    [
        ("compaction", "commit", Action.COMPACTION),
        ("clustering", "replacecommit", Action.CLUSTERING),
        ("logcompaction", "deltacommit", Action.LOG_COMPACTION),
        ("commit", "commit", Action.COMMIT),
    ],
)
def test_completed_table_services_are_known_by_their_requested_file(
    word: str, completed: str, action: Action
) -> None:
    timeline = load_timeline(timeline_with(f"{t(1)}.{word}.requested", f"{t(1)}_{t(2)}.{completed}"))
    assert timeline.completed(action)[0].completion == t(2)
    assert timeline.completion_time(t(1)) == t(2)


def test_latest_completion_follows_completion_time_not_requested_time() -> None:
    timeline = load_timeline(timeline_with(*written(1, 9), *written(2, 5), *written(3, 4, "clean")))
    assert timeline.latest_completion() == t(9)
    assert timeline.latest_completion(Action.CLEAN) == t(4)
    assert sorted(timeline.times()) == sorted([t(1), t(9), t(2), t(5), t(3), t(4)])


def test_the_newest_completion_may_be_that_of_an_archived_instant() -> None:
    storage = timeline_with(*written(5, 7, "compaction"), *written(8, 9))
    archive(storage, [(2, 4, "commit"), (3, 20, "deltacommit")])
    timeline = load_timeline(storage)
    assert timeline.latest_completion() == t(9)
    assert timeline.newest_completion() == t(20)


def test_the_newest_completion_is_none_that_came_after_the_listing() -> None:
    storage = timeline_with(f"{t(3)}.deltacommit.requested", *written(5, 7), *written(8, 9))
    timeline = load_timeline(storage)
    archive(storage, [(2, 4, "commit"), (3, 20, "deltacommit"), (10, 30, "deltacommit")])
    assert timeline.newest_completion() == t(9)


def test_the_newest_completion_of_a_timeline_that_is_all_archived_is_the_archives() -> None:
    storage = InMemoryStorage()
    archive(storage, [(2, 4, "commit"), (1, 3, "deltacommit")])
    assert load_timeline(storage).newest_completion() == t(4)
    assert load_timeline(InMemoryStorage()).newest_completion() is None


def test_what_is_older_than_the_first_write_counts_as_committed() -> None:
    timeline = load_timeline(
        timeline_with(*written(3, 4, "clean"), *written(5, 6), f"{t(7)}.deltacommit.requested")
    )
    assert timeline.first_active == t(5)
    assert timeline.is_committed(t(4))
    assert timeline.is_archived(t(4))
    assert timeline.is_committed(t(5))
    assert not timeline.is_committed(t(6))
    assert not timeline.is_committed(t(7))
    assert not timeline.is_committed(t(8))


def test_a_pending_instant_is_not_committed_even_as_the_oldest_one() -> None:
    timeline = load_timeline(timeline_with(f"{t(3)}.deltacommit.requested", *written(5, 6)))
    assert not timeline.is_committed(t(3))
    assert timeline.is_committed(t(2))
    assert not timeline.is_committed(t(4))


def test_a_savepointed_instant_is_a_start_also_as_the_only_one() -> None:
    """So it is after a restore to it: what was archived before counts."""
    timeline = load_timeline(timeline_with(*written(3, 4), f"{t(3)}_{t(9)}.savepoint"))
    assert timeline.first_active == t(3)
    assert timeline.is_committed(t(2))
    assert not timeline.is_committed(t(5))


def test_a_savepoint_stands_beside_its_commit() -> None:
    names = [*written(1, 2), f"{t(1)}.savepoint.inflight", f"{t(1)}_{t(9)}.savepoint", *written(5, 6)]
    timeline = load_timeline(timeline_with(*names))
    assert timeline.first_active == t(1)
    found = timeline.find(t(1))
    assert found is not None
    assert (found.action, found.completion) == (Action.DELTA_COMMIT, t(2))
    assert timeline.completed(Action.SAVEPOINT)[0].completion == t(9)


def test_completion_times_of_archived_instants_come_from_the_archive() -> None:
    storage = timeline_with(*written(5, 6))
    archive(storage, [(1, 3, "deltacommit"), (2, 4, "commit")])
    timeline = load_timeline(storage)
    assert timeline.completion_time(t(1)) == t(3)
    assert timeline.completion_time(t(2)) == t(4)
    assert timeline.completion_time(t(0)) == t(0)
    assert timeline.completion_time(t(5)) == t(6)
    assert timeline.completion_time(t(8)) is None


def test_a_pending_instant_has_no_completion_time() -> None:
    assert load_timeline(timeline_with(f"{t(1)}.inflight")).completion_time(t(1)) is None


def test_the_archive_gives_metadata_in_order_and_by_range() -> None:
    storage = InMemoryStorage()
    archive(storage, [(2, 4, "commit"), (1, 3, "deltacommit"), (3, 5, "clean")], METADATA_TABLE_ROOT)
    archived = ArchivedTimeline(storage, METADATA_TABLE_ROOT)
    assert [
        (each.requested, each.action, each.metadata, each.plan) for each in archived.instants(t(1), t(2))
    ] == [
        (t(1), "deltacommit", b"meta1", b""),
        (t(2), "commit", b"meta2", b""),
    ]
    assert len(archived.completion_times()) == 3


def test_a_damaged_archive_is_reported_with_its_file() -> None:
    storage = InMemoryStorage()
    storage.create(".hoodie/timeline/history/_version_", b"1")
    storage.create(".hoodie/timeline/history/manifest_1", b"{}")
    with pytest.raises(CorruptFileError, match="manifest_1"):
        ArchivedTimeline(storage).completion_times()
    storage.replace(".hoodie/timeline/history/manifest_1", b'{"files":[{"fileName":"f.parquet"}]}')
    storage.create(".hoodie/timeline/history/f.parquet", b"not parquet")
    with pytest.raises(CorruptFileError, match=r"f\.parquet"):
        ArchivedTimeline(storage).completion_times()


def test_a_file_that_the_archive_names_and_that_is_not_there_is_damage_while_the_manifest_stays() -> None:
    """To read again would not help, for ever."""
    storage = InMemoryStorage()
    archive(storage, [(2, 4, "commit")])
    storage.replace(".hoodie/timeline/history/manifest_1", b'{"files":[{"fileName":"gone.parquet"}]}')
    with pytest.raises(CorruptFileError, match=r"manifest_1 name does not exist: .*gone\.parquet"):
        ArchivedTimeline(storage).completion_times()
    storage.replace(".hoodie/timeline/history/_version_", b"7")
    with pytest.raises(CorruptFileError, match=r"_version_ .*manifest_7"):
        ArchivedTimeline(storage).completion_times()


class Rewritten(InMemoryStorage):
    """Somebody archives all the while: at each look there is another manifest."""

    def read(self, path: str) -> bytes:
        found = super().read(path)
        if path.endswith("/_version_"):
            self.replace(path, b"%d" % (int(found) + 1))
        return found


def test_an_archive_that_is_rewritten_while_it_is_read_is_to_be_read_again() -> None:
    storage = Rewritten()
    storage.create(".hoodie/timeline/history/_version_", b"1")
    with pytest.raises(FileMissingError, match="keep changing"):
        ArchivedTimeline(storage).completion_times()


@pytest.mark.parametrize("version", [None, b"", b"\n", b"\x00\x00"])
def test_without_a_number_in_version_the_newest_manifest_counts(version: bytes | None) -> None:
    """An archiver that dies while it replaces `_version_` leaves none, or an empty one."""
    storage = InMemoryStorage()
    archive(storage, [(2, 4, "commit")])
    history = ".hoodie/timeline/history"
    storage.create(f"{history}/manifest_10", storage.read(f"{history}/manifest_1"))
    storage.replace(f"{history}/manifest_1", b'{"files":[]}')
    storage.create(f"{history}/manifest_11.tmp", b"")
    storage.delete(f"{history}/_version_")
    if version is not None:
        storage.create(f"{history}/_version_", version)
    assert ArchivedTimeline(storage).completion_times() == {t(2): t(4)}


def test_an_instant_that_two_archivers_wrote_is_there_once() -> None:
    storage = InMemoryStorage()
    archive(storage, [(2, 4, "commit"), (3, 5, "deltacommit"), (2, 4, "commit"), (3, 6, "deltacommit")])
    history = ".hoodie/timeline/history"
    storage.create(f"{history}/c_d_0.parquet", storage.read(f"{history}/{t(2)}_{t(3)}_0.parquet"))
    both = {"files": [{"fileName": f"{t(2)}_{t(3)}_0.parquet"}, {"fileName": "c_d_0.parquet"}]}
    storage.replace(f"{history}/manifest_1", json.dumps(both).encode())
    archived = ArchivedTimeline(storage)
    assert archived.completion_times() == {t(2): t(4), t(3): t(5)}
    assert [(each.requested, each.completion) for each in archived.instants()] == [(t(2), t(4)), (t(3), t(5))]


def test_what_lies_in_a_hole_behind_a_savepoint_is_what_the_archive_has() -> None:
    names = [*written(1, 2), f"{t(1)}_{t(9)}.savepoint", *written(6, 7)]
    storage = timeline_with(*names)
    archive(storage, [(3, 4, "deltacommit")])
    timeline = load_timeline(storage)
    assert (timeline.is_committed(t(3)), timeline.is_committed(t(5))) == (True, False)
    assert timeline.completion_time(t(3)) == t(4)


def test_of_two_completed_files_of_one_instant_the_earlier_completion_counts() -> None:
    """Two executors of one compaction leave them; Hudi takes either (tests/interop)."""
    names = (f"{t(1)}_{t(3)}.commit", f"{t(1)}.compaction.requested", f"{t(1)}_{t(2)}.commit")
    (found,) = load_timeline(timeline_with(*names)).instants
    assert (found.action, found.completion) == (Action.COMPACTION, t(2))


def test_a_timeline_of_an_older_table_version_is_refused() -> None:
    with pytest.raises(UnsupportedTableError):
        load_timeline(timeline_with(f"{t(1)}.commit"))


def test_the_metadata_tables_timeline_lies_under_its_own_root() -> None:
    storage = timeline_with("00000000000000000.deltacommit.requested", root=METADATA_TABLE_ROOT)
    assert load_timeline(storage).instants == ()
    assert load_timeline(storage, METADATA_TABLE_ROOT).first_active == "00000000000000000"


class _ListsLate(InMemoryStorage):
    """Shows a completed file one listing before the requested file, as a folder read during the writes
    can.
    """

    listings = 0

    def names(self, path: str) -> Names:
        self.listings += 1
        return [each for each in super().names(path) if self.listings > 1 or not each.endswith("requested")]


def test_an_instant_seen_without_its_requested_file_is_listed_again() -> None:
    storage = _ListsLate()
    storage.create(f".hoodie/timeline/{t(1)}.compaction.requested", b"")
    storage.create(f".hoodie/timeline/{t(1)}_{t(2)}.commit", b"")
    assert load_timeline(storage).instants[0].action is Action.COMPACTION
    assert storage.listings == 2
