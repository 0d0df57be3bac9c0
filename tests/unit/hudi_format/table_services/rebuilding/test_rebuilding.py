"""A rebuilt index is that of the rows, at every step either the former or the new one is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.read_table import ReadTable
from tests.unit.index_rebuilds import KilledError, held_term, killed_at, rebuild
from tests.unit.table_files import orders, table_schema
from tests.unit.table_verification.damage import DAYS, changed_table
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.errors import TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    read_index_definitions,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.index_life import index_life
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.table_services.rebuilding.documents import Rebuild, begun_rebuild
from tidemark.hudi_format.table_services.rebuilding.numbers import check_shards, enough_shards
from tidemark.hudi_format.table_services.rebuilding.planning import (
    check_not_overtaken,
    estimate,
    plan_rebuild,
)
from tidemark.hudi_format.table_services.rebuilding.switching import (
    NextStep,
    RebuildFailpoint,
    next_step,
    settle,
    shards_of_topics,
)
from tidemark.stream_runtime.clock import SystemClock
from tidemark.table_verification.verify import verify_table

FORMER, WANTED = 2, 64
BEFORE = (
    RebuildFailpoint.AFTER_REBUILD_NOTED,
    RebuildFailpoint.AFTER_INDEX_LIFE,
    RebuildFailpoint.AFTER_EACH_SHARD_FILE,
)


def shards_of(path: Path) -> int:
    return MetadataTableSnapshot.load(LocalStorage(path)).num_shards


def assert_agrees(path: Path) -> None:
    found = verify_table(LocalStorage(path), lambda _: None)
    assert found.agrees, found.findings
    assert found.rows == found.entries > 0


def test_column_stats_are_compacted_with_the_rebuilt_index(tmp_path: Path) -> None:
    changed_table(tmp_path, TableType.MERGE_ON_READ)
    storage = LocalStorage(tmp_path)
    scan = ColumnStatsScan(storage, read_table_config(storage), table_schema(), ["at"])
    scan.scan()
    scan.create(SystemClock())
    plan = rebuild(tmp_path, WANTED)
    slices = MetadataTableSnapshot.load(storage).slices
    assert {each.base_instant for each in slices["column_stats"]} == {plan.instant}
    assert not any(each.log_files for of_it in slices.values() for each in of_it)
    assert_agrees(tmp_path)


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("wanted", [FORMER, WANTED])
def test_a_rebuilt_index_is_that_of_the_rows_and_is_written_on(
    tmp_path: Path, table_type: TableType, wanted: int
) -> None:
    writer = changed_table(tmp_path, table_type)
    before, life = ReadTable(tmp_path).record_index(), index_life(LocalStorage(tmp_path))
    rebuild(tmp_path, wanted)
    assert shards_of(tmp_path) == wanted
    assert index_life(LocalStorage(tmp_path)) not in ("", life), "caches see another index"
    assert ReadTable(tmp_path).record_index() == before
    writer.commit(orders(("k1", DAYS[2], 30), ("new", DAYS[0], 1)), [("k3", 90)])
    assert_agrees(tmp_path)
    assert set(ReadTable(tmp_path).record_index()) == {*before, "new"} - {"k3"}


@pytest.mark.parametrize("place", RebuildFailpoint)
def test_a_killed_switch_leaves_one_of_both_indexes_and_a_successor_ends_it(
    tmp_path: Path, place: RebuildFailpoint
) -> None:
    writer = changed_table(tmp_path, TableType.MERGE_ON_READ)
    before = ReadTable(tmp_path).record_index()
    with pytest.raises(KilledError):
        rebuild(tmp_path, WANTED, killed_at(place))
    is_new = place not in BEFORE
    assert shards_of(tmp_path) == (WANTED if is_new else FORMER)
    assert shards_of_topics(LocalStorage(tmp_path), FORMER) == (WANTED if is_new else FORMER)
    assert ReadTable(tmp_path).record_index() == before
    with held_term(tmp_path, 2) as term:
        # What a coordinator claims first is the number of shards that it found.
        assert settle(term, FORMER) is (NextStep.CLAIM if is_new else NextStep.TAKE_BACK)
        assert settle(term, shards_of(tmp_path)) is (NextStep.FINISH if is_new else NextStep.REST)
    assert begun_rebuild(LocalStorage(tmp_path)) is None
    writer.commit(orders(("k1", DAYS[2], 30), ("new", DAYS[0], 1)))
    assert_agrees(tmp_path)
    rebuild(tmp_path, WANTED, term=3)
    assert_agrees(tmp_path)


@pytest.mark.parametrize(
    ("begun", "switched", "claimed", "step"),
    [
        (False, False, 2, NextStep.REST),
        (True, False, 2, NextStep.TAKE_BACK),
        (True, False, 0, NextStep.TAKE_BACK),
        (True, True, 2, NextStep.CLAIM),
        (True, True, 4, NextStep.FINISH),
        (True, True, 0, NextStep.FINISH),
    ],
)
def test_what_follows_on_a_crash(begun: bool, switched: bool, claimed: int, step: NextStep) -> None:
    document = Rebuild("20261128000000000", 2, 4, (), b"") if begun else None
    assert next_step(document, switched, claimed) is step


def test_a_commit_of_another_writer_during_the_build_throws_the_new_index_away(tmp_path: Path) -> None:
    writer = changed_table(tmp_path, TableType.MERGE_ON_READ)
    storage = LocalStorage(tmp_path)
    plan = plan_rebuild(storage, 4, InstantGenerator(SystemClock()))
    check_not_overtaken(plan, storage)
    writer.commit(orders(("other", DAYS[0], 1)))
    with pytest.raises(TimelineConflictError, match="another writer changed the table"):
        check_not_overtaken(plan, storage)


def test_an_index_of_another_kind_is_named(tmp_path: Path) -> None:
    changed_table(tmp_path, TableType.MERGE_ON_READ)
    storage, name = LocalStorage(tmp_path), "secondary_index_day"
    (tmp_path / ".hoodie/metadata" / name).mkdir()
    definitions = read_index_definitions(storage)
    write_index_definitions(storage, {**definitions, name: secondary_index_definition(name, "day")})
    with pytest.raises(UnsupportedTableError, match=name):
        plan_rebuild(storage, 4, InstantGenerator(SystemClock()))


def test_an_estimate_counts_the_entries_of_base_and_log_files(tmp_path: Path) -> None:
    changed_table(tmp_path, TableType.MERGE_ON_READ)
    storage = LocalStorage(tmp_path)
    assert estimate(storage, MetadataTableSnapshot.load(storage)).entries > 0
    rebuild(tmp_path, 2)
    told: dict[int, int] = {}
    found = estimate(storage, MetadataTableSnapshot.load(storage), told.__setitem__)
    assert found.entries == sum(told.values()) == len(ReadTable(tmp_path).record_index())
    assert found.index_bytes > 0


@pytest.mark.parametrize(
    ("former", "wanted", "lanes", "names"),
    [
        (16, 8, 8, "cannot get fewer"),
        (8, 20, 8, "Choose 16 or 24"),
        (10, 20, 8, "no multiple of 8 lanes"),
        (8, 10_008, 8, "at most 10000"),
    ],
)
def test_a_number_of_shards_that_cannot_be_had_is_refused(
    former: int, wanted: int, lanes: int, names: str
) -> None:
    with pytest.raises(UnsupportedTableError, match=names):
        check_shards(former, wanted, lanes)


def test_numbers_that_keep_every_key_in_its_lane_are_taken() -> None:
    for former, wanted, lanes in ((8, 8, 8), (8, 16, 8), (8, 24, 4), (10, 10, 8)):
        check_shards(former, wanted, lanes)


def test_enough_shards_are_a_number_that_is_taken() -> None:
    assert enough_shards(8, 8, 30_000_000) == 8
    assert enough_shards(8, 8, 100_000_000) == 24
    assert enough_shards(10, 8, 900_000_000) == 10
    check_shards(8, enough_shards(8, 8, 10**12), 8)
