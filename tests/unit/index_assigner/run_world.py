"""What happens to an assigner with run files, in any order, beside what happens to its table (`table_world`).

* Run files: a load that is killed at any write (`load`, `warm`), ranges and files that leave (`evict`), a
  full disk (`disk`).
* The process: `kill`, also with counted entries (`kill_counted`); loss of power, with a restore before it is
  back (`power`), and of RocksDB (`damage`); a changed byte (`flip`, `flip_open`); a former version in between
  (`former_version`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.unit.index_assigner.index.test_index_beside_services import KEYS
from tests.unit.index_assigner.index_world import TTL_MS, Assigner, index_rows, tombstone_rows
from tests.unit.index_assigner.run_faults import KilledError, RunFaults
from tests.unit.index_assigner.table_world import TableWorld
from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.model import ShardId
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


class RunWorld(TableWorld):
    """``reached``: as in `TableWorld`. ``tight``: the disk has room for some key ranges, not for others."""

    def __init__(
        self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch, reached: Counter[str], tight: bool
    ) -> None:
        self._patched = monkeypatch
        self.faults: RunFaults | None = None
        # In half of the worlds every page is given back after each look-up.
        self.mapped_bytes = 1 << 30 if seed // 2 % 2 else 1
        # In half of them base files are sorted as those of Hudi on Spark.
        self.java_order = seed // 4 % 2 == 1
        self.tight = tight
        # One shard has enough keys for several ranges.
        self.shards = 1 if tight else 3
        super().__init__(folder, seed, reached)
        if tight:
            self.foreign_rows(KEYS)
            self.compact()
            self.owner.index.rewind()
            self.owner.open(self.known())

    def start(self, name: str, known: Known | None = None) -> None:
        """``known``: what the ledger says when the lanes are claimed; by default all that there is."""
        if self.faults is None:
            self.faults = RunFaults(self.draw)
            self.faults.watch(self._patched)
        self.name = name
        object.__setattr__(self.limits, "mapped_bytes", self.mapped_bytes)
        self.owner = Assigner(self.table, self.folder / name, self.limits, make_rocks=self.faults.rocks)
        self.owner.open(known or self.known())

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

    def epoch(self) -> None:
        self.before_epoch = self.known()
        super().epoch()

    def services(self) -> None:
        """… and the process may end, while entries are counted that no promoted epoch has."""
        super().services()
        if self.uncommitted and self.draw.random() < 0.15:
            self.kill_counted()

    def kill_counted(self) -> None:
        """The next owner loads the counted entries again. It does not know yet whether their epoch is
        committed: then the snapshot shows a commit that is unseen for it.
        """
        assert self.faults is not None
        self.killed()
        if self.draw.random() < 0.3:
            self.faults.lose_power(self.home)
        self.start(self.draw.choice("aab"), self.before_epoch)
        shards, expires_ms = self.table.shards, self.owner.clock.now_ms() + TTL_MS
        for lane, keys in self.owner.by_lane(list(self.uncommitted)).items():
            mine = {key: self.uncommitted[key] for key in keys}
            rows = [index_rows(mine, shards)], [tombstone_rows(mine, shards, expires_ms)]
            self.owner.index.load_counted(lane, self.offset, *rows)
        self.reached["counted entries loaded again"] += 1
        self.reached["counted entries over a change run"] += self.owner.index.stats()["change_run_shards"] > 0
        self.check_uncommitted()

    def power(self) -> None:
        assert self.faults is not None
        self.killed()
        self.faults.lose_power(self.home)
        if self.draw.random() < 0.3:
            self.undo_while_down()
        self.start(self.name)

    def damage(self) -> None:
        """RocksDB is lost, and a new one is begun beside the run files of the former."""
        assert self.faults is not None
        self.killed()
        self.faults.lose_rocks(self.home)
        self.start(self.name)

    # ------------------------------------------------------------ what happens to files

    def flip(self) -> None:
        assert self.faults is not None
        self.owner.close()
        if self.faults.flip(self.home):
            self.reached["flipped"] += 1
        self.start(self.name)

    def flip_open(self) -> None:
        """A byte of a mapped image changes. Its pages are given back, and checked before their next use."""
        assert self.faults is not None
        runs = self.owner.index._runs
        mapped = [*(copy.run for copy in runs._copies._copies.values()), *runs.changes._runs.values()]
        images = {run.name: run._directory_start for run in mapped}
        if self.mapped_bytes == 1 and self.faults.flip(self.home, images):
            before, lacks_some = self.found_damaged(), self.part_loaded()
            self.forget_hot()
            self.check()
            is_found = self.found_damaged() > before
            self.reached["flipped while open"] += is_found
            self.reached["flipped while open, ranges missing"] += is_found and lacks_some

    def found_damaged(self) -> float:
        """Run files that this process found damaged."""
        stats = self.owner.index.stats()
        return stats["runs_damaged"] + stats["change_runs_lost"]

    def evict(self) -> None:
        """Some ranges go, or a run; the process may end before or after."""
        assert self.faults is not None
        self.faults.kill_in = self.draw.choice([None, 0, 1])
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
                self.forget_hot()
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
        if self.draw.random() < 0.5:
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
        faults = 2 * [
            *(self.kill, self.power, self.flip, self.flip_open),
            *(self.evict, self.former_version, self.disk),
        ]
        steps = [self.epoch] * 6 + [self.load] * 10 + [self.foreign, self.clean, self.foreign_unseen] * 2
        if self.tight:
            steps = steps[4:] + 4 * [self.evict]
            faults = [self.kill, self.power, self.power, self.flip, *3 * [self.flip_open]]
        of_table = [self.compact, self.compact, self.ask_compact, self.archive, self.undo, self.rebuild]
        of_lanes = [self.lane_away, self.open_late, self.warm, self.damage]
        saved = [*3 * [self.restore], self.foreign] if self.saved is not None else 2 * [self.save]
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
        self.reached["shards dropped"] += stats["shards_dropped"] > 0

    def disk(self) -> None:
        """The disk is full, which the next promotion finds, or has room for some, or for all again."""
        size = self.draw.choice([1, 1, 4_000, *[1 << 30] * 4])
        object.__setattr__(self.limits, "disk_bytes", size)
        if size == 1:
            self.epoch()

    def disk_for(self, share: float) -> None:
        """The disk has room for so much more of the greatest copy of a base file."""
        index = self.owner.index
        used = index._rocks.disk_bytes() + index._runs.disk.run_bytes
        shards = [shard for shard in index._held.openings() if self.is_there(shard)]
        more = share * max(map(copy_bytes, shards), default=0)
        object.__setattr__(self.limits, "disk_bytes", max(round((used + more) * 4 / 3), 1))
