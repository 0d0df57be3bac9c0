"""What happens to a table, its index and an assigner with run files, in any order.

* The table: own epochs and other writers' commits, with look-ups, loads and evictions between the steps of an
  epoch (`epoch`, `services`, `foreign`); commits of others are taken back, the newest one, or all since a
  savepoint with the compactions behind it (`undo`, `save`, `restore`); a compaction of the index is asked for
  and carried out later (`ask_compact`, `compact`); `clean`, `archive`, an index built anew (`rebuild`).
* Run files: a load that is killed at any write (`load`, `warm`), ranges and files that leave (`evict`), a
  full disk (`disk`).
* The process: `kill`, loss of power, with a restore before it is back (`power`), of RocksDB (`damage`),
  a changed byte (`flip`), a former version in between (`former_version`).
* Lanes: one goes to another process and comes back (`lane_away`); all are opened with a snapshot from before
  services ran (`open_late`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.unit.index_assigner.index.test_index_beside_services import KEYS, World, superseded, undo_newest
from tests.unit.index_assigner.index_world import LANES, Assigner
from tests.unit.index_assigner.restores import Saved, write_restore
from tests.unit.index_assigner.run_faults import KilledError, RunFaults
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.timeline import Instant, load_timeline
from tidemark.index_assigner.index.copies import copy_bytes
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.rocks_layout import (
    CHANGED_PREFIX,
    COVERAGE_PREFIX,
    ENTRY,
    STATE_PREFIX,
    ShardRecord,
    composite_keys,
    pack,
    shard_bytes,
)
from tidemark.index_assigner.index.shown_timeline import ShownTimeline


class RunWorld(World):
    """``reached``: how often things happened that a world is meant to reach. ``tight``: the disk has room for
    some key ranges and not for others.
    """

    def __init__(
        self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch, reached: Counter[str], tight: bool
    ) -> None:
        self.reached = reached
        self._patched = monkeypatch
        self.faults: RunFaults | None = None
        # A compaction that was asked for, and what it will have; what a savepoint keeps.
        self.asked: tuple[Instant, dict[str, int]] | None = None
        self.saved: Saved | None = None
        # In half of the worlds every page is given back after each look-up.
        self.mapped_bytes = 1 << 30 if seed // 2 % 2 else 1
        self.tight = tight
        # One shard has enough keys for several ranges.
        self.shards = 1 if tight else 3
        super().__init__(folder, seed)
        if tight:
            self.foreign_rows(KEYS)
            self.compact()
            self.owner.index.rewind()
            self.owner.open(self.known())

    def start(self, name: str) -> None:
        if self.faults is None:
            self.faults = RunFaults(self.draw)
            self.faults.watch(self._patched)
        self.name = name
        object.__setattr__(self.limits, "mapped_bytes", self.mapped_bytes)
        self.owner = Assigner(self.table, self.folder / name, self.limits, make_rocks=self.faults.rocks)
        self.owner.open(self.known())

    @property
    def home(self) -> Path:
        return self.folder / self.name

    # ------------------------------------------------------------ what happens to the process

    def killed(self) -> None:
        """A process ends without a word: what it holds is gone, files stay as they are."""
        assert self.faults is not None
        parts = {part: part.read_bytes() for part in self.home.glob("runs/*.part")}
        self.faults.kill_in = None
        self.owner.close()
        for part, data in parts.items():
            part.write_bytes(data)

    def kill(self) -> None:
        self.killed()
        self.start(self.draw.choice("aab"))

    def power(self) -> None:
        assert self.faults is not None
        self.killed()
        self.faults.lose_power(self.home)
        if self.draw.random() < 0.3:
            self.undo_while_down()
        self.start(self.name)

    def undo_while_down(self) -> None:
        before = self.before
        if self.saved is not None:
            self.take_back()
        elif before is not None and self.asked is None and undo_newest(self.table):
            (self.table.rows, self.table.live), self.before = before, None
            self.generation += 1
            self.stamps_from = self.generation

    def damage(self) -> None:
        """RocksDB is lost, and a new one is begun beside the run files of the former."""
        assert self.faults is not None
        self.killed()
        self.faults.lose_rocks(self.home)
        self.start(self.name)

    # ------------------------------------------------------------ what happens to the table

    def epoch(self) -> None:
        before = self.committed
        super().epoch()
        if self.committed != before:
            # A restore that takes our own commits back ends the pipeline.
            self.saved = None

    def services(self) -> None:
        """… and look-ups, while an epoch is staged, or committed and not promoted; a load goes on."""
        super().services()
        if self.draw.random() < 0.3:
            self.ask_compact()
        if self.draw.random() < 0.5:
            for _ in range(self.draw.choice([1, 6])):
                self.check_uncommitted()
        if self.draw.random() < 0.2 and self.owner.index._runs.evict(self.owner.index._runs.disk.limit()):
            self.check_uncommitted()

    def check_uncommitted(self) -> None:
        self.reached["asked before it is promoted"] += bool(self.uncommitted)
        for key, found in self.owner.ask(KEYS).items():
            row, change = self.table.rows.get(key), self.uncommitted.get(key)
            group = change.group if change is not None else row[0] if row else None
            assert found.group == group, (key, found, row, change)

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

    def undo(self) -> None:
        if self.asked is None:
            super().undo()

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
            super().services()
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
        super().services()
        for lane in range(LANES):
            self.owner.index.open_lane(lane, snapshot, self.known())

    def flip(self) -> None:
        assert self.faults is not None
        self.owner.close()
        if self.faults.flip(self.home):
            self.reached["flipped"] += 1
        self.start(self.name)

    def evict(self) -> None:
        """Some ranges go, or a run; the process may end before or after."""
        assert self.faults is not None
        self.faults.kill_in = self.draw.choice([None, None, 0, 1])
        try:
            if self.owner.index._runs.evict(self.owner.index._runs.disk.limit()):
                self.reached["evicted"] += 1
        except KilledError:
            self.reached["killed while evicting"] += 1
            self.killed()
            self.start(self.name)
        finally:
            self.faults.kill_in = None

    def load(self) -> None:
        """Look-ups until nothing more is loaded; the process may end at one of the load's steps."""
        assert self.faults is not None
        if self.tight:
            self.disk_for(self.draw.uniform(0.3, 1.2))
        if self.draw.random() < 0.4:
            self.faults.kill_in = self.draw.randrange(8)
        try:
            for _ in range(self.draw.choice([2, 40])):
                self.owner.index._hot.drop_shards([ShardId(n) for n in range(self.table.shards)])
                self.owner.ask(KEYS)
        except KilledError:
            self.reached["killed while loading"] += 1
            self.killed()
            if self.draw.random() < 0.3:
                self.faults.lose_power(self.home)
            self.start(self.name)
        finally:
            self.faults.kill_in = None

    def warm(self) -> None:
        """`tidemark index warm`, by the process that has the lanes, or while none runs; it may be killed."""
        assert self.faults is not None
        if self.draw.random() < 0.5:
            self.owner.close()
            self.start(self.name)
        if self.draw.random() < 0.3:
            self.faults.kill_in = self.draw.randrange(8)
        try:
            index = self.owner.index
            progress = index.warm(start=True)
            while progress.left:
                index.load_on()
                progress = index.warm(start=False)
            self.reached["warmed"] += progress.loaded == progress.shards and progress.entries > 0
        except KilledError:
            self.reached["killed while warming"] += 1
            self.killed()
            self.start(self.name)
        finally:
            self.faults.kill_in = None

    def part_loaded(self) -> bool:
        copies = self.owner.index._runs._copies
        return any(not copy.run.directory.held.all() for copy in copies._copies.values())

    def former_version(self) -> None:
        """A former version served this folder: it took all blocks over, and its bit map says so."""
        rocks = self.owner.rocks
        for lane in list(self.owner.index._held.values()):
            for number, shard in list(lane.shards.items()):
                if shard.change:
                    self.former_fills_anew(number)
                    continue
                base = shard.snapshot.base if self.is_there(shard) else None
                if base is None:
                    continue
                content = base.read_all()
                keys = composite_keys(content.keys, np.full(len(content), number, np.int32))
                places = self.owner.index._store.find_in_base(shard, content.keys)
                rows = np.zeros(len(places), ENTRY)
                rows["location"] = self.owner.index._store._stored.to_stored(places)
                new = [at for at, value in enumerate(rocks.get_many(keys)) if value is None]
                values = pack(rows)
                rocks.write([([keys[at] for at in new], [values[at] for at in new])])
                self.former_record(number, base.block_count)
        self.owner.close()
        self.start(self.name)

    def former_fills_anew(self, number: ShardId) -> None:
        """It finds no record where it looks, and knows nothing of the one that names a change run."""
        key = CHANGED_PREFIX + shard_bytes(number)
        unknown, snapshot = self.owner.rocks.get(key) or b"", self.table.snapshot()
        shown = ShownTimeline(snapshot.data_timeline, self.known())
        self.owner.index._store._take_over(number, snapshot.shard(number), snapshot.index_life, shown, 0)
        self.owner.rocks.write([([key], [unknown])])
        self.former_record(number, 0)
        self.reached["former version beside a change run"] += 1

    def is_there(self, shard: OpenShard) -> bool:
        try:
            shard.snapshot.check_base()
        except FileMissingError:
            return False
        return True

    def former_record(self, number: ShardId, blocks: int) -> None:
        rocks = self.owner.rocks
        key = shard_bytes(number)
        record = msgspec.json.decode(rocks.get(STATE_PREFIX + key) or b"", type=ShardRecord)
        names = [name for name in record.__struct_fields__ if name not in ("life", "change", "written")]
        fields = {name: getattr(record, name) for name in names}
        bits = np.packbits(np.ones(blocks, np.bool_)).tobytes()
        value = msgspec.json.encode({**fields, "blocks": blocks})
        rocks.write([([STATE_PREFIX + key, COVERAGE_PREFIX + key], [value, bits])])

    def step(self) -> None:
        faults = 2 * [self.kill, self.power, self.flip, self.evict, self.former_version, self.disk]
        steps = [self.epoch] * 6 + [self.load] * 10 + [self.foreign, self.clean] * 2
        if self.tight:
            steps, faults = steps[4:] + 4 * [self.evict], [self.kill, self.power, self.power, self.flip]
        of_table = [self.compact, self.compact, self.ask_compact, self.archive, self.undo, self.rebuild]
        of_lanes = [self.lane_away, self.open_late, self.warm, self.damage]
        saved = [self.restore, self.foreign] if self.saved is not None else [self.save]
        self.draw.choice([*steps, *of_table, *of_lanes, *saved, *faults])()
        stats = self.owner.index.stats()
        self.reached["run serves"] += stats["run_shards"] > 0
        copies = self.owner.index._runs._copies
        self.reached["part serves"] += not all(map(copies.is_whole, copies.shards()))
        self.reached["part loaded"] += self.part_loaded()
        self.reached["ranges evicted"] += stats["run_entries_evicted"] > 0
        self.reached["given back"] += stats["run_mapped_given_back"] > 0
        self.reached["damaged"] += stats["runs_damaged"] > 0
        self.reached["taken over"] += stats["take_overs"] > 0
        self.reached["changes lost"] += stats["change_runs_lost"] > 0

    def disk(self) -> None:
        """The disk is full, or has room for some, or for all again."""
        size = self.draw.choice([1, 4_000, *[1 << 30] * 4])
        object.__setattr__(self.limits, "disk_bytes", size)

    def disk_for(self, share: float) -> None:
        """The disk has room for so much more of the greatest copy of a base file."""
        index = self.owner.index
        used = index._rocks.disk_bytes() + index._runs.disk.run_bytes
        shards = [shard for shard in index._held.openings() if self.is_there(shard)]
        more = share * max(map(copy_bytes, shards), default=0)
        object.__setattr__(self.limits, "disk_bytes", max(round((used + more) * 4 / 3), 1))
