"""A look-up that would read most blocks of a shard waits for the shard's run (docs/adr/0014-run-files.md)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from tests.unit.index_assigner.index_world import MANY, Assigner, DataTable
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.index_assigner.index import change_tier, waited_loads
from tidemark.index_assigner.index.errors import IndexStopsError
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.runs.files import RunFolder, shard_of
from tidemark.index_assigner.runs.loading import RunLoad, ThreadedLoads

GROUPS = {key: group for key, (group, _) in MANY.items()}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> DataTable:
    """Three shards with a block for each of their 400 keys."""
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 1)
    monkeypatch.setattr(waited_loads, "_ENTRIES_MIN", 0)
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    return table


def tiers(assigner: Assigner, keys: list[str]) -> set[Tier]:
    found = assigner.ask(keys)
    assert {key: each.group for key, each in found.items()} == {key: GROUPS.get(key) for key in keys}
    return {each.tier for each in found.values()}


@pytest.mark.parametrize("threaded", [False, True])
def test_a_lookup_of_most_keys_is_answered_by_runs_and_reads_no_block(
    assigners, table: DataTable, threaded: bool
) -> None:
    one = assigners(table, loads=ThreadedLoads() if threaded else None).open()
    assert tiers(one, [*MANY, "absent"]) == {Tier.RUN, Tier.NONE}
    stats = one.index.stats()
    assert (stats["blocks_read"], stats["runs_loaded"]) == (0, table.shards)


def test_a_lookup_of_some_keys_reads_their_blocks(assigners, table: DataTable) -> None:
    one = assigners(table).open()
    some = list(MANY)[::2]
    assert tiers(one, some) == {Tier.MDT}
    assert one.index.stats()["blocks_read"] == len(some)


def test_many_keys_that_lie_in_few_blocks_are_read(assigners, table: DataTable) -> None:
    """Absent keys behind the last one of a shard all belong to its last block."""
    one = assigners(table).open()
    assert tiers(one, [f"z{number}" for number in range(800)]) == {Tier.NONE}
    stats = one.index.stats()
    assert (stats["blocks_read"], stats["runs_loaded"]) == (table.shards, 0)


def test_a_small_shard_is_not_waited_for(
    assigners, table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waited_loads, "_ENTRIES_MIN", len(MANY))
    assert tiers(assigners(table).open(), list(MANY)) == {Tier.MDT}


def test_without_room_on_the_disk_nothing_is_waited_for(assigners, table: DataTable) -> None:
    one = assigners(table, limits=IndexLimits(16 << 20, 1)).open()
    assert tiers(one, list(MANY)) == {Tier.MDT}
    assert one.index.stats()["run_shards"] == 0


def test_a_base_file_that_vanishes_during_the_load_is_found_out(
    assigners, table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = assigners(table).open()
    checks = ShardSnapshot.check_base

    def gone(snapshot: ShardSnapshot) -> None:
        monkeypatch.setattr(ShardSnapshot, "check_base", checks)
        raise FileMissingError("the base file was deleted")

    monkeypatch.setattr(ShardSnapshot, "check_base", gone)
    assert tiers(one, list(MANY)) <= {Tier.RUN, Tier.MDT}
    assert one.index.stats()["runs_loaded"] == table.shards - 1


def test_no_change_run_is_made_before_a_lookup_that_waits_for_nothing(
    assigners, table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of log files are found in RocksDB as well: no look-up waits for their change run."""
    monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 8)
    table.commit_rows({f"new{number}": (1, 1) for number in range(90)})
    one = assigners(table).open()
    assert tiers(one, list(MANY)) == {Tier.RUN}
    stats = one.index.stats()
    assert (stats["runs_loaded"], stats["take_overs"], stats["take_overs_due"]) == (3, 0, 3)
    assert not one.index._runs._loads.is_busy
    for _ in range(200):
        one.ask(["absent"])
    assert one.index.stats()["take_overs"] == table.shards


def test_all_shards_of_a_lane_are_waited_for_in_one_stretch(assigners, table: DataTable) -> None:
    """While it lasts the shuffle stage leaves the cores to the loads."""
    stretches: list[int] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        before = one.index.stats()["runs_loaded"]
        yield
        stretches.append(int(one.index.stats()["runs_loaded"] - before))

    one = assigners(table, loads=ThreadedLoads(waiting)).open()
    for _ in range(2):
        tiers(one, list(MANY))
        # Of three shards one lane has the first and the last, the other lane the second.
        assert stretches == [2, 1]


def test_a_look_up_that_waits_is_given_up_when_the_process_is_told_to_end(
    assigners, table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All shards of an assigner take minutes, and the process ends within seconds of a SIGTERM."""
    stop, may_go_on = threading.Event(), threading.Event()
    fill = RunLoad._fill

    def long(load: RunLoad, file: BinaryIO) -> Iterator[tuple[int, int]]:
        stop.set()
        assert may_go_on.wait(180)
        yield from fill(load, file)

    monkeypatch.setattr(RunLoad, "_fill", long)
    one = assigners(table, loads=ThreadedLoads(stop=stop)).open()
    with pytest.raises(IndexStopsError) as raised:
        one.ask(list(MANY))
    assert kind_of(raised.value) is ErrorKind.RETRYABLE
    assert one.index._runs._loads._thread.is_alive(), "the load is what it did not wait for"
    may_go_on.set()


def test_shards_that_a_look_up_waits_for_are_loaded_before_others(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of shards 1 and 3, which are another lane's, some keys were read."""
    table = DataTable(shards=5)
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 1)
    monkeypatch.setattr(waited_loads, "_ENTRIES_MIN", 0)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    begun: list[int] = []
    create = RunFolder.create

    def noted(folder: RunFolder, name: str) -> BinaryIO:
        begun.append(shard_of(name))
        return create(folder, name)

    monkeypatch.setattr(RunFolder, "create", noted)
    one = assigners(table).open()
    of_lanes = one.by_lane(list(MANY))
    one.ask(of_lanes[1][::3])
    one.ask(of_lanes[0])
    # The first one had begun.
    assert set(begun[1:4]) == {0, 2, 4}
    assert {begun[0]} <= {1, 3}
