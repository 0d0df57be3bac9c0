"""The cache of a partitioned record index against a plain model, over a table in memory and real RocksDB.

Few units may be open, and few numbers may be given out, so that units are closed, opened again and recycled
all the time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tests.unit.hudi_format.metadata_table.test_partitioned_index import Identity, PartitionedTable
from tests.unit.hudi_format.metadata_tables import file_id
from tests.unit.index_assigner.index_world import ORDERING, SCHEMA, TTL_MS, memory_folder
from tidemark.epoch_protocol.batches import INDEX_COLUMNS, TOMBSTONE_COLUMNS, IndexOp
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, RecordIndexEntries
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.identity import judged_instants
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index import change_tier
from tidemark.index_assigner.index.errors import LaneNotOpenError
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.partitioned import PartitionedIndex
from tidemark.index_assigner.index.ports import LookupAnswer, StagedChanges, Tier
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.units import Units

LANES = 2
PATHS = ("", "eu", "us/ca", "a_b-c d", "é=%")
KEYS = (*tuple(f"k{number}" for number in range(12)), "k1" * 9, "😀", "ключ")
ALL = [(path, key) for path in PATHS for key in KEYS]
Changes = Mapping[Identity, int | None]


def lane_of(row: Identity) -> int:
    return int(identity_lanes(pa.array([row[1]]), np.zeros(1, np.int32), [row[0]], LANES)[0])


def by_lane(rows: list[Identity]) -> dict[int, list[Identity]]:
    return {lane: [row for row in rows if lane_of(row) == lane] for lane in range(LANES)}


class Process:
    """An assigner with all lanes. ``ordered``: rows have ordering values, and deletes leave tombstones."""

    def __init__(
        self, table: PartitionedTable, folder: Path, ordered: bool = False, units_max: int = 3
    ) -> None:
        self.table, self.locations, self.clock = table, Locations(4), ManualClock()
        limits = IndexLimits(16 << 20, 1 << 30)
        self.rocks = RocksTier(folder, "t partitioned", limits.rocks_memory)
        mode = MergeMode.EVENT_TIME_ORDERING if ordered else MergeMode.COMMIT_TIME_ORDERING
        parts = OrderingParts(SCHEMA, mode, ORDERING if ordered else None, False, TTL_MS)
        self.index = PartitionedIndex(
            table.storage,
            self.rocks,
            self.locations,
            LANES,
            ordered,
            limits,
            parts,
            self.clock,
            units_max=units_max,
        )
        # As many numbers as units that one look-up of this table may need, and few more.
        self.index._units = Units(self.rocks, self.index._store.forget, 40)
        for lane in range(LANES):
            self.index.open_lane(lane, MetadataTableSnapshot.load(table.storage))

    def close(self) -> None:
        self.index.stop()
        self.rocks.close()

    def columns(self, rows: list[Identity]) -> tuple[pa.StringArray, npt.NDArray[np.int32]]:
        ids = [self.locations.intern_partition(path) for path, _ in rows]
        return pa.array([key for _, key in rows], pa.string()), np.array(ids, np.int32)

    def answers(self, rows: list[Identity]) -> dict[Identity, tuple[LookupAnswer, int]]:
        found = {}
        for lane, mine in by_lane(rows).items():
            if mine:
                answer = self.index.lookup(lane, *self.columns(mine))
                found.update({row: (answer, at) for at, row in enumerate(mine)})
        return found

    def ask(self, rows: list[Identity]) -> dict[Identity, int]:
        """The file group of each row that there is."""
        there = {}
        for row, (answer, at) in self.answers(rows).items():
            location = int(answer.stored.location[at])
            if location >= 0:
                assert self.locations.partition_paths[location] == row[0]
                there[row] = int(self.locations.file_ids[location].split("-")[4])
        return there

    def stage(self, changes: Changes, offset: int, ordering: int | None = None) -> None:
        for lane, mine in by_lane(list(changes)).items():
            keys, ids = self.columns(mine)
            groups = [changes[row] for row in mine]
            at = [
                -1 if group is None else self.locations.intern(path, file_id(group))
                for (path, _), group in zip(mine, groups, strict=True)
            ]
            has = np.full(len(mine), ordering is not None, np.bool_)
            self.index.stage(
                lane,
                StagedChanges(
                    keys=keys,
                    shards=ids,
                    location=np.array(at, np.int32),
                    ordering=np.full(len(mine), ordering or 0, np.int64),
                    has_ordering=has,
                    exact=has,
                    deleted_from=np.full(len(mine), -1, np.int32),
                    expires_ms=np.full(len(mine), self.clock.now_ms() + TTL_MS, np.int64),
                ),
            )
        self.index.counted(range(LANES), offset)

    def load(self, changes: Changes, offset: int) -> None:
        """The same as a successor reads it from the topics."""
        for lane, mine in by_lane(list(changes)).items():
            self.index.load_counted(lane, offset, [index_rows({row: changes[row] for row in mine}, lane)])

    def commit(self, changes: Changes, offset: int, epoch: int, shards: int) -> None:
        instant = self.table.commit(changes, shards)
        self.index.promote(offset, completion_of(self.table, instant), epoch, instant)


def index_rows(changes: Changes, lane: int) -> pa.RecordBatch:
    columns = [
        pa.array([key for _, key in changes], pa.string()),
        pa.array([lane] * len(changes), pa.int32()),
        pa.array([path for path, _ in changes], pa.string()).dictionary_encode(),
        pa.array([file_id(group or 0) for group in changes.values()], pa.string()).dictionary_encode(),
        pa.nulls(len(changes), pa.int64()),
        pa.array([False] * len(changes), pa.bool_()),
        pa.array(
            [IndexOp.DELETE if group is None else IndexOp.UPSERT for group in changes.values()], pa.int8()
        ),
    ]
    return pa.record_batch(columns, schema=INDEX_COLUMNS)


def completion_of(table: PartitionedTable, instant: str) -> str:
    shown = judged_instants(load_timeline(table.storage)).values()
    [completion] = [each.completion for each in shown if each.requested == instant]
    return str(completion)


def some_changes(random: Random, live: Mapping[Identity, int]) -> dict[Identity, int | None]:
    """Inserts, moves within a partition, and deletes of rows that are there."""
    rows = random.sample(ALL, random.randint(1, 12))
    return {row: None if row in live and random.random() < 0.4 else random.randint(1, 3) for row in rows}


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_commits_restarts_and_other_writers_leave_each_row_where_it_is(
    seed: int, takes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``takes_over``: what units have in RocksDB moves into change runs all the time."""
    if takes_over:
        monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 2)
    random, table = Random(seed), PartitionedTable()
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        process, offset, epoch, taken = Process(table, Path(folder) / "cache"), 0, 0, 0.0
        try:
            for _ in range(14):
                step = random.choice(["commit", "commit", "commit", "foreign", "restart", "pending"])
                changes, live = some_changes(random, table.live), dict(table.live)
                if step == "foreign":
                    table.commit(changes, random.randint(1, 4))
                    process.index.rewind()
                    for lane in range(LANES):
                        process.index.open_lane(lane, MetadataTableSnapshot.load(table.storage))
                elif step == "restart":
                    taken += process.index.stats()["take_overs"]
                    process.close()
                    process = Process(table, Path(folder) / "cache")
                else:
                    offset, epoch = offset + 1, epoch + 1
                    (process.load if random.random() < 0.3 else process.stage)(changes, offset)
                    after = {row: group for row, group in {**live, **changes}.items() if group is not None}
                    asked = random.sample(ALL, random.randint(1, len(ALL)))
                    assert process.ask(asked) == {row: after[row] for row in asked if row in after}
                    process.commit(changes, offset, epoch, random.randint(1, 4))
                asked = random.sample(ALL, random.randint(1, len(ALL)))
                assert process.ask(asked) == {row: table.live[row] for row in asked if row in table.live}
                assert len(process.index._open) <= 40
            assert process.ask(ALL) == table.live
            assert (taken + process.index.stats()["take_overs"] > 0) is takes_over
        finally:
            process.close()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("shards", [2, 3])
def test_an_index_that_another_engine_built_anew_is_read_anew(
    tmp_path: Path, shards: int, restarts: bool
) -> None:
    """With other numbers of groups, or with the same: what the cache has of the former index counts no
    more. The former one was wrong about half of the rows.
    """
    table = PartitionedTable()
    table.commit(dict.fromkeys(ALL, 1), 2)
    process = Process(table, tmp_path / "cache")
    try:
        assert process.ask(ALL) == dict.fromkeys(ALL, 1)
        if restarts:
            process.close()
        table.build_anew({row: 1 + number % 2 for number, row in enumerate(ALL)}, shards)
        if restarts:
            process = Process(table, tmp_path / "cache")
        else:
            process.index.rewind()
            for lane in range(LANES):
                process.index.open_lane(lane, MetadataTableSnapshot.load(table.storage))
        assert layout_of(MetadataTableSnapshot.load(table.storage)).shards == dict.fromkeys(
            sorted(PATHS), shards
        )
        assert process.ask(ALL) == table.live
        process.stage({ALL[0]: 3, ("eu", "new"): 3}, 1)
        process.commit({ALL[0]: 3, ("eu", "new"): 3}, 1, 1, 4)
        assert process.ask([*ALL, ("eu", "new")]) == table.live
    finally:
        process.close()


def test_a_partition_without_groups_has_no_rows_and_nothing_is_read(tmp_path: Path) -> None:
    table = PartitionedTable()
    table.commit({("eu", "a"): 1}, 2)
    process = Process(table, tmp_path / "cache")
    try:
        answers = process.answers([("asia", key) for key in KEYS])
        assert {int(answer.tier[at]) for answer, at in answers.values()} == {Tier.NONE}
        assert not process.index._open, "no unit is opened for it"
        assert process.ask([("eu", "a")]) == {("eu", "a"): 1}
    finally:
        process.close()


def test_the_units_used_least_are_closed_and_keep_what_rocksdb_has(tmp_path: Path) -> None:
    table = PartitionedTable()
    table.commit({(path, "a"): 1 for path in PATHS}, 1)
    process = Process(table, tmp_path / "cache")
    try:
        for path in PATHS:
            process.ask([(path, "a")])
        units = [process.index._units.unit(number) for number in process.index._open]
        assert [unit.partition_path for unit in units] == list(PATHS[-3:])
        assert len(process.index._units) == len(PATHS)
        assert process.ask([("", "a")]) == {("", "a"): 1}
    finally:
        process.close()


def test_a_look_up_that_needs_more_units_than_numbers_is_answered_in_portions(tmp_path: Path) -> None:
    table = PartitionedTable()
    table.commit(dict.fromkeys(ALL, 1), 3)
    process = Process(table, tmp_path / "cache")
    try:
        # Each lane needs 15 units.
        process.index._units = Units(process.rocks, process.index._store.forget, 8)
        for _ in range(2):
            assert process.ask([*ALL, ("asia", "a")]) == table.live
            assert len(process.index._open) <= 8
        process.stage({ALL[0]: 2, ("asia", "a"): 3}, 1)
        process.commit({ALL[0]: 2, ("asia", "a"): 3}, 1, 1, 3)
        assert process.ask([*ALL, ("asia", "a")]) == table.live
    finally:
        process.close()


def test_a_tombstone_holds_in_its_partition_alone_also_before_that_has_groups(tmp_path: Path) -> None:
    table = PartitionedTable()
    table.commit({("eu", "a"): 1}, 2)
    process = Process(table, tmp_path / "cache", ordered=True)
    try:
        process.stage({("us/ca", "a"): None}, 1, ordering=20)
        process.commit({("eu", "b"): 1}, 1, 1, 2)
        rows = [("eu", "a"), ("us/ca", "a")]
        for _ in range(2):
            found = {
                row: (bool(a.stored.present[at]), int(a.stored.ordering[at]), bool(a.stored.has_ordering[at]))
                for row, (a, at) in process.answers(rows).items()
            }
            assert found["us/ca", "a"] == (False, 20, True)
            assert found["eu", "a"][0]
            assert not found["eu", "a"][2]
            process.stage({("us/ca", "z"): 1}, 2, ordering=1)
            process.commit({("us/ca", "z"): 1}, 2, 2, 3)
    finally:
        process.close()


def test_committed_tombstones_are_loaded_by_partition_and_key(tmp_path: Path) -> None:
    table = PartitionedTable()
    table.commit({("eu", "a"): 1}, 2)
    process = Process(table, tmp_path / "cache", ordered=True)
    try:
        lane, expires = lane_of(("us/ca", "a")), process.clock.now_ms() + TTL_MS
        columns = [["a"], [lane], ["us/ca"], [None], [7], [expires]]
        batch = pa.record_batch(
            [
                pa.array(column, field.type.value_type).dictionary_encode()
                if pa.types.is_dictionary(field.type)
                else pa.array(column, field.type)
                for column, field in zip(columns, TOMBSTONE_COLUMNS, strict=True)
            ],
            schema=TOMBSTONE_COLUMNS,
        )
        process.index.load_tombstones(lane, [batch], 1)
        [(answer, at)] = process.answers([("us/ca", "a")]).values()
        assert (bool(answer.stored.present[at]), int(answer.stored.ordering[at])) == (False, 7)
        [(answer, at)] = process.answers([("eu", "a")]).values()
        assert answer.stored.present[at]
    finally:
        process.close()


def test_a_lane_that_is_not_open_answers_nothing(tmp_path: Path) -> None:
    process = Process(PartitionedTable(), tmp_path / "cache")
    try:
        process.index.close_lane(1)
        with pytest.raises(LaneNotOpenError):
            process.index.lookup(1, pa.array(["a"]), np.zeros(1, np.int32))
    finally:
        process.close()


def test_lanes_share_what_was_read_of_a_groups_log_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PartitionedTable()
    rows = [("eu", key) for key in KEYS]
    assert len(by_lane(rows)) == LANES
    table.commit(dict.fromkeys(rows, 1), 1)
    reads: list[str] = []
    read = ShardSnapshot.log_parts

    def noted(shard: ShardSnapshot) -> Iterator[RecordIndexEntries]:
        reads.append(shard.file_id)
        return read(shard)

    monkeypatch.setattr(ShardSnapshot, "log_parts", noted)
    process = Process(table, tmp_path / "cache")
    assert process.ask(rows) == dict.fromkeys(rows, 1)
    assert reads == ["record-index-eu-0000-0"]
    # What is kept for the next lane has its memory from the part that is for file slices.
    kept, slices = process.index._store.shared_reads._bytes_max, process.index._slices._cache._bytes_max
    assert (kept, kept + slices) == ((16 << 20) // 128, (16 << 20) // 32)
    process.close()


def test_what_lanes_share_of_log_files_is_forgotten_with_the_snapshot(tmp_path: Path) -> None:
    """Other blocks of the same log files may count with another one."""
    table = PartitionedTable()
    table.commit({("eu", key): 1 for key in KEYS}, 1)
    process = Process(table, tmp_path / "cache")
    assert process.ask(ALL) == table.live
    shared = process.index._store.shared_reads
    assert shared._of
    process.index.open_lane(0, MetadataTableSnapshot.load(table.storage))
    assert not shared._of
    process.close()
