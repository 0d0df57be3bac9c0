"""What happens to a table, and to the lanes of its index, in any order, while an assigner answers.

* Own epochs, with look-ups between their steps (`epoch`, `services`); other writers' commits (`foreign`),
  also while nobody has noticed one yet (`foreign_unseen`).
* Commits of others are taken back, the newest one, or all since a savepoint with the compactions behind it
  (`undo`, `save`, `restore`), also while no process is there (`undo_while_down`).
* A compaction of the index is asked for and carried out later (`ask_compact`, `compact`); `clean`, `archive`,
  an index built anew (`rebuild`).
* One lane goes to another process and comes back (`lane_away`); all are opened with a snapshot from before
  services ran (`open_late`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.unit.index_assigner.index.test_index_beside_services import KEYS, World, superseded, undo_newest
from tests.unit.index_assigner.index_world import LANES, Found
from tests.unit.index_assigner.restores import Saved, write_restore
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.timeline import Instant, load_timeline

Row = tuple[int, int]
Rows = dict[str, Row]


class TableWorld(World):
    """``reached``: how often things happened that a world is meant to reach."""

    def __init__(self, folder: Path, seed: int, reached: Counter[str]) -> None:
        self.reached = reached
        # A compaction that was asked for, and what it will have; what a savepoint keeps.
        self.asked: tuple[Instant, dict[str, int]] | None = None
        self.saved: Saved | None = None
        super().__init__(folder, seed)

    # ------------------------------------------------------------ own epochs

    def epoch(self) -> None:
        before = self.committed
        super().epoch()
        if self.committed != before:
            # A restore that takes our own commits back ends the pipeline.
            self.saved = None

    def services(self) -> None:
        """… and look-ups, while an epoch is staged, or committed and not promoted; a load goes on."""
        self.table_services()
        if self.draw.random() < 0.3:
            self.ask_compact()
        if self.draw.random() < 0.5:
            for _ in range(self.draw.choice([1, 6])):
                self.check_uncommitted()
        if self.draw.random() < 0.2 and self.owner.index._runs.evict(self.owner.index._runs.disk.limit()):
            self.check_uncommitted()

    def table_services(self) -> None:
        """Compaction, clean and archival, each now and then."""
        super().services()

    def check_uncommitted(self) -> None:
        self.reached["asked before it is promoted"] += bool(self.uncommitted)
        for key, found in self.owner.ask(KEYS).items():
            row, change = self.table.rows.get(key), self.uncommitted.get(key)
            group = change.group if change is not None else row[0] if row else None
            assert found.group == group, (key, found, row, change)

    def forget_hot(self) -> None:
        self.owner.index._hot.drop_shards([ShardId(number) for number in range(self.table.shards)])

    # ------------------------------------------------------------ what others do

    def foreign_unseen(self) -> None:
        """Another writer commits, and may take that back, before the coordinator has noticed anything. Until
        the rewind look-ups go on, and loads and services do.
        """
        late, times = self.known(), [dict(self.table.rows)]
        self.foreign_rows(self.draw.sample(KEYS, 3))
        times.append(dict(self.table.rows))
        since = [0] * LANES
        if self.draw.random() < 0.2:
            # A claim: the lanes are opened with a snapshot that has the commit.
            self.owner.open(late)
            since = [1] * LANES
        for _ in range(self.draw.choice([1, 4, 8])):
            self.table_services()
            if self.draw.random() < 0.1:
                self.rebuild()
            if self.draw.random() < 0.25 and self.take_newest_back():
                self.reached["undone before anybody noticed"] += 1
                times.append(dict(self.table.rows))
            if self.draw.random() < 0.7:
                self.forget_hot()
            self.check_times(times, since)
        self.owner.index.rewind()
        if self.draw.random() < 0.3:
            self.owner.open(late)
        self.owner.open(self.known())

    def check_times(self, times: Sequence[Rows], since: list[int]) -> None:
        """Each lane answers as the table was at one of these times, all of its keys at the same one.

        ``since``: by lane the time at which it answered last, behind which it does not go back.
        """
        for lane, keys in self.owner.by_lane(KEYS).items():
            found = self.owner.ask(keys)
            fits = [
                at
                for at in range(since[lane], len(times))
                if all(is_answer(found[key], times[at].get(key)) for key in keys)
            ]
            assert fits, (lane, found, times, since)
            since[lane] = fits[0]
            self.reached["unseen commit shows"] += since[lane] > 0
            has_run = self.owner.index.stats()["run_shards"] > 0
            self.reached["run serves an older time"] += has_run and fits[-1] < len(times) - 1

    def take_newest_back(self) -> bool:
        """Another writer's newest commit is taken back: all stamps end once the coordinator sees it."""
        if self.before is None or self.asked is not None or not undo_newest(self.table):
            return False
        (self.table.rows, self.table.live), self.before = self.before, None
        self.generation += 1
        self.stamps_from = self.generation
        return True

    def undo(self) -> None:
        if self.asked is None:
            super().undo()

    def undo_while_down(self) -> None:
        if self.saved is not None:
            self.take_back()
        else:
            self.take_newest_back()

    def save(self) -> None:
        table = self.table
        if self.asked is None:
            files = {info.path: table.storage.read(info.path) for info in table.storage.walk("")}
            self.saved = Saved(files, dict(table.rows), dict(table.live), set(table.has_base))

    def restore(self) -> None:
        """Other writers' commits since the savepoint are taken back; the coordinator notices."""
        if self.saved is None:
            return
        self.take_back()
        self.owner.index.rewind()
        self.owner.open(self.known())

    def take_back(self) -> None:
        """The restore itself: the index's files are restored along, its compactions as well."""
        table, saved, self.saved, self.before, self.asked = self.table, self.saved, None, None, None
        assert saved is not None
        self.reached["restored"] += saved.rows != table.rows
        for info in table.storage.walk(""):
            if info.path not in saved.files:
                table.storage.delete(info.path)
        for path, data in saved.files.items():
            if table.storage.read(path) != data:
                table.storage.replace(path, data)
        table.rows, table.live, table.has_base = dict(saved.rows), dict(saved.live), set(saved.has_base)
        write_restore(table)
        self.generation += 1
        self.stamps_from = self.generation

    # ------------------------------------------------------------ services

    def ask_compact(self) -> None:
        if self.asked is None:
            self.asked = self.table.schedule_compaction(), dict(self.table.live)

    def compact(self) -> None:
        """The compaction that was asked for: it has what was committed before that."""
        self.ask_compact()
        assert self.asked is not None
        (inflight, content), self.asked = self.asked, None
        self.reached["compacted late"] += content != self.table.live
        self.table.finish_compaction(inflight, content)

    def rebuild(self) -> None:
        if self.asked is not None:
            self.compact()
        self.saved = None
        super().rebuild()

    def clean(self) -> None:
        kept = self.saved.files if self.saved is not None else {}
        share = self.draw.choice([1.0, 0.5])
        for path in superseded(self.table):
            if path not in kept and self.draw.random() < share:
                self.table.storage.delete(path)

    def archive(self) -> None:
        if self.saved is None:
            super().archive()

    # ------------------------------------------------------------ what happens to lanes

    def lane_away(self) -> None:
        """Another process has one lane, and commits an epoch with its keys; then the lane comes back."""
        lane, index = self.draw.randrange(LANES), self.owner.index
        index.close_lane(lane)
        theirs = self.owner.by_lane(KEYS)[lane]
        rest = [key for key in KEYS if key not in theirs]
        keys = self.draw.sample(theirs, min(3, len(theirs)))
        gone = {key: self.next_value() for key in keys[:1] if key in self.table.rows}
        rows = {key: (self.draw.randrange(1, 4), self.next_value()) for key in keys[len(gone) :]}
        if rows or gone:
            completion = self.table.commit_rows(rows, gone)
            [own] = [e for e in load_timeline(self.table.storage).completed() if e.completion == completion]
            self.committed, self.before, self.saved = own.requested, None, None
            self.offset += 1
            self.table_services()
            index.promote(self.offset, completion, self.offset, own.requested)
        for _ in range(self.draw.choice([1, 4])):
            for key, found in self.owner.ask(rest).items():
                row = self.table.rows.get(key)
                assert found.group == (row[0] if row else None), (key, found, row)
        index.open_lane(lane, self.table.snapshot(), self.known())
        self.reached["lane came back"] += bool(rows or gone)

    def open_late(self) -> None:
        """Lanes are opened with a snapshot from before a compaction and a clean."""
        snapshot = self.table.snapshot()
        self.owner.index.rewind()
        self.table_services()
        for lane in range(LANES):
            self.owner.index.open_lane(lane, snapshot, self.known())


def is_answer(found: Found, row: Row | None) -> bool:
    """Whether this is true of a key with this row: its file group, and the ordering value or a bound."""
    if found.group != (row[0] if row is not None else None):
        return False
    if row is None or found.ordering is None:
        return True
    return found.ordering == row[1] if found.exact else found.ordering <= row[1]
