"""What a process keeps of timelines: a listing parses what is new, and the archive is read where the answer
is.
"""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.timeline import Timeline, load_timeline
from tidemark.hudi_format.timeline.archive_files import KeptArchive
from tidemark.hudi_format.timeline.archived import ArchivedTimeline

FOLDER = ".hoodie/timeline"
HISTORY = f"{FOLDER}/history"


def t(n: int) -> str:
    return f"20260101{n // 3_600_000:02d}{n // 60_000 % 60:02d}{n // 1_000 % 60:02d}{n % 1_000:03d}"


class Counting(InMemoryStorage):
    """Notes which files are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open_input(self, path: str) -> pa.NativeFile:
        self.opened.append(path.rpartition("/")[2])
        return super().open_input(path)


Row = tuple[int, int, str]


def lsm_file(storage: InMemoryStorage, rows: list[Row], level: int = 0, group: int = 100) -> str:
    table = pa.table(
        {
            "instantTime": [t(requested) for requested, _, _ in rows],
            "completionTime": [t(completion) for _, completion, _ in rows],
            "action": [action for _, _, action in rows],
            "metadata": pa.array([b"m%d" % requested for requested, _, _ in rows], pa.binary()),
            "plan": pa.array([None for _ in rows], pa.binary()),
            "version": pa.array([1 for _ in rows], pa.int32()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group)
    name = f"{t(rows[0][0])}_{t(rows[-1][0])}_{level}.parquet"
    storage.replace(f"{HISTORY}/{name}", sink.getvalue())
    return name


def manifest(storage: InMemoryStorage, version: int, names: list[str]) -> None:
    content = json.dumps({"files": [{"fileName": name, "fileLen": 1} for name in names]}).encode()
    storage.replace(f"{HISTORY}/manifest_{version}", content)
    storage.replace(f"{HISTORY}/_version_", b"%d" % version)


def deltas(first: int, last: int, step: int = 10) -> list[Row]:
    return [(n, n + 5, "deltacommit") for n in range(first, last, step)]


def archive_of(*files: list[Row]) -> Counting:
    storage = Counting()
    manifest(storage, 1, [lsm_file(storage, rows) for rows in files])
    return storage


@pytest.mark.parametrize("seed", range(20))
def test_a_kept_listing_is_what_a_new_one_would_be(seed: int) -> None:
    """Names come and go in any order, as other writers, archivers and rollbacks make them."""
    chance, storage = random.Random(seed), InMemoryStorage()
    there: set[str] = set()
    words = [("deltacommit", "deltacommit"), ("compaction", "commit"), ("clean", "clean"), ("x y", "no one")]
    for _ in range(30):
        for _ in range(chance.randrange(4)):
            n, (word, done) = chance.randrange(12), chance.choice(words)
            name = chance.choice(
                [
                    f"{t(n)}.{word}.requested",
                    f"{t(n)}.{word}.inflight",
                    f"{t(n)}_{t(n + chance.randrange(1, 9))}.{done}",
                    f"{t(n)}.inflight",
                    f"{t(n)}_{t(n + 20)}.savepoint",
                ]
            )
            if name in there:
                storage.delete(f"{FOLDER}/{name}")
                there.remove(name)
            else:
                storage.create(f"{FOLDER}/{name}", b"")
                there.add(name)
        anew = InMemoryStorage()
        for name in there:
            anew.create(f"{FOLDER}/{name}", b"")
        kept, new = load_timeline(storage), load_timeline(anew)
        assert kept == new
        assert kept.completed() == tuple(each for each in new.instants if each.is_completed)
        assert kept.first_active == Timeline(new.instants).first_active


def test_an_unknown_action_is_refused_at_every_listing() -> None:
    storage = InMemoryStorage()
    storage.create(f"{FOLDER}/{t(1)}.deltacommit.requested", b"")
    storage.create(f"{FOLDER}/{t(2)}.wonder.requested", b"")
    for _ in range(2):
        with pytest.raises(UnsupportedTableError, match="wonder"):
            load_timeline(storage)
    storage.delete(f"{FOLDER}/{t(2)}.wonder.requested")
    assert [each.requested for each in load_timeline(storage).instants] == [t(1)]


def test_one_instants_time_opens_the_file_that_has_its_range_and_keeps_it() -> None:
    storage = archive_of(deltas(0, 1000), deltas(1000, 2000), deltas(2000, 3000))
    storage.create(f"{FOLDER}/{t(5000)}.deltacommit.requested", b"")
    for _ in range(2):
        timeline = load_timeline(storage)
        assert timeline.completion_time(t(1500)) == t(1505)
        assert timeline.completion_time(t(1501)) == t(1501)  # nobody has it: the archive lacks it
    # Its statistics, its rows.
    assert storage.opened == [f"{t(1000)}_{t(1990)}_0.parquet"] * 2


def test_a_merged_file_is_read_anew_and_the_others_are_not() -> None:
    storage = archive_of(deltas(0, 1000), deltas(1000, 2000), deltas(2000, 3000))
    everything = load_timeline(storage).archive
    assert everything is not None
    before = everything.identities()
    assert len(before) == 300
    merged = lsm_file(storage, deltas(0, 2000), 1)
    manifest(storage, 2, [merged, f"{t(2000)}_{t(2990)}_0.parquet"])
    for first in (0, 1000):
        storage.delete(f"{HISTORY}/{t(first)}_{t(first + 990)}_0.parquet")
    storage.opened.clear()
    again = load_timeline(storage).archive
    assert again is not None
    assert again.identities() == before
    assert set(storage.opened) == {merged}


def test_a_file_that_was_merged_since_its_manifest_was_read_is_found_in_the_newer_one() -> None:
    storage = archive_of(deltas(0, 1000), deltas(1000, 2000))
    archive = ArchivedTimeline(storage)
    assert archive.completion_time(t(10)) == t(15)
    manifest(storage, 2, [lsm_file(storage, deltas(0, 2000), 1)])
    storage.delete(f"{HISTORY}/{t(1000)}_{t(1990)}_0.parquet")
    assert archive.completion_time(t(1500)) == t(1505)


def test_the_newest_completion_opens_only_the_files_of_the_last_day() -> None:
    day = 24 * 60 * 60 * 1000
    storage = Counting()
    old = [(f"{y}0101000000000", f"{y}0101000000005") for y in range(2000, 2020)]
    names = []
    for requested, completion in old:
        table = pa.table({"instantTime": [requested], "completionTime": [completion], "action": ["commit"]})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        names.append(f"{requested}_{requested}_1.parquet")
        storage.create(f"{HISTORY}/{names[-1]}", sink.getvalue())
    late = lsm_file(storage, [(day // 2, day // 2 + 7000, "deltacommit"), (day // 2 + 10, day - 1, "commit")])
    manifest(storage, 1, [*names, late])
    storage.create(f"{FOLDER}/{t(day // 2 + 20)}.deltacommit.requested", b"")
    storage.create(f"{FOLDER}/{t(day // 2 + 20)}_{t(day // 2 + 30)}.deltacommit", b"")
    assert load_timeline(storage).newest_completion() == t(day - 1)
    assert set(storage.opened) == {late}


def test_replacecommits_are_looked_up_once_in_each_file() -> None:
    storage = archive_of(
        [*deltas(0, 100), (105, 110, "replacecommit"), *deltas(110, 200)], deltas(1000, 2000)
    )
    for _ in range(2):
        archive = load_timeline(storage).archive
        assert archive is not None
        assert archive.identities_of("replacecommit") == {f"{t(105)}_{t(110)}.replacecommit"}
    # The second file's statistics say that it has none. Of the first one the statistics of actions are read,
    # then those of times, then rows.
    assert sorted(storage.opened) == [f"{t(0)}_{t(190)}_0.parquet"] * 3 + [f"{t(1000)}_{t(1990)}_0.parquet"]


def test_a_file_may_have_an_action_whether_or_not_its_row_groups_are_known() -> None:
    storage = archive_of([*deltas(0, 100), (105, 110, "replacecommit")], deltas(1000, 2000))
    kept = KeptArchive()
    files = kept.manifest(storage, HISTORY).files
    for _ in range(2):
        assert [kept.may_have(storage, HISTORY, file, "replacecommit") for file in files] == [True, False]
        for file in files:
            kept.groups(storage, HISTORY, file)


def test_completions_are_found_whatever_was_requested_when() -> None:
    storage = archive_of([(10, 900, "commit"), (20, 25, "deltacommit")], [(30, 35, "deltacommit")])
    archive = ArchivedTimeline(storage)
    assert archive.completed_between(t(26), t(900)) == [(t(30), t(35)), (t(10), t(900))]
    assert archive.completed_between(t(36), t(899)) == []
    assert archive.has_completed_after(t(899))
    assert not archive.has_completed_after(t(900))
    assert archive.has_completed_after("0")
    assert not ArchivedTimeline(InMemoryStorage()).has_completed_after("0")


def test_only_the_row_groups_of_a_range_are_read() -> None:
    storage = Counting()
    manifest(storage, 1, [lsm_file(storage, deltas(0, 10_000), group=10)])
    archive = ArchivedTimeline(storage)
    assert [each.metadata for each in archive.instants(t(5000), t(5020))] == [b"m5000", b"m5010", b"m5020"]
    assert len(storage.opened) == 2
    assert archive.completion_times(t(95), t(120)) == {t(100): t(105), t(110): t(115), t(120): t(125)}


def test_single_instants_are_read_where_they_are() -> None:
    storage = archive_of(deltas(0, 1000), deltas(1000, 2000), [*deltas(2000, 3000), (2995, 2999, "commit")])
    archive = ArchivedTimeline(storage)
    found = archive.instants_at({t(10), t(2995), t(1500 + 1)})
    assert [(each.action, each.metadata) for each in found] == [("deltacommit", b"m10"), ("commit", b"m2995")]
    # Of the file between them the times are read, and no contents.
    assert storage.opened.count(f"{t(1000)}_{t(1990)}_0.parquet") == 2
    assert archive.instants_at(set()) == []
