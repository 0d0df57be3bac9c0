"""How a commit gets from memory into the units of a partitioned index: in few batches, each of them whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import WriteBatch

from tests.unit.hudi_format.metadata_table.test_partitioned_index import Identity, PartitionedTable
from tests.unit.index_assigner.index.test_partitioned_model import KEYS, LANES, Process, lane_of
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import change_tier, promotion
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.partitioned_promotion import PartitionedPromotion
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import shard_bytes, shard_range
from tidemark.index_assigner.index.shard_records import read_record

PATHS = ("eu", "us/ca", "")
ROWS = [(path, key) for path in PATHS for key in KEYS]
# With one file group of the index for each partition.
UNITS = LANES * len(PATHS)


class KilledError(Exception):
    """The process ends here."""


class Batches:
    """Counts the batches that a process writes from now on; it is killed before the batch ``kill_at``.

    ``lacking``: the open units that had no record after some batch. Killed there, they are filled anew.
    """

    def __init__(self, process: Process, monkeypatch: pytest.MonkeyPatch, kill_at: int | None = None) -> None:
        self.count, self.lacking = 0, set[ShardId]()
        write = process.rocks._write

        def noted(batch: WriteBatch) -> None:
            if self.count == kill_at:
                raise KilledError
            write(batch)
            self.count += 1
            self.lacking |= without_record(process)

        monkeypatch.setattr(process.rocks, "_write", noted)


def without_record(process: Process) -> set[ShardId]:
    return {number for number in process.index._open if read_record(process.rocks, number) is None}


def table_of(rows: list[Identity]) -> PartitionedTable:
    """Half of the rows are in the group 1 of their partition, half in 2: moves between them are to places
    that the cache has a number for, so that batches which give one are none of those that a test counts.
    """
    table = PartitionedTable()
    table.commit({row: 1 + at % 2 for at, row in enumerate(rows)}, 1)
    return table


def opened(table: PartitionedTable, folder: Path, batch_bytes: int | None = None) -> Process:
    """An assigner with all units open. ``batch_bytes``: of what is written together; None: as always."""
    process = Process(table, folder, units_max=UNITS)
    index = process.index
    if batch_bytes is not None:
        index._of_partitions = PartitionedPromotion(
            index._promotion, index._store, process.locations, index._open_units, index._shown, batch_bytes
        )
    assert process.ask(list(table.live)) == table.live
    assert len(index._open) == UNITS
    return process


def move_all(process: Process) -> None:
    """An epoch that moves each row from the one group to the other."""
    moved = {row: 3 - group for row, group in process.table.live.items()}
    process.stage(moved, 1)
    process.commit(moved, 1, 1, 1)


def check_answers(process: Process) -> None:
    """What lies below the hot cache answers as the table says."""
    process.index._hot.drop_shards(process.index._open)
    assert process.ask(list(process.table.live)) == process.table.live


@pytest.mark.parametrize(
    ("batch_bytes", "batches"), [(None, LANES), (1_900, 2 * LANES), (0, UNITS)], ids=["all", "two", "one"]
)
def test_a_commit_is_written_to_so_many_units_of_a_lane_in_one_batch_as_fit_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int | None, batches: int
) -> None:
    table = table_of(ROWS)
    process = opened(table, tmp_path / "cache", batch_bytes)
    written = Batches(process, monkeypatch)
    move_all(process)
    assert (written.count, written.lacking) == (batches, set())
    check_answers(process)
    process.close()
    process = opened(table, tmp_path / "cache")
    check_answers(process)
    process.close()


def test_keys_of_some_hundred_bytes_are_divided_so_that_no_batch_leaves_a_unit_without_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit into one batch is written in several, after the records are removed. So what is
    written together must fit by its bytes, however few keys it has.
    """
    monkeypatch.setattr(RocksTier, "batch_bytes", 4_096)
    table = table_of([(path, f"{number}-{'k' * 300}") for path in PATHS for number in range(12)])
    process = opened(table, tmp_path / "cache")
    written = Batches(process, monkeypatch)
    move_all(process)
    assert LANES < written.count <= UNITS
    assert not written.lacking
    check_answers(process)
    process.close()


@pytest.mark.parametrize("kill_at", [0, 1, 2, 3, 6])
@pytest.mark.parametrize(("batch_bytes", "together"), [(0, 1), (1 << 20, len(PATHS))], ids=["one", "all"])
def test_killed_between_two_batches_of_what_does_not_fit_into_one_units_are_filled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int, together: int, kill_at: int
) -> None:
    """Of units that are each too large for a batch one at a time is without its record."""
    monkeypatch.setattr(RocksTier, "batch_bytes", 100)
    monkeypatch.setattr(promotion, "_AT_ONCE", 4)
    table = table_of(ROWS)
    process = opened(table, tmp_path / "cache", batch_bytes)
    Batches(process, monkeypatch, kill_at)
    with pytest.raises(KilledError):
        move_all(process)
    lacking = without_record(process)
    assert len(lacking) in (0, together)
    assert bool(lacking) or kill_at != 1
    process.close()
    process = opened(table, tmp_path / "cache")
    check_answers(process)
    process.close()


def test_what_is_promoted_during_a_take_over_of_one_of_the_units_stays_newer_than_its_change_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 2)
    table = table_of(ROWS)
    process = opened(table, tmp_path / "cache")
    [unit] = being_taken_over(process)
    other = next(shard for shard in process.index._held.openings() if shard is not unit)
    with pytest.raises(AssertionError):
        process.index._store.promote_together([unit, other], iter(()), [0, 0], None)
    moved = keys_of_lane(process, unit)
    assert set(moved) < set(keys_in_rocksdb(process, unit)), "it was filled with those of other lanes, too"
    written = Batches(process, monkeypatch)
    move_all(process)
    assert LANES < written.count <= LANES + 2, "it came alone"
    assert sorted(key for keys, _ in unit.taken_since or () for key in keys) == moved
    for _ in range(20):
        process.ask(ROWS[:1])
    assert unit.change
    assert keys_in_rocksdb(process, unit) == moved, "they were written again"
    check_answers(process)
    process.close()
    process = opened(table, tmp_path / "cache")
    check_answers(process)
    process.close()


def being_taken_over(process: Process) -> list[OpenShard]:
    return [shard for shard in process.index._held.openings() if shard.taken_since is not None]


def keys_in_rocksdb(process: Process, unit: OpenShard) -> list[bytes]:
    return process.rocks.keys_between(*shard_range(b"", unit.number))


def keys_of_lane(process: Process, unit: OpenShard) -> list[bytes]:
    """The keys in RocksDB of the unit's rows."""
    mine = process.index._units.unit(unit.number)
    rows = [row for row in ROWS if (lane_of(row), row[0]) == (mine.lane, mine.partition_path)]
    return sorted(shard_bytes(unit.number) + key.encode() for _, key in rows)


def test_a_full_disk_takes_the_unit_first_that_was_used_least_lately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed units went in the order of their numbers, so the one that was closed last could be first."""
    table = table_of(ROWS)
    process = Process(table, tmp_path / "cache", units_max=LANES)
    index = process.index
    for path in ("eu", "us/ca", "eu", ""):
        rows = {row: group for row, group in table.live.items() if row[0] == path}
        assert process.ask(list(rows)) == rows
    assert {index._units.unit(number).partition_path for number in index._open} == {""}
    dropped: list[str] = []
    monkeypatch.setattr(
        index._store, "drop", lambda number: dropped.append(index._units.unit(number).partition_path)
    )
    monkeypatch.setattr(index._runs, "make_room", lambda _: False)
    monkeypatch.setattr(index._promotion, "_fits", lambda _: len(dropped) == 2 * LANES)
    index._keep_to_disk_limit()
    assert dropped == ["us/ca"] * LANES + ["eu"] * LANES
    process.close()
