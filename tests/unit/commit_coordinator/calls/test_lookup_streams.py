"""`LookupStream` over assigners on real servers: what the batches' answers are put together from."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.assigner.v1 import assigner_pb2, assigner_pb2_grpc
from tidemark.commit_coordinator.calls.lookup_streams import LookupStreams
from tidemark.commit_coordinator.calls.lookups import KeyLookups, LaneHolders, NoAssignerError
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.warming import IndexWarming
from tidemark.commit_coordinator.refusals import BadRequestError
from tidemark.config.model import Address
from tidemark.errors import ErrorKind
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.rpc.server import start_server

SHARDS, LANES = 8, 4
KEYS = [f"key-{number}" for number in range(50)]
BOUND = pb.LookupStreamResponse.Bound
Found = assigner_pb2.LookupResponse.Found


class BusyError(StreamRuntimeError):
    """An assigner that has no time."""

    kind = ErrorKind.RETRYABLE


class FakeAssigner(assigner_pb2_grpc.IndexAssignerServicer):
    """Has a row for every second key; `closed`: how many calls find its lanes not open yet."""

    def __init__(self, name: str, epoch: int) -> None:
        self.name, self.epoch, self.closed = name, epoch, 0
        self.asked: list[list[str]] = []
        self.partitions: list[str] = []
        self.error: Exception | None = None
        self.cut = False

    def LookupBatch(self, request: Any, _: object) -> assigner_pb2.LookupBatchResponse:  # noqa: N802
        offsets = np.frombuffer(request.offsets, "<i4").tolist()
        keys = [request.data[a:b].decode() for a, b in pairwise(offsets)]
        self.asked.append(keys)
        if request.HasField("partition"):
            self.partitions.append(request.partition)
        if self.error is not None:
            raise self.error
        if self.closed:
            self.closed -= 1
            count = len(keys)
            no_tier, no_place = b"\xff" * count, b"\xff" * 4 * count
            return assigner_pb2.LookupBatchResponse(
                tier=no_tier, location=no_place, ordering=bytes(8 * count), bound=bytes(count)
            )
        numbers = np.array([int(key.rpartition("-")[2]) for key in keys])
        has_row = numbers % 2 == 0
        return assigner_pb2.LookupBatchResponse(
            tier=has_row[self.cut :].astype("i1").tobytes(),
            location=np.where(has_row, numbers % 3, -1).astype("<i4").tobytes(),
            ordering=np.where(has_row, numbers, 0).astype("<i8").tobytes(),
            bound=np.where(has_row, 1 + numbers // 2 % 2, 0).astype("i1").tobytes(),
            tiers=["none", "run"],
            partition_paths=["p0", "p1", "p2"],
            file_ids=[f"{self.name}-{number}" for number in range(3)],
            epoch=self.epoch,
            instant=f"i{self.epoch}",
        )

    def Warm(self, request: Any, _: object) -> assigner_pb2.WarmResponse:  # noqa: N802
        left = 2 if request.start else 1
        return assigner_pb2.WarmResponse(shards=4, loaded=4 - left, left=left, entries=5, entries_max=9)

    def Lookup(self, request: Any, _: object) -> assigner_pb2.LookupResponse:  # noqa: N802
        self.asked.append(list(request.keys))
        return assigner_pb2.LookupResponse(found=[Found(key=key, tier="run") for key in request.keys])


class World:
    """Two assigners, each with two lanes."""

    def __init__(self, kind: IndexKind = IndexKind.GLOBAL) -> None:
        self.assigners = [FakeAssigner("a", 9), FakeAssigner("b", 7)]
        service = assigner_pb2.DESCRIPTOR.services_by_name["IndexAssigner"].full_name
        self.servers = [
            start_server(
                Address("127.0.0.1", 0),
                [(service, lambda s, one=one: assigner_pb2_grpc.add_IndexAssignerServicer_to_server(one, s))],  # type: ignore[misc]
            )
            for one in self.assigners
        ]
        self.holder = {str(lane): lane % 2 for lane in range(LANES)}
        members = SimpleNamespace(holder=lambda _, lane: self._member(lane))
        holders = LaneHolders(cast(Members, members))
        asked = AskedLanes(kind, SHARDS, LANES)
        self.clock = ManualClock()
        self.streams = LookupStreams("t", holders, asked, self.clock)
        self.single = KeyLookups("t", holders, asked)

    def _member(self, lane: str) -> Any:
        if lane not in self.holder:
            return None
        return SimpleNamespace(address=str(self.servers[self.holder[lane]].address))

    def ask(self, *batches: list[str]) -> list[pb.LookupStreamResponse]:
        return list(self.streams.answers(pb.LookupStreamRequest(table="t", keys=keys) for keys in batches))

    def close(self) -> None:
        for server in self.servers:
            server.stop(0.0)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def owner(key: str) -> str:
    return "ab"[int(record_index_shard(pa.array([key]), SHARDS)[0]) % LANES % 2]


def test_columns_of_several_assigners_come_in_the_order_of_the_keys(world: World) -> None:
    asked = [*KEYS, KEYS[4]]
    [first, second] = world.ask(asked, [KEYS[2]])
    assert (first.batch, second.batch) == (0, 1)
    assert not first.HasField("failure")
    for at, key in enumerate(asked):
        number = int(key.rpartition("-")[2])
        has_row = number % 2 == 0
        assert first.tiers[first.tier[at]] == ("run" if has_row else "none")
        assert (first.location[at] > 0) == has_row
        if has_row:
            place = first.locations[first.location[at] - 1]
            assert (place.partition_path, place.file_id) == (f"p{number % 3}", f"{owner(key)}-{number % 3}")
        assert first.ordering[at] == (number if has_row else 0)
        of_row = BOUND.BOUND_EXACT if number // 2 % 2 else BOUND.BOUND_AT_LEAST
        assert first.bound[at] == (of_row if has_row else BOUND.BOUND_NONE)
    assert list(first.shard) == record_index_shard(pa.array(asked), SHARDS).tolist()
    assert (first.epoch, first.instant) == (7, "i7"), "the epoch that every answer includes"
    assert len(second.locations) == 3, "nothing of the batch before"


def test_without_ordering_values_there_are_no_such_columns(world: World) -> None:
    [answer] = world.ask(["key-1", "key-3"])
    assert (list(answer.ordering), list(answer.bound), list(answer.tier)) == ([], [], [0, 0])


def test_an_empty_batch_has_an_empty_answer(world: World) -> None:
    [answer] = world.ask([])
    assert not answer.HasField("failure")
    assert list(answer.tier) == []


def test_a_lane_that_is_just_opened_is_asked_again_for_its_keys_alone(world: World) -> None:
    world.assigners[1].closed = 2
    [answer] = world.ask(KEYS)
    assert not answer.HasField("failure")
    assert len(world.assigners[0].asked) == 1
    theirs = sorted(key for key in KEYS if owner(key) == "b")
    assert [sorted(keys) for keys in world.assigners[1].asked] == [theirs] * 3


def test_a_batch_that_cannot_be_answered_says_why_and_the_stream_goes_on(world: World) -> None:
    def batches() -> Iterator[pb.LookupStreamRequest]:
        yield pb.LookupStreamRequest(keys=KEYS)
        world.assigners[0].error = BusyError("no time")
        yield pb.LookupStreamRequest(keys=KEYS)
        world.assigners[0].error, world.assigners[1].closed = None, 1_000
        yield pb.LookupStreamRequest(keys=KEYS)
        world.assigners[1].closed = 0
        lane = world.holder.pop("2")
        yield pb.LookupStreamRequest(keys=KEYS)
        world.holder["2"] = lane
        yield pb.LookupStreamRequest(keys=["x"] * 10_001)
        yield pb.LookupStreamRequest(keys=["fits", "y" * 32_768])
        yield pb.LookupStreamRequest(keys=["z" * 400] * 8_000)
        world.assigners[0].cut = True
        yield pb.LookupStreamRequest(keys=KEYS)
        world.assigners[0].cut = False
        yield pb.LookupStreamRequest(keys=KEYS)

    answers = list(world.streams.answers(batches()))
    assert [answer.batch for answer in answers] == list(range(9))
    told = [(a.failure.reason, a.failure.retry) for a in answers]
    assert told == [
        ("", False),
        ("BUSY", True),
        ("LANE_NOT_OPEN", True),
        ("NO_ASSIGNER", True),
        ("BAD_REQUEST", False),
        ("BAD_REQUEST", False),
        ("BAD_REQUEST", False),
        ("LOOKUP_ANSWER", False),
        ("", False),
    ]
    assert "no time" in answers[1].failure.text
    assert "10001 keys" in answers[4].failure.text
    assert "key 1 of the batch" in answers[5].failure.text
    assert "3200000 bytes" in answers[6].failure.text
    assert all(not answer.tier for answer in answers[1:8])


def test_a_defect_ends_the_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LaneHolders, "address", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.ask(KEYS)


def test_single_look_ups_of_many_keys_are_divided_by_what_an_assigner_takes(world: World) -> None:
    keys = [f"key-{number}" for number in range(2_500)]
    assert [found.key for found in world.single.lookup(keys)] == keys
    for one in world.assigners:
        assert [len(asked) for asked in one.asked][:1] == [1_000]
    assert sum(len(asked) for one in world.assigners for asked in one.asked) == len(keys)


def test_all_assigners_are_asked_to_load_their_shards(world: World) -> None:
    members = [SimpleNamespace(address=str(server.address)) for server in world.servers]
    found = list(members)
    warming = IndexWarming("t", 16, cast(Members, SimpleNamespace(members=lambda _: found)))
    wanted = pb.WarmIndexResponse(shards=8, loaded=4, left=4, entries=10, entries_max=18, table_shards=16)
    assert warming.warm(start=True) == wanted
    assert warming.warm(start=False).left == 2
    found.clear()
    with pytest.raises(NoAssignerError):
        warming.warm(start=True)


def test_keys_of_a_partitioned_index_go_to_the_lanes_of_their_partition() -> None:
    world = World(IndexKind.PARTITIONED)
    batch = pb.LookupStreamRequest(table="t", keys=KEYS, partition="eu")
    [answer] = world.streams.answers([batch])
    assert not answer.HasField("failure")
    lanes = identity_lanes(pa.array(KEYS), np.zeros(len(KEYS), np.int32), ["eu"], LANES)
    for number, assigner in enumerate(world.assigners):
        assert sorted(assigner.asked[0]) == sorted(np.array(KEYS)[lanes % 2 == number])
        assert assigner.partitions == ["eu"]
    assert not any(answer.shard)
    assert [found.key for found in world.single.lookup(KEYS[:5], "eu")] == KEYS[:5]
    world.close()


@pytest.mark.parametrize(
    ("kind", "partition", "text"),
    [
        (IndexKind.PARTITIONED, None, "name the partition of the keys"),
        (IndexKind.GLOBAL, "eu", "ask without a partition"),
    ],
)
def test_a_partition_that_does_not_fit_the_index_is_a_bad_request(
    kind: IndexKind, partition: str | None, text: str
) -> None:
    world = World(kind)
    batch = pb.LookupStreamRequest(table="t", keys=KEYS, partition=partition)
    [answer] = world.streams.answers([batch])
    assert (answer.failure.reason, answer.failure.retry) == ("BAD_REQUEST", False)
    assert text in answer.failure.text
    with pytest.raises(BadRequestError, match=text):
        world.single.lookup(KEYS, partition)
    assert not any(assigner.asked for assigner in world.assigners)
    world.close()
