"""Run files never change an answer: random sequences of what happens to a table, its index and an assigner,
with loads that end at any step, losses of power, changed bytes, deleted runs and folders of former versions.

The operations are those of an exact model, which found the rules that run files keep to
(docs/adr/0014-run-files.md); here they happen to the cache itself. `make index-campaign` runs for minutes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.unit.index_assigner.index.test_index_beside_services import KEYS, World, undo_newest
from tests.unit.index_assigner.index_world import Assigner
from tests.unit.index_assigner.run_faults import KilledError, RunFaults
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.hfile import reader as hfile_reader
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import change_tier, copies, key_ranges, run_tier, waited_loads
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
from tidemark.index_assigner.runs import loading

CAMPAIGN_S = float(os.environ.get("TIDEMARK_INDEX_CAMPAIGN_S", "0"))
WORLDS, TIGHT_WORLDS = 15, 5


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
        if before is not None and undo_newest(self.table):
            (self.table.rows, self.table.live), self.before = before, None
            self.generation += 1
            self.stamps_from = self.generation

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
            if self.owner.index._runs.evict():
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
        self.draw.choice(
            [*steps, self.compact, self.compact, self.archive, self.undo, self.rebuild, *faults]
        )()
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
        used = index._rocks.disk_bytes() + index._runs.disk_bytes
        shards = [shard for shard in index._held.openings() if self.is_there(shard)]
        more = share * max(map(copy_bytes, shards), default=0)
        object.__setattr__(self.limits, "disk_bytes", max(round((used + more) * 4 / 3), 1))


def play(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch, reached: Counter[str], steps: int, tight: bool
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(hfile_writer, "_block_bytes", lambda _: 1 + seed % 2 * 100)
        patched.setattr(hfile_reader, "_RUN_BYTES", 1)
        patched.setattr(change_tier, "_WRITTEN_MIN", seed % 3)
        patched.setattr(change_tier, "_ITEMS_AT_ONCE", 1 + seed % 2)
        patched.setattr(loading, "_ENTRIES_PER_BLOCK", 2)
        patched.setattr(key_ranges, "_BLOCKS_PER_RANGE", 1 + seed % 2)
        patched.setattr(key_ranges, "_MORE_KEYS", 0)
        patched.setattr(key_ranges, "_TIMES_AS_MUCH", 1)
        patched.setattr(run_tier, "_KEYS_PER_PLAN", 0)
        patched.setattr(copies, "_GAIN_MIN", 0)
        # In every third world look-ups wait for the load of what they would read most of.
        patched.setattr(waited_loads, "_ENTRIES_MIN", 0 if seed % 3 == 1 else 50_000)
        world = RunWorld(folder, seed, patched, reached, tight)
        for _ in range(steps):
            world.step()
            if world.draw.random() < 0.5:
                world.check()
        world.check()
        world.owner.close()


def test_random_sequences_with_run_files_are_answered_as_the_model_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: Counter[str] = Counter()
    for seed in range(WORLDS):
        play(folder / str(seed), seed, monkeypatch, reached, 25, tight=seed >= WORLDS - TIGHT_WORLDS)
    wanted = {
        *("run serves", "given back", "damaged", "flipped", "evicted", "killed while loading"),
        *("taken over", "changes lost", "former version beside a change run"),
        *("part serves", "part loaded", "ranges evicted", "killed while evicting"),
    }
    assert {name for name in wanted if reached[name] > 0} == wanted, reached


@pytest.mark.skipif(not CAMPAIGN_S, reason="make index-campaign")
def test_campaign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`play` with a seed that failed shows it again."""
    ends, seed, failed = time.monotonic() + CAMPAIGN_S, 1_000, dict[int, str]()
    while time.monotonic() < ends:
        try:
            play(folder / str(seed), seed, monkeypatch, Counter(), 40, seed % 3 == 0)
        except Exception as error:
            failed[seed] = repr(error)
        seed += 1
    assert not failed, f"{len(failed)} of {seed - 1_000} worlds: {failed}"
