"""Lanes of a global index that cannot be brought to a newer snapshot when they have to be are closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.index_assigner.index_world import LANES, MANY, Assigner, Change, DataTable, load_runs
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, TimelineConflictError
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.index_assigner.index.errors import LaneNotOpenError
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.shards import ShardStore
from tidemark.index_assigner.index.tier_reads import TierReads

PLACES = {key: group for key, (group, _) in MANY.items()}


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def places(one: Assigner) -> dict[str, int | None]:
    return {key: found.group for key, found in one.ask(list(MANY)).items()}


def test_a_lane_whose_reload_fails_gives_its_entries_in_memory_and_its_files_back(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = assigners(table).open()
    load_runs(one, list(MANY))
    assert one.index.stats()["run_shards"] == table.shards
    mine = one.by_lane(list(MANY))[0]
    with monkeypatch.context() as failing:
        failing.setattr(TierReads, "uncommitted", raising(FileMissingError("a base file is gone")))
        failing.setattr(MetadataTableSnapshot, "load", raising(TimelineConflictError("it changes")))
        with pytest.raises(TimelineConflictError):
            one.ask(mine)
    assert one.index.open_lanes() == {1}
    # Lane 0 has the shards 0 and 2.
    assert one.index.stats()["run_shards"] == 1
    assert set(one.index._hot._rows["shard"][list(one.index._hot._slots.values())].tolist()) <= {1}
    with pytest.raises(LaneNotOpenError):
        one.ask(mine)
    one.open()
    assert places(one) == PLACES


def test_a_lane_that_is_opened_half_way_gives_its_files_back_when_it_is_closed(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = assigners(table).open()
    load_runs(one, list(MANY))
    for lane in range(LANES):
        one.index.close_lane(lane)
    open_shard = ShardStore.open

    def first_alone(store: ShardStore, number: int, *parts: object) -> object:
        if number:
            raise FileMissingError("a log file is gone")
        return open_shard(store, number, *parts)  # type: ignore[arg-type]

    with monkeypatch.context() as failing:
        failing.setattr(ShardStore, "open", first_alone)
        with pytest.raises(TimelineConflictError):
            one.index.open_lane(0, table.snapshot())
    one.index.close_lane(0)
    assert one.index.stats()["run_shards"] == 0
    one.open()
    assert places(one) == PLACES


def full(assigners, table: DataTable) -> Assigner:
    """An assigner whose RocksDB takes more than all that it may, so that each promotion empties shards."""
    one: Assigner = assigners(table, limits=IndexLimits(16 << 20, 1)).open()
    one.stage({"new": Change(1, 500)})
    one.index.counted(range(LANES), 5)
    return one


def test_a_promotion_goes_on_where_a_shard_that_it_emptied_cannot_be_opened_again_now(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = full(assigners, table)
    with monkeypatch.context() as failing:
        failing.setattr(MetadataTableSnapshot, "load", raising(TimelineConflictError("it changes")))
        one.index.promote(5, table.commit_rows({"new": (1, 500)}), 1)
    assert one.index.open_lanes() == set()
    one.open()
    assert places(one) == PLACES
    assert one.ask(["new"])["new"].group == 1


def test_a_promotion_ends_with_an_error_that_no_other_try_cures(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = full(assigners, table)
    completion = table.commit_rows({"new": (1, 500)})
    monkeypatch.setattr(MetadataTableSnapshot, "load", raising(CorruptFileError("damaged")))
    with pytest.raises(CorruptFileError):
        one.index.promote(5, completion, 1)
