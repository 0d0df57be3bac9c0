"""Many keys through `LookupStream`, with a server that breaks off and refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.console.errors import CliError
from tidemark.console.key_stream import COLUMNS, KeyStream, answered
from tidemark.stream_runtime.rpc.errors import RpcError

Failure = pb.LookupStreamResponse.Failure
Bound = pb.LookupStreamResponse.Bound
Location = pb.LookupStreamResponse.Location
Answer = Callable[[int, pb.LookupStreamRequest], pb.LookupStreamResponse]


class BrokenError(grpc.RpcError):
    """What gRPC raises of a call with this status."""

    def __init__(self, status: grpc.StatusCode) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return f"{self._status.name} it is"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Server:
    """`answer` gets the number of all batches that were asked, and the batch; it may raise BrokenError."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[list[str]] = []
        self.streams = self.cancelled = 0
        self.pauses: list[float] = []

    def method(self, requests: Iterator[pb.LookupStreamRequest], timeout: float) -> Any:
        self.streams += 1
        return Call(self._answers(requests), self)

    def _answers(self, requests: Iterator[pb.LookupStreamRequest]) -> Iterator[pb.LookupStreamResponse]:
        for request in requests:
            assert (request.table, request.partition) == ("t", "eu")
            self.asked.append(list(request.keys))
            yield self._answer(len(self.asked), request)

    def ask(self, *batches: list[str]) -> list[list[str]]:
        """The keys of the answers."""
        stream = KeyStream(self.method, "t", self.pauses.append, "eu")
        return [answer["key"].to_pylist() for answer in stream.answers(map(pa.array, batches))]


class Call:
    def __init__(self, answers: Iterator[pb.LookupStreamResponse], server: Server) -> None:
        self._answers, self._server = answers, server

    def __next__(self) -> pb.LookupStreamResponse:
        return next(self._answers)

    def cancel(self) -> None:
        self._server.cancelled += 1


def absent(request: pb.LookupStreamRequest) -> pb.LookupStreamResponse:
    count = len(request.keys)
    return pb.LookupStreamResponse(tiers=["none"], tier=[0] * count, location=[0] * count, shard=[0] * count)


BATCHES = [[f"k{number}", "twice"] for number in range(7)]


def test_answers_come_in_the_order_of_the_batches_in_one_stream():
    server = Server(lambda _, request: absent(request))
    assert server.ask(*BATCHES) == BATCHES
    assert (server.asked, server.streams, server.cancelled, server.pauses) == (BATCHES, 1, 1, [])


def test_columns_are_those_of_the_answer():
    answer = pb.LookupStreamResponse(
        epoch=4,
        instant="20260101",
        tiers=["run", "none", "hot"],
        locations=[Location(partition_path="p", file_id="x"), Location(partition_path="", file_id="y")],
        tier=[2, 1, 0],
        location=[2, 0, 1],
        shard=[5, 6, 7],
        ordering=[0, -8, 9],
        bound=[Bound.BOUND_NONE, Bound.BOUND_EXACT, Bound.BOUND_AT_LEAST],
    )
    columns = answered(pa.array(["a", "b", "c"]), answer)
    assert columns.schema == COLUMNS
    both = {"epoch": 4, "instant": "20260101"}
    assert columns.to_pylist() == [
        {"key": "a", "tier": "hot", "partition_path": "", "file_id": "y", "shard": 5}
        | {"ordering": None, "ordering_exact": None, **both},
        {"key": "b", "tier": "none", "partition_path": None, "file_id": None, "shard": 6}
        | {"ordering": -8, "ordering_exact": True, **both},
        {"key": "c", "tier": "run", "partition_path": "p", "file_id": "x", "shard": 7}
        | {"ordering": 9, "ordering_exact": False, **both},
    ]


def test_no_shard_is_told_of_keys_of_a_partition():
    """Each data partition has shards of its own, and how many belongs to no question."""
    server = Server(lambda _, request: absent(request))
    stream = KeyStream(server.method, "t", server.pauses.append, "eu")
    [answer] = stream.answers([pa.array(["a", "b"])])
    assert answer.schema == COLUMNS
    assert answer["shard"].null_count == 2


def test_before_the_first_commit_there_is_no_instant_and_no_column_of_ordering_values():
    [row] = answered(pa.array(["a"]), absent(pb.LookupStreamRequest(keys=["a"]))).to_pylist()
    assert (row["epoch"], row["instant"], row["ordering"]) == (0, None, None)


def failing_once(error: Exception | Failure) -> Answer:
    def answer(number: int, request: pb.LookupStreamRequest) -> pb.LookupStreamResponse:
        if number == 3:
            if isinstance(error, Exception):
                raise error
            return pb.LookupStreamResponse(failure=error)
        return absent(request)

    return answer


@pytest.mark.parametrize(
    "error",
    [
        BrokenError(grpc.StatusCode.UNAVAILABLE),
        BrokenError(grpc.StatusCode.CANCELLED),
        BrokenError(grpc.StatusCode.RESOURCE_EXHAUSTED),
        Failure(reason="LANE_NOT_OPEN", text="a lane moves", retry=True),
    ],
)
def test_what_helps_later_is_asked_again_with_all_batches_under_way(error: Any):
    server = Server(failing_once(error))
    assert server.ask(*BATCHES) == BATCHES
    # Numbers 0 and 1 were answered, 2 failed: from then on all are asked anew, in their order.
    assert server.asked == [*BATCHES[:3], *BATCHES[2:]]
    assert (server.streams, server.pauses) == (2, [0.2])


def test_it_gives_up_with_the_reason_when_it_never_helps():
    failure = Failure(reason="NO_ASSIGNER", text="no assigner holds lane 3", retry=True)
    server = Server(lambda *_: pb.LookupStreamResponse(failure=failure))
    with pytest.raises(CliError, match="no assigner holds lane 3") as failed:
        server.ask(*BATCHES)
    assert failed.value.exit_code == 1
    assert len(server.pauses) == 7
    assert server.cancelled == server.streams == 8


def test_what_never_helps_is_not_asked_again():
    refused = Server(failing_once(Failure(reason="BAD_REQUEST", text="too many keys")))
    with pytest.raises(CliError, match="too many keys") as failed:
        refused.ask(*BATCHES)
    assert (failed.value.exit_code, refused.streams) == (2, 1)
    denied = Server(failing_once(BrokenError(grpc.StatusCode.PERMISSION_DENIED)))
    with pytest.raises(RpcError, match="PERMISSION_DENIED"):
        denied.ask(*BATCHES)
    assert denied.streams == 1


def test_an_answer_that_is_too_short_is_no_answer():
    server = Server(lambda *_: pb.LookupStreamResponse(tiers=["none"], tier=[0], location=[0], shard=[0]))
    with pytest.raises(CliError, match="answered 1 of 2 keys"):
        server.ask(*BATCHES)


def test_a_stream_that_ends_early_is_told():
    class Ended(Server):
        def _answers(self, requests: Any) -> Iterator[pb.LookupStreamResponse]:
            yield absent(next(requests))

    with pytest.raises(CliError, match="ended the stream"):
        Ended(lambda _, request: absent(request)).ask(*BATCHES)
