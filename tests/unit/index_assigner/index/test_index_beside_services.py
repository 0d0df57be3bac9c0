"""Assigners beside compaction, clean and archival: slower answers at times, never wrong ones.

The model is a dictionary of the committed rows. Random sequences of own epochs, other writers' commits,
undone commits, compactions of the index, cleans (also early ones, and some that died in the middle),
archivals of both timelines, and restarts, of a process that was away for a moment or for long.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.unit.hudi_format.metadata_tables import archive_instants
from tests.unit.index_assigner.index_world import MANY, Assigner, Change, DataTable, load_runs, promoted
from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit, complete_delta_commit
from tidemark.hudi_format.metadata_table.index_life import LIFE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import BOOTSTRAP_INSTANT_PREFIX
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata
from tidemark.index_assigner.index.limits import IndexLimits

REBUILT = f"{BOOTSTRAP_INSTANT_PREFIX}012"
KEYS = [f"key-{last}" for last in "01234567\uff41\uff42\U0001f600\U0001f601"]  # UTF-16 has another order


def archive_table(table: DataTable, keep: int) -> None:
    """Archives data instants down to `keep` write instants, and those of the metadata table before them and
    before its newest compaction.
    """
    data = load_timeline(table.storage)
    writes = [each.requested for each in data.instants if each.action.is_write]
    if len(writes) <= keep:
        return
    begin = min([writes[len(writes) - keep], *(each.requested for each in data.pending())])
    archive_instants(table.storage, [e.requested for e in data.completed() if e.requested < begin])
    index = load_timeline(table.storage, METADATA_TABLE_ROOT)
    newest = max((e.requested for e in index.completed(Action.COMPACTION)), default="")
    gone = [e.requested for e in index.completed() if e.requested < min(begin, newest)]
    archive_instants(table.storage, gone, METADATA_TABLE_ROOT)


def superseded(table: DataTable) -> list[str]:
    """Paths of the record index's files that are in no current slice."""
    current = {name for slice_ in table.snapshot().slices["record_index"] for name in _names(slice_)}
    listed = table.storage.list(RECORD_INDEX_FOLDER)
    return [info.path for info in listed if parse_data_file(info.name) and info.name not in current]


def _names(slice_) -> list[str]:
    return [*([slice_.base_file] if slice_.base_file else []), *slice_.log_files]


def undo_newest(table: DataTable) -> bool:
    """What `rollback_to_instant` does to the newest commit; False where that is merged already."""
    newest = max(load_timeline(table.storage).completed(), key=lambda each: str(each.completion))
    index = load_timeline(table.storage, METADATA_TABLE_ROOT)
    merged = any(e.requested > newest.requested for e in index.completed(Action.COMPACTION))
    found = index.find(newest.requested)
    others = [e for e in load_timeline(table.storage).completed(Action.DELTA_COMMIT) if e != newest]
    if merged or found is None or not others or newest.action is not Action.DELTA_COMMIT:
        return False
    for root, each in ((METADATA_TABLE_ROOT, found), (DATA_ROOT, newest)):
        table.storage.delete(instant_path(each, root))
    rollback_pending(Unfenced(table.storage), newest.requested, table.times)
    return True


def rebuild_index(table: DataTable) -> None:
    """Drops the record index and builds it anew; the name of its base files is the same each time."""
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if parse_data_file(info.name):
            table.storage.delete(info.path)
    index = load_timeline(table.storage, METADATA_TABLE_ROOT)
    if not index.contains(REBUILT) and not index.is_archived(REBUILT):
        inflight = begin_delta_commit(Unfenced(table.storage), REBUILT)
        complete_delta_commit(Unfenced(table.storage), inflight, table.times.next(), CommitMetadata())
    table.write_bases(REBUILT, table.live)


class World:
    """One owner of all lanes at a time: the process of folder "a" or that of "b"."""

    shards, java_order = 3, False

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.folder = folder
        self.table = DataTable(shards=self.shards, java_order=self.java_order)
        # What another writer's newest commit changed: rows and index entries before it.
        self.before: tuple[dict[str, tuple[int, int]], dict[str, int]] | None = None
        self.value = self.offset = 0
        self.generation = self.stamps_from = 0
        self.committed: str | None = None
        self.uncommitted: dict[str, Change] = {}  # what is staged and counted, and not promoted
        small = self.draw.random() < 0.5
        self.limits = IndexLimits(3_000 if small else 1 << 20, 1 << 30)
        if self.draw.random() < 0.7:
            self.foreign_rows(self.draw.sample(KEYS, 6))
        self.start("a")

    def known(self) -> Known:
        seen = self.table.known()
        return Known(self.committed, seen.names, "0", self.generation, self.stamps_from)

    def start(self, name: str) -> None:
        self.name = name
        self.owner = Assigner(self.table, self.folder / name, self.limits)
        self.owner.open(self.known())

    def next_value(self) -> int:
        self.value += 1
        return self.value

    # ------------------------------------------------------------ what happens

    def epoch(self) -> None:
        """An own epoch; services may run between its steps."""
        changes: dict[str, Change] = {}
        rows: dict[str, tuple[int, int]] = {}
        gone: dict[str, int] = {}
        for key, found in self.owner.ask(self.draw.sample(KEYS, self.draw.randrange(1, 5))).items():
            group = self.draw.choice([1, 2, 3, None])
            if group is None and found.group is None:
                continue
            value = self.next_value()
            if group is None:
                gone[key] = value
                changes[key] = Change(None, value, deleted_from=found.group)
            else:
                rows[key] = (group, value)
                changes[key] = Change(group, value, updated=group == found.group)
        if not changes:
            return
        self.offset += 1
        self.uncommitted = changes
        self.owner.stage(changes)
        self.owner.index.counted(range(2), self.offset)
        self.services()
        completion = self.table.commit_rows(rows, gone)
        [own] = [e for e in load_timeline(self.table.storage).completed() if e.completion == completion]
        self.committed, self.before = own.requested, None
        self.services()
        if self.draw.random() < 0.1:
            self.restart()
        else:
            self.owner.index.promote(self.offset, completion, self.offset, own.requested)
        self.uncommitted = {}

    def services(self) -> None:
        for service in (self.compact, self.clean, self.archive):
            if self.draw.random() < 0.15:
                service()

    def foreign_rows(self, keys: list[str]) -> None:
        self.before = dict(self.table.rows), dict(self.table.live)
        gone = {key: self.next_value() for key in keys[:1] if key in self.table.rows}
        rows = {key: (self.draw.randrange(1, 4), self.next_value()) for key in keys[len(gone) :]}
        if rows or gone:
            self.table.commit_rows(rows, gone)

    def foreign(self) -> None:
        late = self.known()
        self.foreign_rows(self.draw.sample(KEYS, 3))
        self.owner.index.rewind()
        if self.draw.random() < 0.3:
            self.owner.open(late)
        self.owner.open(self.known())

    def undo(self) -> None:
        """Another writer's newest commit is taken back; the coordinator notices, and ends all stamps."""
        if self.before is None or not undo_newest(self.table):
            return
        (self.table.rows, self.table.live), self.before = self.before, None
        self.owner.index.rewind()
        self.generation += 1
        self.stamps_from = self.generation
        self.owner.open(self.known())

    def compact(self) -> None:
        self.table.compact_index(clean=False)

    def clean(self) -> None:
        old = superseded(self.table)
        share = self.draw.choice([1.0, 0.5])
        for path in old:
            if self.draw.random() < share:
                self.table.storage.delete(path)

    def archive(self) -> None:
        archive_table(self.table, self.draw.choice([1, 2, 5]))

    def rebuild(self) -> None:
        rebuild_index(self.table)
        self.before = None

    def restart(self) -> None:
        self.owner.close()
        self.start(self.draw.choice("ab"))

    def step(self) -> None:
        steps = (
            [self.epoch] * 8
            + [self.foreign, self.restart, self.clean, self.archive] * 2
            + [self.compact, self.undo, self.rebuild]
        )
        self.draw.choice(steps)()

    def check(self) -> None:
        for key, found in self.owner.ask(KEYS).items():
            row = self.table.rows.get(key)
            assert found.group == (row[0] if row else None), (key, found, row)
            if row is not None and found.ordering is not None:
                assert found.ordering == row[1] if found.exact else found.ordering <= row[1], (
                    key,
                    found,
                    row,
                )


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_with_services_are_answered_as_the_model_says(folder: Path, seed: int) -> None:
    world = World(folder, seed)
    for _ in range(25):
        world.step()
        if world.draw.random() < 0.4:
            world.check()
    world.check()
    world.owner.close()


def test_a_compaction_changes_nothing_for_an_open_shard(assigners) -> None:
    """It goes on with its base file as long as that is there, and reads no block again."""
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    read = one.index.stats()["blocks_read"]
    promoted(one, table, {"k0001": Change(3, 900), "new": Change(1, 901)}, 5)
    table.compact_index(clean=False)
    archive_table(table, 1)
    found = one.ask([*MANY, "new", "never"])
    assert one.index.stats()["blocks_read"] == read
    assert found["k0001"].group == 3
    for path in superseded(table):
        table.storage.delete(path)
    assert {key: each.group for key, each in one.ask([*MANY, "new", "never"]).items()} == {
        **{key: group for key, (group, _) in table.rows.items()},
        "never": None,
    }


def test_a_block_of_a_base_file_that_was_cleaned_early_is_read_from_the_next_one(assigners) -> None:
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table, limits=IndexLimits(1 << 20, 1 << 30)).open(table.known())
    promoted(one, table, {"new": Change(1, 901)}, 5)
    table.compact_index(clean=True)
    found = one.ask([*MANY, "new", "never"])
    assert {key: each.group for key, each in found.items()} == {
        **{key: group for key, (group, _) in table.rows.items()},
        "never": None,
    }
    assert found["new"].ordering == 901, "the shard caught up and was not filled anew"


@pytest.mark.parametrize("cleaned", [False, True])
def test_who_was_away_for_longer_than_the_timelines_go_back_catches_up_from_log_files(
    assigners, cleaned: bool
) -> None:
    """Filled anew it would not know ordering values; of that there is need only where a log file is gone."""
    table = DataTable(shards=1)
    one = assigners(table, "a").open(table.known())
    promoted(one, table, {"kept": Change(1, 7), "gone": Change(1, 1), "moved": Change(1, 1)}, 5)
    one.close()
    missed = table.commit_rows({"moved": (2, 8)}, {"gone": 9})
    table.compact_index(clean=False)
    for value in range(10, 20):
        table.commit_rows({f"other-{value}": (1, value)})
    archive_table(table, 3)
    assert str(load_timeline(table.storage).first_active) > missed
    if cleaned:
        for path in superseded(table):
            table.storage.delete(path)
    two = assigners(table, "a").open(table.known())
    found = two.ask(["kept", "gone", "moved", "other-11"])
    assert [found[key].group for key in ("kept", "gone", "moved", "other-11")] == [1, None, 2, 1]
    assert found["kept"].ordering == (None if cleaned else 7)


def test_an_archived_commit_that_completed_late_ends_exact_values_as_an_active_one_does(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It updated a row in place, which the index does not show, and its instant is older than the stamp."""
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    early = table.times.next()
    one = assigners(table).open(table.known())
    promoted(one, table, {"a": Change(1, 7, updated=True), "b": Change(1, 8)}, 5)
    assert one.ask(["a"])["a"].exact
    one.close()
    monkeypatch.setattr(table.times, "next", Reserved(table, early).next)
    table.commit_rows({"a": (1, 9)})
    archive_table(table, 1)
    two = assigners(table).open(table.known())
    found = two.ask(["a"])["a"]
    assert found.group == 1
    assert found.ordering is None or (found.ordering <= 9 and not found.exact)


class Reserved:
    """Times of a writer that took its first one early."""

    def __init__(self, table: DataTable, first: str) -> None:
        self._first: str | None = first
        self._later = table.times.next

    def next(self) -> str:
        first, self._first = self._first, None
        return first or self._later()


@pytest.mark.parametrize("is_open", [False, True])
def test_an_index_that_was_built_anew_under_the_same_name_counts_and_no_entry_of_the_former_one(
    assigners, is_open: bool
) -> None:
    """It may have been built because the former one was wrong."""
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    right = MANY["k0001"][0]
    table.live["k0001"] = wrong = 1 + right % 3
    rebuild_index(table)
    one = assigners(table, limits=IndexLimits(1 << 20, 1 << 30)).open(table.known())
    if not is_open:
        assert one.ask(["k0001"])["k0001"].group == wrong
        one.close()
    table.live["k0001"] = right
    table.live["k0001x"] = 3
    rebuild_index(table)
    two = one if is_open else assigners(table).open(table.known())
    found = two.ask(["k0001", "k0001x", "k0002"])
    assert [found[key].group for key in ("k0001", "k0001x", "k0002")] == [
        MANY["k0001"][0],
        3,
        MANY["k0002"][0],
    ]


def test_an_index_that_was_built_anew_and_compacted_before_anybody_looked_is_another_one(assigners) -> None:
    """Its base file has a newer time than the known one, as after a compaction of the known index."""
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    right = MANY["k0001"][0]
    table.live["k0001"] = wrong = 1 + right % 3
    rebuild_index(table)
    one = assigners(table, limits=IndexLimits(1 << 20, 1 << 30)).open(table.known())
    load_runs(one, ["k0001", "k0002"])
    assert one.ask(["k0001"])["k0001"].group == wrong
    one.close()
    table.live["k0001"] = right
    table.storage.replace(LIFE_PATH, b"commitTime=2 by another engine")
    rebuild_index(table)
    table.commit_rows({"new": (2, 1)})
    table.compact_index(clean=False)
    two = assigners(table).open(table.known())
    found = two.ask(["k0001", "k0002", "new"])
    assert [found[key].group for key in ("k0001", "k0002", "new")] == [right, MANY["k0002"][0], 2]


def test_a_shard_that_lost_its_newest_entries_with_the_power_does_not_miss_what_was_taken_back(
    assigners, folder: Path
) -> None:
    """RocksDB is back at an earlier stamp, and the commit after it is undone: it must be nowhere."""
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    table.compact_index(clean=True)
    one = assigners(table, "a").open(table.known())
    promoted(one, table, {"a": Change(2, 3)}, 5)
    one.close()
    shutil.copytree(folder / "a", folder / "lost")
    before = table.known()
    two = assigners(table, "a").open(before)
    table.commit_rows({"a": (3, 4), "b": (3, 4)})
    two.index.rewind()
    assert two.open(table.known()).ask(["b"])["b"].group == 3
    two.close()
    assert undo_newest(table)
    for name in ("lost", "a"):
        three = assigners(table, name).open(before)
        assert {key: each.group for key, each in three.ask(["a", "b"]).items()} == {"a": 2, "b": None}, name
