"""Lanes of an assigner that share a partitioned index, while another writer changes the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.hudi_format.metadata_table.test_partitioned_index import Identity, PartitionedTable
from tests.unit.hudi_format.metadata_tables import file_id
from tests.unit.index_assigner.index.test_partitioned_model import KEYS, LANES, Process, by_lane
from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.timeline import Timeline
from tidemark.index_assigner.index.errors import IndexOutdatedError, LaneNotOpenError
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.replaced_groups import ReplacedGroups
from tidemark.index_assigner.index.shards import ShardStore


def test_each_lane_takes_in_what_another_writer_deleted(tmp_path: Path) -> None:
    """The first lane that finds a row gone looks at the table again. The units of the other one are of before
    that look.
    """
    table, of_lane = PartitionedTable(), by_lane([("eu", key) for key in KEYS])
    rows = [of_lane[lane][0] for lane in range(LANES)]
    table.commit(dict.fromkeys(rows, 1), 2)
    process = Process(table, tmp_path / "cache", ordered=True)
    assert process.ask(rows) == dict.fromkeys(rows, 1)
    table.commit(dict.fromkeys(rows), 2)
    for lane, row in enumerate(rows):
        keys, _ = process.columns([row])
        at = np.array([process.locations.intern("eu", file_id(1))], np.int32)
        assert process.ask([row]) == {row: 1}
        with pytest.raises(IndexOutdatedError):
            process.index.exact_ordering(lane, keys, at)
        assert process.ask([row]) == {}
    process.close()


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def some_of_lane(lane: int) -> tuple[Identity, Identity]:
    """Two rows of the lane, of different partitions."""
    return tuple(by_lane([(path, key) for key in KEYS])[lane][0] for path in ("eu", "us/ca"))  # type: ignore[return-value]


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_a_lane_whose_reload_failed_knows_nothing_of_what_it_had_when_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed_first: bool
) -> None:
    """Index files are gone, and the table cannot be listed either. The epoch that moves the row is promoted
    while the lane is closed.
    """
    table, (row, other) = PartitionedTable(), some_of_lane(0)
    table.commit({row: 1, other: 1}, 1)
    process = Process(table, tmp_path / "cache")
    process.stage({row: 1}, 1)
    process.commit({row: 1}, 1, 1, 1)
    assert process.ask([row]) == {row: 1}
    [(answer, at)] = process.answers([row]).values()
    assert answer.tier[at] == Tier.HOT
    process.stage({row: 2}, 2)
    with monkeypatch.context() as failing:
        failing.setattr(ShardStore, "open", raising(FileMissingError("a log file is gone")))
        failing.setattr(MetadataTableSnapshot, "load", raising(TimelineConflictError("it changes")))
        with pytest.raises(TimelineConflictError):
            process.ask([other])
    assert process.index.open_lanes() == {1}
    assert not [held for held in process.index._open.values() if held.number == 0]
    with pytest.raises(LaneNotOpenError):
        process.ask([row])
    process.commit({row: 2}, 2, 2, 1)
    if is_closed_first:
        process.index.close_lane(0)
    process.index.open_lane(0, MetadataTableSnapshot.load(table.storage))
    assert process.ask([row, other]) == {row: 2, other: 1}
    process.close()


def test_a_lane_that_is_opened_twice_knows_nothing_of_the_first_opening(tmp_path: Path) -> None:
    table, (row, _) = PartitionedTable(), some_of_lane(0)
    table.commit({row: 1}, 1)
    process = Process(table, tmp_path / "cache")
    process.stage({row: 1}, 1)
    process.commit({row: 1}, 1, 1, 1)
    assert process.ask([row]) == {row: 1}
    table.commit({row: 2}, 1)
    process.index.open_lane(0, MetadataTableSnapshot.load(table.storage))
    assert process.ask([row]) == {row: 2}
    process.close()


def test_a_timeline_that_changes_while_a_lane_is_opened_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, (row, _) = PartitionedTable(), some_of_lane(0)
    table.commit({row: 1}, 1)
    process, look = Process(table, tmp_path / "cache"), ReplacedGroups.look
    failed: list[Timeline] = []

    def fails_once(replaced: ReplacedGroups, timeline: Timeline) -> None:
        if not failed:
            failed.append(timeline)
            raise FileMissingError("an instant was archived")
        look(replaced, timeline)

    monkeypatch.setattr(ReplacedGroups, "look", fails_once)
    process.index.open_lane(0, MetadataTableSnapshot.load(table.storage))
    assert (len(failed), process.ask([row])) == (1, {row: 1})
    monkeypatch.setattr(ReplacedGroups, "look", raising(FileMissingError("an instant was archived")))
    with pytest.raises(TimelineConflictError, match="vanished"):
        process.index.open_lane(0, MetadataTableSnapshot.load(table.storage))
    assert process.index.open_lanes() == {1}
    process.close()
