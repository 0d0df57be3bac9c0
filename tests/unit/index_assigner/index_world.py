"""A table in memory with data files and a record index, and tiered indexes over it: for tests of the index.

Rows have a key, an ordering value and live in file groups of one partition, numbered from 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa

from testing.clock import ManualClock
from tests.replaced_groups import replace_commit
from tests.unit.hudi_format.metadata_tables import IndexedTable, file_id, write_archive
from tidemark.epoch_protocol.batches import INDEX_COLUMNS, TOMBSTONE_COLUMNS, IndexOp
from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.commit.instants import complete
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.hudi_format.timeline.identity import judged_instants
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import LookupAnswer, StagedChanges, Tier
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import Loads

SCHEMA = TableSchema.from_arrow(
    "t", pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("ts", pa.int64())])
)
ORDERING = OrderingField.of(SCHEMA, "ts")
LANES = 2
TTL_MS = 60_000


def memory_folder() -> Path | None:
    """Where files need no disk (RocksDB waits for the disk when it opens); None: the usual place."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else None


@dataclass
class DataTable(IndexedTable):
    """`rows`: key -> (file group, ordering value) of what is committed; `reached`: the greatest value that a
    row or delete of the key ever had, below which it must not come back into a file group that knows it.
    """

    shards: int = 3
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    has_base: set[int] = field(default_factory=set)

    def commit_rows(
        self, upserts: Mapping[str, tuple[int, int]], deletes: Mapping[str, int] | None = None
    ) -> str:
        """A whole commit of rows and index; returns its completion time. Deletes carry an ordering value."""
        deletes = dict(deletes or {})
        for key, value in [*deletes.items(), *((key, value) for key, (_, value) in upserts.items())]:
            self.reached[key] = max(self.reached.get(key, value), value)
        gone: dict[int, dict[str, int]] = {}
        placed: dict[int, dict[str, int]] = {}
        index: dict[str, int | None] = {}
        for key, ordering in deletes.items():
            gone.setdefault(self.rows[key][0], {})[key] = ordering
            index[key] = None
        for key, (group, ordering) in upserts.items():
            placed.setdefault(group, {})[key] = ordering
            old = self.rows.get(key)
            if old is not None and old[0] != group:
                gone.setdefault(old[0], {})[key] = ordering
            if old is None or old[0] != group:
                index[key] = group
        instant, data = self.begin(index)
        for group in sorted({*gone, *placed}):
            self._write_group(instant, group, placed.get(group, {}), gone.get(group, {}))
        completion = self.times.next()
        complete(Unfenced(self.storage), data, completion, encode_commit_metadata(CommitMetadata()))
        for key, number in index.items():
            if number is None:
                del self.live[key], self.rows[key]
            else:
                self.live[key] = number
        for key, (group, ordering) in upserts.items():
            old = self.rows.get(key)
            merged = max(ordering, old[1]) if old is not None and old[0] == group else ordering
            self.rows[key] = (group, merged)
        return completion

    def _write_group(self, instant: str, group: int, rows: dict[str, int], gone: dict[str, int]) -> None:
        name = file_id(group)
        user = pa.table([list(rows), list(rows.values())], schema=SCHEMA.arrow)
        with_meta = attach_meta_columns(user, user.column("id"), "p", instant, 0, name)
        if group not in self.has_base:
            self.has_base.add(group)
            self.storage.create(f"p/{name}_0-0-0_{instant}.parquet", write_base_file(with_meta, SCHEMA))
            return
        deletes = Deletes.with_ordering(
            pa.array(list(gone), pa.string()), np.array(list(gone.values()), np.int64)
        )
        log = data_log_bytes(SCHEMA, instant, with_meta, deletes, "p", ORDERING)
        self.storage.create(f"p/.{name}_{instant}.log.1_0-0-0", log)

    def replace_group(
        self, group: int, *, operation: str = "DELETE_PARTITION", archived: bool = False
    ) -> None:
        """Another engine's replacecommit, which leaves the group's index entries where they are."""
        requested, completion = self.times.next(), self.times.next()
        content = replace_commit({"p": [file_id(group)]}, operation)
        if archived:
            write_archive(self.storage, [(requested, completion, "replacecommit", content)])
            for each in self.storage.list("p"):
                if file_id(group) in each.name:
                    self.storage.delete(each.path)
            return
        for name in (f"{requested}.replacecommit.requested", f"{requested}.replacecommit.inflight"):
            self.storage.create(f".hoodie/timeline/{name}", b"")
        self.storage.create(f".hoodie/timeline/{requested}_{completion}.replacecommit", content)

    def known(self, completion: str | None = None) -> Known:
        """What a fold knows that has seen all that there is; ``completion``: of our last commit."""
        shown = judged_instants(load_timeline(self.storage))
        ours = [each.requested for each in shown.values() if each.completion == completion]
        return Known(ours[0] if ours else None, frozenset(shown), "0", 0, 0)

    def compact_index(self, clean: bool) -> None:
        """Folds the record index into base files, and removes what they replace when `clean`."""
        before = [info.path for info in self.storage.list(RECORD_INDEX_FOLDER)]
        self.finish_compaction(self.schedule_compaction(), dict(self.live))
        if clean:
            for path in before:
                if path.endswith(".hfile") or ".log." in path:
                    self.storage.delete(path)


@dataclass
class Assigner:
    """One process: a RocksDB folder and an index over the table."""

    table: DataTable
    folder: Path
    limits: IndexLimits = field(default_factory=lambda: IndexLimits(16 << 20, 1 << 30))
    clock: ManualClock = field(default_factory=ManualClock)
    ordered: bool = True
    make_rocks: Callable[[Path, str, int], RocksTier] = RocksTier
    loads: Loads | None = None

    def __post_init__(self) -> None:
        self.locations = Locations(4)
        self.rocks = self.make_rocks(self.folder, f"t {self.table.shards}", self.limits.rocks_memory)
        mode = MergeMode.EVENT_TIME_ORDERING if self.ordered else MergeMode.COMMIT_TIME_ORDERING
        self.index = TieredIndex(
            self.table.storage,
            self.rocks,
            self.locations,
            self.table.shards,
            LANES,
            self.ordered,
            self.limits,
            OrderingParts(SCHEMA, mode, ORDERING if self.ordered else None, self.ordered, TTL_MS),
            self.clock,
            loads=self.loads,
        )

    def open(self, known: Known | None = None) -> Assigner:
        snapshot = self.table.snapshot()
        for lane in range(LANES):
            self.index.open_lane(lane, snapshot, known)
        return self

    def close(self) -> None:
        self.index.stop()
        self.rocks.close()

    def location(self, group: int | None) -> int:
        return -1 if group is None else self.locations.intern("p", file_id(group))

    def group(self, location: int) -> int | None:
        return None if location < 0 else int(self.locations.file_ids[location].split("-")[4])

    def by_lane(self, keys: Sequence[str]) -> dict[int, list[str]]:
        shards = record_index_shard(list(keys), self.table.shards) % LANES
        return {
            lane: [key for key, of in zip(keys, shards, strict=True) if of == lane] for lane in range(LANES)
        }

    def ask(self, keys: Sequence[str]) -> dict[str, Found]:
        """Looks keys up in all lanes."""
        found: dict[str, Found] = {}
        for lane, mine in self.by_lane(keys).items():
            if mine:
                names = pa.array(mine, pa.string())
                answer = self.index.lookup(lane, names, record_index_shard(names, self.table.shards))
                found.update({key: self._found(answer, at) for at, key in enumerate(mine)})
        return found

    def _found(self, answer: LookupAnswer, at: int) -> Found:
        stored = answer.stored
        assert bool(stored.present[at]) == (stored.location[at] >= 0)
        return Found(
            group=self.group(int(stored.location[at])),
            ordering=int(stored.ordering[at]) if stored.has_ordering[at] else None,
            exact=bool(stored.exact[at]),
            tier=Tier(int(answer.tier[at])),
            deleted_from=self.group(int(answer.deleted_from[at])),
        )

    def exact(self, key: str, group: int) -> int:
        [lane] = [lane for lane, mine in self.by_lane([key]).items() if mine]
        located = np.array([self.location(group)], np.int32)
        return int(self.index.exact_ordering(lane, pa.array([key]), located)[0])

    def stage(self, changes: Mapping[str, Change]) -> dict[int, StagedChanges]:
        """Stages the changes in their lanes."""
        staged = {}
        for lane, mine in self.by_lane(list(changes)).items():
            if mine:
                staged[lane] = self.columns({key: changes[key] for key in mine})
                self.index.stage(lane, staged[lane])
        return staged

    def columns(self, changes: Mapping[str, Change]) -> StagedChanges:
        keys = pa.array(list(changes), pa.string())
        values = list(changes.values())
        return StagedChanges(
            keys=keys,
            shards=record_index_shard(keys, self.table.shards),
            location=np.array([self.location(each.group) for each in values], np.int32),
            ordering=np.array([each.ordering or 0 for each in values], np.int64),
            has_ordering=np.array([each.ordering is not None for each in values], np.bool_),
            exact=np.array([each.exact for each in values], np.bool_),
            deleted_from=np.array([self.location(each.deleted_from) for each in values], np.int32),
            expires_ms=np.full(len(keys), self.clock.now_ms() + TTL_MS, np.int64),
        )


@dataclass(frozen=True)
class Found:
    group: int | None
    ordering: int | None
    exact: bool
    tier: Tier
    deleted_from: int | None = None


@dataclass(frozen=True)
class Change:
    """What becomes of a key; `group` None: deleted (from `deleted_from`)."""

    group: int | None
    ordering: int | None
    exact: bool = True
    deleted_from: int | None = None
    updated: bool = False


def index_rows(changes: Mapping[str, Change], shards: int) -> pa.RecordBatch:
    """The index batch that a transaction with these changes carries; no-op deletes have none."""
    mine = {k: c for k, c in changes.items() if c.group is not None or c.deleted_from is not None}
    groups = [c.group if c.group is not None else c.deleted_from for c in mine.values()]
    ops = [
        IndexOp.DELETE if c.group is None else IndexOp.UNCHANGED if c.updated else IndexOp.UPSERT
        for c in mine.values()
    ]
    columns = [
        pa.array(list(mine), pa.string()),
        record_index_shard(list(mine), shards) if mine else pa.array([], pa.int32()),
        pa.array(["p"] * len(mine), pa.string()).dictionary_encode(),
        pa.array([file_id(group) for group in groups if group is not None], pa.string()).dictionary_encode(),
        pa.array([c.ordering for c in mine.values()], pa.int64()),
        pa.array([c.exact for c in mine.values()], pa.bool_()),
        pa.array([int(op) for op in ops], pa.int8()),
    ]
    return pa.record_batch([pa.array(each) for each in columns], schema=INDEX_COLUMNS)


def tombstone_rows(changes: Mapping[str, Change], shards: int, expires_ms: int) -> pa.RecordBatch:
    """The tombstones batch of a transaction with these changes."""
    mine = {k: c for k, c in changes.items() if c.group is None and c.ordering is not None}
    named = [None if c.deleted_from is None else file_id(c.deleted_from) for c in mine.values()]
    columns = [
        pa.array(list(mine), pa.string()),
        record_index_shard(list(mine), shards) if mine else pa.array([], pa.int32()),
        pa.array([None if name is None else "p" for name in named], pa.string()).dictionary_encode(),
        pa.array(named, pa.string()).dictionary_encode(),
        pa.array([c.ordering for c in mine.values()], pa.int64()),
        pa.array([expires_ms] * len(mine), pa.int64()),
    ]
    return pa.record_batch([pa.array(each) for each in columns], schema=TOMBSTONE_COLUMNS)


def promoted(
    assigner: Assigner, table: DataTable, changes: Mapping[str, Change], offset: int, epoch: int = 1
) -> str:
    """One whole epoch of these changes, tagged, committed and promoted; returns its completion time."""
    assigner.stage(changes)
    assigner.index.counted(range(LANES), offset)
    upserts = {
        key: (change.group, change.ordering)
        for key, change in changes.items()
        if change.group is not None and change.ordering is not None
    }
    deletes = {
        key: change.ordering
        for key, change in changes.items()
        if change.group is None and key in table.rows and change.ordering is not None
    }
    completion = table.commit_rows(upserts, deletes)
    assigner.index.promote(offset, completion, epoch)
    return completion


def load_runs(assigner: Assigner, keys: Sequence[str]) -> None:
    """Looks the keys up until every shard that has some of them answers from a run."""
    for _ in range(50):
        if {found.tier for found in assigner.ask(keys).values()} <= {Tier.RUN, Tier.NONE, Tier.ROCKSDB}:
            return
        assigner.index._hot.drop_shards([ShardId(number) for number in range(assigner.table.shards)])
    raise AssertionError("some shard is not loaded")


# Enough for base files that are read in pieces, and for several blocks in RocksDB.
BIG = {sha256(str(number).encode()).hexdigest(): (1 + number % 3, number) for number in range(4000)}
MANY = {f"k{number:04d}": (1 + number % 3, number) for number in range(400)}
