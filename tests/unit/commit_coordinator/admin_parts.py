"""An `AdminService` of the product's own parts, of which a test names those that it asks about."""

from __future__ import annotations

from typing import Any

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.typed_status import IDLE, typed_status
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.dead_letter_calls import DeadLetterCalls
from tidemark.commit_coordinator.admin.service import AdminService, AdminSources
from tidemark.commit_coordinator.admin.verify_calls import VerifyCalls
from tidemark.commit_coordinator.calls.inbox import Inbox
from tidemark.commit_coordinator.commit.view import ViewBoard
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.epoch_protocol.input_topics import InputTopic
from tidemark.epoch_protocol.stopped_lanes import SkipResult
from tidemark.ledger_client.table_identity import Served
from tidemark.stream_runtime.clock import SystemClock


def admin_service(table: str = "t", **given: Any) -> AdminService:
    """`given`: fields of `AdminSources`."""
    clock = ManualClock()
    client = MemoryKafkaClient(MemoryBroker(clock, SeededIds(1)))
    parts: dict[str, Any] = {
        "board": ViewBoard(),
        "history": EpochHistory(),
        "inbox": Inbox(),
        "status": lambda _: typed_status(IDLE),
        "targets": dict,
        "holds_records": lambda *_: True,
        "stopped_lanes": tuple,
        "skip": lambda *_: SkipResult("", 0, 0),
        "lookup": lambda *_: [],
        "warm": lambda _: pb.WarmIndexResponse(),
        "lookup_value": lambda _: pb.LookupValueResponse(),
        "lookup_stream": lambda batches: (pb.LookupStreamResponse() for _ in batches),
        "served": lambda: Served(""),
        "dead_letters": DeadLetterCalls(DeadLetterQueries(client, table, ["in"], clock)),
        "verify": VerifyCalls(PeriodicVerification(0, lambda *_: {}, clock), clock),
        "describe": dict,
        "accept_topic": lambda *_: (InputTopic(1, 1), False),
        "clock": SystemClock(),
    }
    return AdminService(table, AdminSources(**{**parts, **given}))
