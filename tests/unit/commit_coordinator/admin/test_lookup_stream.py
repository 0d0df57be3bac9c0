"""`LookupStream` as callers see it: the table that batches name, the limit of streams, a call that ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from tests.unit.commit_coordinator.admin_world import WAIT_S, World
from tidemark.admin.v1 import admin_pb2 as pb


class Echo:
    """Answers each batch with the number of its keys; `ended` is set when a stream ends."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def answers(self, batches: Iterable[pb.LookupStreamRequest]) -> Iterator[pb.LookupStreamResponse]:
        try:
            for number, batch in enumerate(batches):
                yield pb.LookupStreamResponse(batch=number, shard=[len(batch.keys)])
        finally:
            self.ended.set()


class Stream:
    """A client that sends a batch when it is told to, and waits for its answer."""

    def __init__(self, world: World) -> None:
        self._batches: SimpleQueue[pb.LookupStreamRequest | None] = SimpleQueue()
        self.call: Any = world.stub.LookupStream(iter(self._batches.get, None), timeout=WAIT_S)

    def ask(self, *keys: str, table: str = "t") -> pb.LookupStreamResponse:
        self._batches.put(pb.LookupStreamRequest(table=table, keys=keys))
        answer: pb.LookupStreamResponse = next(self.call)
        return answer

    def end(self) -> None:
        self._batches.put(None)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def world(echo: Echo) -> Iterator[World]:
    made = World(lookup_stream=echo.answers)
    yield made
    made.close()


def test_each_batch_is_answered_before_the_next_is_sent(world: World, echo: Echo) -> None:
    stream = Stream(world)
    assert (list(stream.ask("a", "b").shard), stream.ask(table="").batch) == ([2], 1)
    stream.end()
    assert list(stream.call) == []
    assert echo.ended.wait(WAIT_S)


@pytest.mark.parametrize("tables", [["other"], [""], ["t", "other"]])
def test_a_batch_of_another_table_ends_the_stream(world: World, tables: list[str]) -> None:
    stream = Stream(world)
    for table in tables[:-1]:
        stream.ask("a", table=table)
    with pytest.raises(grpc.RpcError) as failed:
        stream.ask("a", table=tables[-1])
    stream.end()
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "serves table 't'" in str(failed.value.details())


def test_four_streams_run_at_once_and_an_ended_one_makes_room(world: World, echo: Echo) -> None:
    streams = [Stream(world) for _ in range(4)]
    assert [stream.ask("a").batch for stream in streams] == [0] * 4
    one_more = Stream(world)
    with pytest.raises(grpc.RpcError) as failed:
        one_more.ask("a")
    one_more.end()
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "at most 4 calls of LookupStream" in str(failed.value.details())
    streams[0].call.cancel()
    assert echo.ended.wait(WAIT_S), "a cancelled call ends its generator"
    for stream in streams[1:]:
        assert stream.ask("a").batch == 1
        stream.end()
        assert list(stream.call) == []
    streams[0].end()
