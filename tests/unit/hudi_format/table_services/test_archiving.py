"""The steps of an archival: whatever breaks off, and whoever goes on, the same instants count, at the same
times, with the same bytes, in our reading and by Hudi's rules.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import partial

import pyarrow.parquet as pq
import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.hudi_rules.table import DATA, HudiTable
from tidemark.hudi_format.errors import FileMissingError, LockLostError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import ArchivedName, ArchivePlan
from tidemark.hudi_format.table_services.archiving import (
    FILES_OF_A_LEVEL,
    Merge,
    delete_instants,
    delete_superseded,
    is_archived,
    merge_plan,
    newest_manifest,
    publish_merged,
    publish_rows,
    take_back,
    write_merged,
)
from tidemark.hudi_format.timeline import ArchivedInstant, ArchivedTimeline, load_timeline
from tidemark.hudi_format.timeline.archive_files import ArchiveFile, Manifest
from tidemark.hudi_format.timeline.archive_rows import encode_archive_file

HISTORY = f"{DATA}/history"


def t(n: int) -> str:
    return f"202601010000{n:05d}"


def files_of(n: int, action: str = "deltacommit", done: str | None = None) -> dict[str, bytes]:
    return {
        f"{t(n)}.{action}.requested": b"requested %d" % n,
        f"{t(n)}.{action}.inflight": b"" if action == "clustering" else b"inflight %d" % n,
        f"{t(n)}_{t(n + 5)}.{done or action}": b"completed %d" % n,
    }


KINDS = {
    10: ("deltacommit", "deltacommit"),
    20: ("compaction", "commit"),
    30: ("clean", "clean"),
    40: ("replacecommit", "replacecommit"),
    50: ("clustering", "replacecommit"),
    60: ("rollback", "rollback"),
    70: ("logcompaction", "deltacommit"),
}
PLAN = ArchivePlan(False, tuple(ArchivedName(t(n), t(n + 5), kind) for n, (kind, _) in KINDS.items()))
GOING = [ArchivedInstant(t(n), t(n + 5), done, b"completed %d" % n, b"") for n, (_, done) in KINDS.items()]
PLANS = {
    20: b"requested 20", 30: b"requested 30", 40: b"inflight 40", 50: b"requested 50", 70: b"requested 70",
}  # fmt: skip
ROWS = [row._replace(plan=PLANS.get(int(row.requested[-5:]), b"")) for row in GOING]


def table() -> InMemoryStorage:
    storage = InMemoryStorage()
    for n, (action, done) in KINDS.items():
        for name, content in files_of(n, action, done).items():
            storage.create(f"{DATA}/{name}", content)
    for name, content in (files_of(80) | {f"{t(90)}.deltacommit.requested": b""}).items():
        storage.create(f"{DATA}/{name}", content)
    return storage


def check(storage: Storage) -> None:
    """All that counted counts, and nothing else."""

    def names(folder: str) -> list[str]:
        return [info.name for info in storage.list(folder) if not info.is_dir]

    by_rules = HudiTable(names, storage.read, {}).timeline
    ours = load_timeline(storage)
    for n in (*KINDS, 80):
        assert by_rules.counts(t(n))
        assert by_rules.completion(t(n)) == t(n + 5)
        assert ours.is_committed(t(n))
        assert ours.completion_time(t(n)) == t(n + 5)
    for n in (85, 90, 99):
        assert not by_rules.counts(t(n))
        assert not ours.is_committed(t(n))
    assert [each.requested for each in ours.pending()] == [t(90)]


def archived(storage: Storage) -> list[ArchivedInstant]:
    return ArchivedTimeline(storage).instants()


class Turn:
    """One coordinator's turn, with the lock."""

    def __init__(self, storage: FaultyStorage, number: int) -> None:
        self.storage = storage
        self.term = begin_term(storage, number)
        self.term.lock.acquire(0, ends_epoch=True)
        self.hits: list[str] = []

    def delete(self, path: str) -> bool:
        self.term.lock.check()
        return self.storage.delete(path)

    def archive(self, plan: ArchivePlan = PLAN, hit: Callable[[str], None] | None = None) -> None:
        hit = hit or self.hits.append
        publish_rows(self.term, plan, self.term.lock.lease(), self.delete, hit)
        assert delete_instants(self.storage, plan, self.delete, hit, lambda: False)

    def merge(self, merge: Merge) -> bool:
        sink = io.BytesIO()
        write_merged(self.storage, merge, sink)
        ticket = self.term.prepare(merge.path, sink.getvalue())
        return publish_merged(self.term, merge, ticket, self.term.lock.lease(), self.delete, self.hits.append)


def names_of(storage: Storage, folder: str = DATA) -> list[str]:
    return sorted(info.name for info in storage.list(folder) if not info.is_dir)


def test_archived_instants_keep_their_bytes_and_only_the_others_stay_active() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    turn.archive()
    assert archived(storage) == ROWS
    assert names_of(storage) == sorted([*files_of(80), f"{t(90)}.deltacommit.requested"])
    assert names_of(storage, HISTORY) == [f"{t(10)}_{t(70)}_0.parquet", "_version_", "manifest_1"]
    assert storage.read(f"{HISTORY}/_version_") == b"1"
    check(storage)


def test_a_file_has_hudis_schema_and_footer() -> None:
    file = pq.ParquetFile(io.BytesIO(encode_archive_file(ROWS)))
    columns = ["instantTime (String)", "completionTime (String)", "action (String)", "metadata", "plan"]
    lines = [line.strip() for line in str(file.schema).splitlines()]
    assert [line for line in lines if "field_id" in line][1:] == [
        *(f"optional binary field_id=-1 {column};" for column in columns),
        "required int32 field_id=-1 version;",
    ]
    assert sorted(file.metadata.metadata) == [b"parquet.avro.schema", b"writer.model.name"]
    assert file.read().column("plan").to_pylist()[:2] == [None, b"requested 20"]
    assert set(file.read().column("version").to_pylist()) == {1}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_breaks_off_the_next_one_goes_on(seed: int) -> None:
    """Operations fail before or after they took effect, and the machine forgets deletions that were not
    synced.
    """
    chance, storage = random.Random(seed), FaultyStorage(table())
    for number in range(1, 6):
        storage.fail("*", chance.randrange(1, 45), chance.choice(list(When)))
        try:
            Turn(storage, number).archive()
        except InjectedFaultError:
            storage.fail_no_more()
            storage.crash(lambda _: chance.random() < 0.5)
            check(storage)
    storage.fail_no_more()
    Turn(storage, 9).archive()
    check(storage)
    assert archived(storage) == ROWS
    assert load_timeline(storage).first_active == t(80)


@pytest.mark.parametrize(
    "step",
    [
        archiving.AFTER_ARCHIVE_FILE,
        archiving.AFTER_ARCHIVE_MANIFEST,
        archiving.AFTER_ARCHIVE_VERSION,
        archiving.AFTER_PENDING_FILES_DELETED,
        archiving.AFTER_COMPLETED_FILE_DELETED,
    ],
)
def test_every_step_is_named_and_may_be_the_last_of_a_coordinator(step: str) -> None:
    storage = FaultyStorage(table())

    def dies(at: str) -> None:
        if at == step:
            raise InjectedFaultError(at)

    with pytest.raises(InjectedFaultError, match=step):
        Turn(storage, 1).archive(hit=dies)
    check(storage)
    Turn(storage, 2).archive()
    check(storage)
    assert archived(storage) == ROWS


def test_another_archivers_work_is_not_undone() -> None:
    """Before our manifest counts, Hudi's archiver takes the first instants, and cleans our file away."""
    storage = FaultyStorage(table())

    def dies(at: str) -> None:
        raise InjectedFaultError(at)

    with pytest.raises(InjectedFaultError):
        Turn(storage, 1).archive(hit=dies)
    other = ArchivePlan(False, PLAN.instants[:3])
    Turn(storage, 2).archive(other)
    turn = Turn(storage, 3)
    with pytest.raises(FileMissingError):
        turn.archive()
    take_back(storage, PLAN, turn.delete)
    assert f"{t(10)}_{t(70)}_0.parquet" not in names_of(storage, HISTORY)
    check(storage)
    take_back(storage, other, turn.delete)
    assert is_archived(storage, other)
    assert not is_archived(storage, PLAN)


def test_an_instant_that_the_archive_lacks_is_not_deleted() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    publish_rows(
        turn.term,
        ArchivePlan(False, PLAN.instants[:2]),
        turn.term.lock.lease(),
        turn.delete,
        turn.hits.append,
    )
    assert delete_instants(storage, PLAN, turn.delete, turn.hits.append, lambda: False)
    assert load_timeline(storage).first_active == t(40)
    check(storage)


def test_a_damaged_file_and_a_manifest_that_do_not_count_are_replaced() -> None:
    storage = FaultyStorage(table())
    storage.create(f"{HISTORY}/{PLAN.file_name}", b"half of a fi")
    storage.create(f"{HISTORY}/manifest_1", b'{"files":[]}')
    storage.create(f"{HISTORY}/_version_", b"1")
    storage.create(f"{HISTORY}/manifest_2", b"half of a manif")
    Turn(storage, 1).archive()
    check(storage)
    assert newest_manifest(storage, ".hoodie").version == 2


def test_deletion_stops_when_its_time_is_over_and_goes_on() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    publish_rows(turn.term, PLAN, turn.term.lock.lease(), turn.delete, turn.hits.append)
    calls = 0
    while True:
        calls += 1
        left = iter([False, False, False])
        if delete_instants(storage, PLAN, turn.delete, turn.hits.append, partial(next, left, True)):
            break
        check(storage)
    assert calls == 7
    assert load_timeline(storage).first_active == t(80)


def test_without_the_lock_nothing_is_deleted() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    publish_rows(turn.term, PLAN, turn.term.lock.lease(), turn.delete, turn.hits.append)
    storage.delete_tree(".hoodie/lock")
    before = names_of(storage)
    with pytest.raises(LockLostError):
        delete_instants(storage, PLAN, turn.delete, turn.hits.append, lambda: False)
    assert names_of(storage) == before


# ------------------------------------------------------------ levels


def many_files(count: int, each: int = 4) -> FaultyStorage:
    """An archive of so many files of level 0."""
    storage = FaultyStorage(InMemoryStorage())
    for number in range(count):
        instants = []
        for n in range(number * each, (number + 1) * each):
            for name, content in files_of(n).items():
                storage.create(f"{DATA}/{name}", content)
            instants.append(ArchivedName(t(n), t(n + 5), "deltacommit"))
        Turn(storage, number + 1).archive(ArchivePlan(False, tuple(instants)))
    return storage


def test_ten_files_of_a_level_become_one_of_the_next() -> None:
    storage = many_files(FILES_OF_A_LEVEL - 1)
    assert merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie") is None
    storage = many_files(FILES_OF_A_LEVEL + 1)
    before = archived(storage)
    merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
    assert merge is not None
    assert merge.name == f"{t(0)}_{t(39)}_1.parquet"
    turn = Turn(storage, 50)
    assert turn.merge(merge)
    assert turn.merge(merge)  # again: it is there
    manifest = newest_manifest(storage, ".hoodie")
    assert [file.name for file in manifest.files] == [f"{t(40)}_{t(43)}_0.parquet", merge.name]
    assert manifest.files[1].size == len(storage.read(merge.path))
    assert archived(storage) == before
    assert merge_plan(manifest, ".hoodie") is None


def test_only_the_newest_manifests_and_what_they_name_stays() -> None:
    storage = many_files(FILES_OF_A_LEVEL)
    merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
    assert merge is not None
    turn = Turn(storage, 50)
    turn.merge(merge)
    before = archived(storage)
    storage.create(f"{HISTORY}/{t(98)}_{t(99)}_0.parquet", b"an archiver that died left it")
    steps = 0
    while True:
        left = iter([False, False])
        if delete_superseded(storage, ".hoodie", turn.delete, partial(next, left, True)):
            break
        steps += 1
        assert archived(storage) == before
    assert steps > 3
    names = names_of(storage, HISTORY)
    assert [name for name in names if name.startswith("manifest")] == [
        "manifest_10",
        "manifest_11",
        "manifest_9",
    ]
    # The two older manifests name the files of level 0: their readers may still open them.
    assert len([name for name in names if name.endswith("_0.parquet")]) == FILES_OF_A_LEVEL
    assert f"{t(98)}_{t(99)}_0.parquet" not in names


def test_files_that_another_archiver_merged_are_not_merged_again() -> None:
    storage = many_files(FILES_OF_A_LEVEL)
    merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
    assert merge is not None
    other = Merge(".hoodie", merge.files[:5])
    assert Turn(storage, 50).merge(other)
    assert not Turn(storage, 51).merge(merge)
    assert len(archived(storage)) == 40


def test_a_merged_file_has_each_row_once_in_order_whatever_its_files_repeat() -> None:
    storage = InMemoryStorage()
    rows = [ArchivedInstant(t(n), t(n + 5), "deltacommit", b"m%d" % n, b"") for n in range(0, 60, 2)]
    for part in (rows[:12], rows[6:20], rows[20:]):
        name = f"{part[0].requested}_{part[-1].requested}_0.parquet"
        storage.create(f"{HISTORY}/{name}", encode_archive_file(part))
    files = [ArchiveFile(name, 1) for name in storage.names(HISTORY)]
    sink = io.BytesIO()
    write_merged(storage, Merge(".hoodie", tuple(files)), sink)
    merged = pq.ParquetFile(io.BytesIO(sink.getvalue())).read()
    assert merged.column("instantTime").to_pylist() == [row.requested for row in rows]
    assert merged.column("metadata").to_pylist() == [row.metadata for row in rows]


def test_files_that_are_too_large_together_are_not_merged() -> None:
    def of(*megabytes: int) -> list[str] | None:
        files = [ArchiveFile(f"{t(n)}_{t(n)}_2.parquet", size << 20) for n, size in enumerate(megabytes)]
        merge = merge_plan(Manifest(1, tuple(files)), ".hoodie")
        return [str(file.size // (1 << 20)) for file in merge.files if file.size] if merge else None

    assert of(*[1] * 9) is None
    assert of(*[1] * 12) == ["1"] * 10
    assert of(1100, 1200, *[1] * 8) == ["1"] * 8
    assert of(400, 500, 300, *[1] * 8) == ["400", "500", "300"]
    assert of(*[1100] * 10) is None
