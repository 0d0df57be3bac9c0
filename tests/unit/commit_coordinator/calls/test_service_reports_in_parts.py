"""A worker's report that one message does not hold, from its client to the coordinator, over gRPC."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from testing.clock import ManualClock
from tests.unit.commit_coordinator.calls.test_service_handoff import offered
from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.commit_coordinator.calls.service import SERVICE_NAME, CommitService, Facts
from tidemark.commit_coordinator.calls.service_calls import BadOutcomesError, ServiceCalls
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.config import Address
from tidemark.errors import ErrorKind
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.table_services.operations import MergeOutcome, decode_outcomes, encode_outcomes
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.server import REQUEST_BYTES_MAX, RpcServer, start_server
from tidemark.stream_writer.table_services.services_client import GrpcServices

BYTES_MAX = 32 << 20
"""Of outcomes, unpacked."""


@pytest.fixture
def handoff() -> ServiceHandoff:
    handoff = ServiceHandoff(ManualClock())
    handoff.offer(offered(1))
    handoff.wait_for_work("w", 0)
    return handoff


@pytest.fixture
def server(handoff: ServiceHandoff) -> Iterator[RpcServer]:
    other: Any = None
    facts = Facts("t", 4, 4, 3_000, 1, report_bytes_max=BYTES_MAX)
    service = CommitService(facts, other, other, other, str, other, lambda: True, other, other, handoff)
    add = [(SERVICE_NAME, lambda s: rpc.add_CommitCoordinatorServicer_to_server(service, s))]
    server = start_server(Address("127.0.0.1", 0), add)
    yield server
    server.stop(0.1)


@pytest.fixture
def worker(server: RpcServer) -> Iterator[GrpcServices]:
    client = GrpcServices(server.address, "t", "w", 64 << 20, lambda begun: None)  # type: ignore[arg-type, return-value]
    yield client
    client.close()


def outcomes(count: int) -> list[MergeOutcome]:
    """As an index of many groups has them: each file's digest is its own, and cannot be packed."""
    digests = (hashlib.sha256(str(at).encode()).hexdigest() for at in range(count))
    return [
        MergeOutcome(at, f"{digest[:8]}.hfile", 900, 1, 0, 1, 0, 2, 1, 7, Ticket("d/f", 900, digest, "s/x"))
        for at, digest in enumerate(digests)
    ]


def test_outcomes_of_any_number_arrive_whole_and_once(worker: GrpcServices, handoff: ServiceHandoff) -> None:
    many = outcomes(110_000)
    assert len(zlib.compress(encode_outcomes(tuple(many)))) > REQUEST_BYTES_MAX
    worker.report_service(1, many)
    assert [(news.number, news.failure) for news in handoff.take_news()] == [(1, None)]
    report = handoff.report_of(1)
    assert decode_outcomes(report.outcomes, "the report") == tuple(many)
    assert report.tickets == tuple(outcome.ticket for outcome in many)


def test_outcomes_above_the_limit_are_refused_by_name(worker: GrpcServices, handoff: ServiceHandoff) -> None:
    with pytest.raises(RpcError, match=r"more than 33554432 bytes \(limits.rpc_message_bytes\)") as refused:
        worker.report_service(1, outcomes(200_000))
    assert refused.value.kind is ErrorKind.INVALID
    assert handoff.take_news() == []


def test_an_action_that_is_over_is_refused_in_parts_too(
    worker: GrpcServices, handoff: ServiceHandoff
) -> None:
    handoff.withdraw(1)
    with pytest.raises(RpcError, match="is over") as refused:
        worker.report_service(1, outcomes(110_000))
    assert refused.value.kind is ErrorKind.FENCED


def test_parts_of_two_actions_are_no_report(server: RpcServer, handoff: ServiceHandoff) -> None:
    parts = [pb.ReportServiceRequest(table="t", worker_id="w", number=n, outcomes=b"x") for n in (1, 2)]
    with open_channel(server.address) as channel, pytest.raises(RpcError, match="of another action"):
        call(rpc.CommitCoordinatorStub(channel).ReportServiceInParts, iter(parts))
    assert handoff.take_news() == []


def test_packed_pieces_without_an_end_are_not_kept() -> None:
    """Whatever the pieces say: no more of them are held than the outcomes may have bytes."""
    calls, taken = ServiceCalls(ServiceHandoff(ManualClock()), "ledger", 1_000), 0

    def endless() -> Iterator[pb.ReportServiceRequest]:
        nonlocal taken
        while True:
            taken += 1
            yield pb.ReportServiceRequest(table="t", worker_id="w", number=1, outcomes=bytes(300))

    with pytest.raises(BadOutcomesError, match="more than 1000 bytes"):
        calls.joined(endless())
    assert taken == 4


def test_a_client_that_sends_no_part_is_told_so(server: RpcServer) -> None:
    with open_channel(server.address) as channel, pytest.raises(RpcError) as refused:
        call(rpc.CommitCoordinatorStub(channel).ReportServiceInParts, iter([]))
    assert refused.value.kind is ErrorKind.INVALID
