"""Parts of a coordinator, and its admin service on a real server on loopback."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.commit_coordinator.admin_parts import admin_service
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.commit_coordinator.admin.dead_letter_calls import DeadLetterCalls
from tidemark.commit_coordinator.admin.limits import CALL_GROUPS, SERVICE_NAME, longest_s
from tidemark.commit_coordinator.admin.verify_calls import VerifyCalls
from tidemark.commit_coordinator.calls.inbox import Inbox
from tidemark.commit_coordinator.commit.view import ViewBoard
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.fold import Verdict
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.ledger_client.fold_reader import Applied
from tidemark.ledger_client.table_identity import Served
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition, TopicSpec
from tidemark.stream_runtime.rpc.admission import CallGroups
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.server import start_server
from tidemark.stream_runtime.security.refused_calls import TOO_MANY, RefusedCalls

WAIT_S = 60.0


class World:
    """Parts of a coordinator, and its admin service on a port."""

    def __init__(self, table: str = "t", path: str = "", **given: Any) -> None:
        """`given`: fields of `AdminSources` beside ours."""
        self.clock = clock = ManualClock()
        self.letters = TopicPartition(f"{table}.dead-letter", 0)
        self.broker = MemoryBroker(clock, SeededIds(1))
        self.client = MemoryKafkaClient(self.broker)
        self.client.admin().create_topics([TopicSpec("in", 2), TopicSpec(self.letters.topic, 1)])
        self.board, self.inbox, self.history = ViewBoard(), Inbox(), EpochHistory()
        self.targets: dict[str, int] = {}
        self.flushes = 0
        self.answers: list[dict[str, Any]] = []
        self.go = threading.Semaphore(0)
        self.verification = PeriodicVerification(0, self._verify, SystemClock(), lambda: "reads shard 3")
        self.queries = DeadLetterQueries(self.client, table, ["in"], clock)
        self.refused = RefusedCalls()
        service = admin_service(
            table,
            served=lambda: Served(path),
            board=self.board,
            inbox=self.inbox,
            history=self.history,
            targets=self._targets,
            clock=clock,
            dead_letters=DeadLetterCalls(self.queries),
            verify=VerifyCalls(self.verification, SystemClock()),
            **given,
        )
        self.server = start_server(
            Address("127.0.0.1", 0),
            [(SERVICE_NAME, lambda server: admin_pb2_grpc.add_AdminServicer_to_server(service, server))],
            interceptors=[CallGroups(CALL_GROUPS, lambda: self.refused.add(TOO_MANY))],
            longest_s=longest_s(10.0),
        )
        self.channel = open_channel(self.server.address, deadline_s=WAIT_S)
        self.stub = admin_pb2_grpc.AdminStub(self.channel)

    def _verify(self, stopped: threading.Event, full: bool) -> dict[str, Any]:
        while not self.go.acquire(timeout=0.02):
            if stopped.is_set():
                return {"error": "stopped"}
        return {"full": full, **self.answers.pop(0)}

    def _targets(self) -> dict[str, int]:
        self.flushes += 1
        return self.targets

    def refuse(
        self, count: int, reason: DeadLetterReason = DeadLetterReason.NOT_JSON, detail: str = "why"
    ) -> None:
        """Letters as the shuffle stage publishes them."""
        for number in range(count):
            message = Message("in", 1, number, b"k", b"{" * 10, (("trace", b"\x01"),), 1_234)
            (letter,) = dead_letters([message], [Refusal(0, reason, detail)], self.letters.topic, 1 << 20)
            self.broker.produce(self.letters, letter.key, letter.value, letter.headers)

    def plan(self, epochs: int) -> None:
        for epoch in range(1, epochs + 1):
            planned = EpochPlanned(0, epoch, 1, 0, epoch, f"T{epoch}", "0", "", 100)
            self.history.observe(Applied(epoch, planned, Verdict.APPLIED))

    def ids(self, page: pb.ListDeadLettersResponse) -> list[int]:
        return [each.id for each in page.letters]

    def close(self) -> None:
        self.verification.stop()
        self.channel.close()
        self.server.stop(0.1)


def refused(method: Any, request: Any) -> RpcError:
    with pytest.raises(RpcError) as failed:
        call(method, request)
    return failed.value


def answered(answer: Any, streams: bool) -> Any:
    return list(answer) if streams else answer
