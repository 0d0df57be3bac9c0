"""The calls about service actions, against a server that keeps what it is told."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.commit.v1 import commit_pb2, commit_pb2_grpc
from tidemark.config.model import Address
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.table_services.operations import (
    CompactionPlan,
    MergeOperation,
    MergeOutcome,
    decode_outcomes,
    encode_plan,
)
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer.table_services.bins import Blame, MergeFailed
from tidemark.stream_writer.table_services.services_client import GrpcServices, read_plan
from tidemark.stream_writer.table_services.services_loop import BegunService, PlannedService

OPERATION = MergeOperation("p", "g", "1", None, ("a", "b"), 5, 0)
PLAN = CompactionPlan("20260101000000000", True, "{}", (OPERATION,))
OUTCOME = MergeOutcome(0, "n", 1, 1, 0, 0, 0, 0, 1, 2**64 - 1)


class Servicer(commit_pb2_grpc.CommitCoordinatorServicer):
    def __init__(self) -> None:
        self.reports: list[commit_pb2.ReportServiceRequest] = []
        self.is_free = True

    def NextService(self, request: Any, _: object) -> commit_pb2.NextServiceResponse:  # noqa: N802
        assert (request.table, request.worker_id, request.wait_ms) == ("t", "w", 10)
        return commit_pb2.NextServiceResponse(
            available=self.is_free, number=3, kind="compact-index", instant=PLAN.instant
        )

    def BeginService(self, request: Any, context: Any) -> commit_pb2.BeginServiceResponse:  # noqa: N802
        if request.number != 3:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another worker has it")
        return commit_pb2.BeginServiceResponse(
            number=3, plan_path="plan", token="token", share=0.5, behind=True
        )

    def ReportService(self, request: Any, _: object) -> commit_pb2.ReportServiceResponse:  # noqa: N802
        self.reports.append(request)
        return commit_pb2.ReportServiceResponse()


@pytest.fixture
def servicer() -> Servicer:
    return Servicer()  # type: ignore[abstract]


@pytest.fixture
def client(servicer: Servicer) -> Iterator[GrpcServices]:
    server = grpc.server(ThreadPoolExecutor(2))
    commit_pb2_grpc.add_CommitCoordinatorServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    services = GrpcServices(Address("127.0.0.1", port), "t", "w", 4 << 20, lambda begun: PLAN)
    yield services
    services.close()
    server.stop(None)


def test_an_action_is_asked_for_and_begun(client: GrpcServices, servicer: Servicer) -> None:
    assert client.next_service(0.01) == PlannedService(3, "compact-index", PLAN.instant)
    assert client.begin_service(3) == BegunService(PLAN, "token", 0.5, is_behind=True)
    servicer.is_free = False
    assert client.next_service(0.01) is None
    with pytest.raises(RpcError, match="another worker has it") as caught:
        client.begin_service(4)
    assert caught.value.kind is ErrorKind.FENCED


def test_progress_outcomes_and_failures_are_told_apart(client: GrpcServices, servicer: Servicer) -> None:
    client.keep_service(3, 7)
    client.report_service(3, [OUTCOME])
    failures = (
        MergeFailed(2, "CorruptFileError", "a block is damaged", ErrorKind.CORRUPT, Blame.GROUP),
        MergeFailed(4, "OSError", "disk full"),
        MergeFailed(5, "ChildDied", "by signal 9" + 9_000 * "!", blame=Blame.PERHAPS),
    )
    client.report_service_failed(3, "disk full", 7, failures)
    client.give_service_back(3)
    progress, report, failure, back = servicer.reports
    assert [each.given_back for each in servicer.reports] == [False, False, False, True]
    assert (back.number, back.outcomes, back.failure) == (3, b"", "")
    assert (progress.number, progress.done, progress.outcomes, progress.failure) == (3, 7, b"", "")
    assert decode_outcomes(zlib.decompress(report.outcomes), "report") == (OUTCOME,)
    assert (failure.failure, failure.outcomes) == ("disk full", b"")
    assert failure.done == 7
    damaged, perhaps = failure.failed
    assert (damaged.number, damaged.reason, damaged.damaged) == (
        2,
        "CorruptFileError: a block is damaged",
        True,
    )
    assert (perhaps.number, perhaps.reason[:22], perhaps.damaged) == (5, "ChildDied: by signal 9", False)
    assert len(perhaps.reason) == 500


def test_a_failure_of_all_groups_of_a_large_action_is_no_larger_than_a_request_may_be(
    client: GrpcServices, servicer: Servicer
) -> None:
    failures = [MergeFailed(n, "E", 600 * "\u20ac", blame=Blame.GROUP) for n in range(10_000)]
    client.report_service_failed(3, "why", 0, failures)
    (failure,) = servicer.reports
    assert [each.number for each in failure.failed] == list(range(1_000))
    assert failure.ByteSize() < 2 << 20


def test_a_plan_that_is_not_the_named_one_is_refused() -> None:
    storage = InMemoryStorage()
    content = encode_plan(PLAN)
    storage.create("plan", content)
    assert read_plan(storage, "plan", hashlib.sha256(content).hexdigest()) == PLAN
    with pytest.raises(CorruptFileError, match="plan does not have the content"):
        read_plan(storage, "plan", "00")
