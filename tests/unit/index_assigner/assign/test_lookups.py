"""Look-ups through the assigner's queue: what the loop answers and when, and the handlers' messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tests.unit.index_assigner.dict_index import DictIndex, Known
from tidemark.assigner.v1 import assigner_pb2 as pb
from tidemark.epoch_protocol.state import Committed
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.assign.lookups import (
    BadLookupError,
    LookupBusyError,
    LookupQueue,
    LookupService,
)
from tidemark.index_assigner.assign.warming import NotWarmedError, WarmRequests
from tidemark.index_assigner.domain.locations import NO_LOCATION, Locations
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.stream_runtime.clock import SystemClock

SHARDS, LANES = 6, 3
T = TypeVar("T")


class World:
    """An index of 40 keys of which every third has a row, with the loop's side of the queue."""

    def __init__(self, clock: Any = None) -> None:
        self.locations = Locations(4)
        self.keys = [f"key-{number}" for number in range(40)]
        places = [self.locations.intern(f"p{number % 2}", f"file-{number % 5}") for number in range(10)]
        self.known = {
            key: Known(places[number % 10], number, exact=number % 2 == 0)
            for number, key in enumerate(self.keys)
            if number % 3 == 0
        }
        self.known["key-1"] = Known(NO_LOCATION, 7, True)
        self.asked: list[tuple[int, int]] = []
        self.slow: Callable[[], None] = lambda: None
        self.index = DictIndex(self.locations, lambda lane: self.known)
        for lane in range(LANES):
            self.index.open_lane(lane, None)  # type: ignore[arg-type]
        self.queue = LookupQueue(
            AskedLanes(IndexKind.GLOBAL, SHARDS, LANES), self.locations, clock or SystemClock()
        )
        self.service = LookupService("t", self.queue, self.locations, WarmRequests())

    def open_lanes(self) -> set[int]:
        return self.index.open_lanes()

    def lookup(self, lane: int, keys: Any, shards: Any) -> Any:
        assert (shards % LANES == lane).all()
        self.asked.append((lane, len(keys)))
        self.slow()
        return self.index.lookup(lane, keys, shards)

    def round(self, lanes: Collection[int] = range(LANES), epoch: int = 3) -> None:
        self.queue.answer(self, lanes, Committed(epoch=epoch, instant="20260101"))  # type: ignore[arg-type]

    def answered(self, ask: Callable[[], T], lanes: Collection[int] = range(LANES)) -> T:
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(ask)
            while not asked.done():
                self.round(lanes)
            return asked.result()


def batch(keys: list[str], table: str = "t") -> pb.LookupBatchRequest:
    data = [key.encode() for key in keys]
    offsets = np.cumsum([0, *map(len, data)]).astype("<i4").tobytes()
    return pb.LookupBatchRequest(table=table, data=b"".join(data), offsets=offsets)


def test_columns_say_the_same_as_single_answers():
    world = World()
    asked = ["key-3", "nobody", "key-1", "key-6", "key-3", "key-0"]
    columns = world.answered(lambda: world.service.LookupBatch(batch(asked), None))
    single = world.answered(lambda: world.service.Lookup(pb.LookupRequest(table="t", keys=asked), None))
    by_key = {found.key: found for found in single.found}
    assert [found.key for found in single.found] == list(dict.fromkeys(asked))
    location = np.frombuffer(columns.location, "<i4")
    ordering, bound = np.frombuffer(columns.ordering, "<i8"), np.frombuffer(columns.bound, "i1")
    for at, key in enumerate(asked):
        found = by_key[key]
        assert columns.tiers[columns.tier[at]] == found.tier
        place = (
            (columns.partition_paths[location[at]], columns.file_ids[location[at]])
            if location[at] >= 0
            else ("", "")
        )
        assert place == (found.partition_path, found.file_id)
        assert ordering[at] == found.ordering
        assert bound[at] == found.has_ordering + (found.has_ordering and found.ordering_exact)
    assert [by_key[key].tier for key in ("key-3", "nobody", "key-1")] == ["rocksdb", "none", "none"]
    assert (bound[2], ordering[2]) == (2, 7), "the tombstone's value"
    assert (columns.epoch, columns.instant) == (3, "20260101")
    assert len(columns.file_ids) == len(set(zip(columns.partition_paths, columns.file_ids, strict=True))) == 3


def test_keys_of_a_lane_that_is_not_open_have_no_tier():
    world = World()
    columns = world.answered(lambda: world.service.LookupBatch(batch(world.keys), None), [0, 2])
    lanes = record_index_shard(pa.array(world.keys), SHARDS) % LANES
    assert [tier == 255 for tier in columns.tier] == (lanes == 1).tolist()
    assert {lane for lane, _ in world.asked} == {0, 2}


def test_an_empty_batch_has_an_empty_answer():
    world = World()
    columns = world.answered(lambda: world.service.LookupBatch(batch([]), None))
    assert (columns.tier, columns.location, list(columns.file_ids)) == (b"", b"", [])


def test_a_round_answers_one_part_when_its_time_is_over_and_goes_on_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
):
    clock = ManualClock()
    world = World(clock)
    monkeypatch.setattr("tidemark.index_assigner.assign.lookups._PART_KEYS", 4)
    world.slow = lambda: clock.advance(0.03)  # a part takes longer than a round may
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(world.queue.ask, pa.array(world.keys), timeout_s=1e9)
        while not world.asked:
            world.round(epoch=3)
        parts = 1
        while not asked.done():
            world.round(epoch=4)
            assert len(world.asked) <= parts + 1, "one part a round"
            parts = len(world.asked)
        answer = asked.result()
    assert sum(keys for _, keys in world.asked) == len(world.keys)
    assert max(keys for _, keys in world.asked) <= 4
    assert answer.committed.epoch == 3, "the epoch that every part includes"
    assert (answer.tier >= 0).all()


def test_a_question_that_nobody_waits_for_is_not_answered():
    clock = ManualClock()
    world = World(clock)
    with pytest.raises(LookupBusyError):
        world.queue.ask(pa.array(world.keys), timeout_s=0.0)
    world.round()
    assert world.asked == []


def test_the_queue_is_bounded():
    world = World(ManualClock())
    for _ in range(16):
        with pytest.raises(LookupBusyError, match="busy"):
            world.queue.ask(pa.array(["a"]), timeout_s=0.0)
    with pytest.raises(LookupBusyError, match="too many"):
        world.queue.ask(pa.array(["a"]), timeout_s=0.0)


def test_a_failed_look_up_fails_the_question_and_not_the_next(monkeypatch: pytest.MonkeyPatch):
    world = World()

    def fail() -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as failing:
        failing.setattr(world, "slow", fail)
        with pytest.raises(KeyError):
            world.answered(lambda: world.queue.ask(pa.array(world.keys)))
    assert (world.answered(lambda: world.queue.ask(pa.array(world.keys))).tier >= 0).all()


def test_a_question_about_a_lane_that_the_index_closed_is_to_be_asked_again():
    world = World()
    world.index.close_lane(1)
    with pytest.raises(LookupBusyError, match="lane 1 is being opened again"):
        world.answered(lambda: world.queue.ask(pa.array(world.keys)))
    world.index.open_lane(1, None)  # type: ignore[arg-type]
    assert (world.answered(lambda: world.queue.ask(pa.array(world.keys))).tier >= 0).all()


def test_the_loop_waits_shortly_for_input_while_look_ups_come():
    clock = ManualClock()
    world = World(clock)
    assert world.queue.wait_s(0.05) == 0.05
    world.answered(lambda: world.queue.ask(pa.array(["key-3"]), timeout_s=1e9))
    assert world.queue.wait_s(0.05) == 0.005
    assert world.queue.wait_s(0.0) == 0.0
    clock.advance(1.0)
    assert world.queue.wait_s(0.05) == 0.05


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (batch(["a"], table="other"), "serves table 't', not 'other'"),
        (batch(["a"] * 10_001), "10001 keys at once"),
        (pb.LookupBatchRequest(table="t", data=b"ab", offsets=b"123"), "do not fit"),
        (pb.LookupBatchRequest(table="t", data=b"ab", offsets=struct.pack("<3i", 0, 2, 1)), "do not fit"),
        (pb.LookupBatchRequest(table="t", data=b"ab", offsets=struct.pack("<2i", 0, 900)), "do not fit"),
        (pb.LookupBatchRequest(table="t", data=b"\xff\xff", offsets=struct.pack("<2i", 0, 2)), "do not fit"),
    ],
)
def test_bad_requests_are_refused(request_: pb.LookupBatchRequest, said: str):
    with pytest.raises(BadLookupError, match=said):
        World().service.LookupBatch(request_, None)


def test_a_thousand_keys_are_the_limit_of_single_answers():
    with pytest.raises(BadLookupError, match="1001 keys"):
        World().service.Lookup(pb.LookupRequest(table="t", keys=["a"] * 1_001), None)


class PartitionedWorld(World):
    """The same row keys in two partitions of a partitioned index, each in a file group of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_lanes = AskedLanes(IndexKind.PARTITIONED, 0, LANES)
        self.queue = LookupQueue(self.asked_lanes, self.locations, SystemClock())
        self.service = LookupService("t", self.queue, self.locations, WarmRequests())

    def lookup(self, lane: int, keys: Any, shards: Any) -> Any:
        path = self.locations.partition_names[shards[0]]
        assert (shards == shards[0]).all()
        assert (self.asked_lanes.shards_and_lanes(keys, path)[1] == lane).all()
        place = self.locations.intern(path, f"file-of-{path}")
        known = {f"key-{number}": Known(place, number, True) for number in range(40)}
        index = DictIndex(self.locations, lambda lane: known if path in ("eu", "us") else {})
        index.open_lane(lane, None)  # type: ignore[arg-type]
        return index.lookup(lane, keys, shards)


def test_a_key_of_a_partitioned_index_is_looked_up_in_the_partition_that_is_named():
    world = PartitionedWorld()
    for path in ("eu", "us"):
        request = pb.LookupRequest(table="t", keys=world.keys, partition=path)
        found = world.answered(lambda: world.service.Lookup(request, None)).found  # noqa: B023
        assert {(one.partition_path, one.file_id, one.shard) for one in found} == {
            (path, f"file-of-{path}", 0)
        }
        columns = batch(world.keys)
        columns.partition = path
        answer = world.answered(lambda: world.service.LookupBatch(columns, None))  # noqa: B023
        assert list(answer.partition_paths) == [path]
        assert set(np.frombuffer(answer.location, "<i4").tolist()) == {0}
    elsewhere = pb.LookupRequest(table="t", keys=["key-1"], partition="new")
    [nobody] = world.answered(lambda: world.service.Lookup(elsewhere, None)).found
    assert (nobody.tier, nobody.file_id) == ("none", "")


class NoPartitions(PartitionedWorld):
    """A table without the partitions that are asked for."""

    def lookup(self, lane: int, keys: Any, shards: Any) -> Any:
        return self.index.lookup(lane, keys, shards)


def test_partitions_that_the_table_does_not_have_leave_nothing_behind():
    """Anyone who may look up a key can name any text, for ever."""
    world = NoPartitions()
    names = world.locations.partition_names
    before = len(names)
    for number in range(50):
        request = pb.LookupRequest(table="t", keys=["key-1"], partition=f"no-{number}")
        world.answered(lambda: world.service.Lookup(request, None))  # noqa: B023
    assert len(names) <= before + 1
    # One of them comes to be, and another is asked for: each keeps its own name.
    there = world.locations.intern_partition("no-49")
    assert names[world.locations.asked_partition("no-49")] == "no-49"
    assert world.locations.asked_partition("no-49") == there
    assert names[world.locations.asked_partition("no-50")] == "no-50"
    assert names[there] == "no-49"


def test_a_partition_is_named_exactly_where_the_index_is_partitioned():
    world = PartitionedWorld()
    for call in (
        lambda: world.service.Lookup(pb.LookupRequest(table="t", keys=["a"]), None),
        lambda: world.service.LookupBatch(batch(["a"]), None),
    ):
        with pytest.raises(BadLookupError, match="name the partition of the keys"):
            call()
    with pytest.raises(BadLookupError, match="ask without a partition"):
        World().service.Lookup(pb.LookupRequest(table="t", keys=["a"], partition="eu"), None)


def test_a_partitioned_index_is_not_warmed():
    with pytest.raises(NotWarmedError):
        PartitionedWorld().service.Warm(pb.WarmRequest(table="t", start=True), None)
