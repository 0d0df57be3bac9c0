"""A coordinator of the product with Kafka in memory, of whose table there is something to say everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testing.ids import SeededIds
from tests.own_ports import own_ports
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import existing_table, orders, write_config
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports
from tidemark.commit_coordinator.calls.inbox import Inbox, RetryEpoch, RunAnswer, RunService
from tidemark.commit_coordinator.calls.lookups import KeyLookups
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.input.skips import InputSkips
from tidemark.commit_coordinator.verification.verdict import VerificationResult
from tidemark.config import load_config
from tidemark.epoch_protocol import fold
from tidemark.epoch_protocol.dropped_fields import DROPPED_STAT
from tidemark.epoch_protocol.entries import (
    CommitDecided,
    EpochCommitted,
    EpochPlanned,
    Stage,
    TransactionBegun,
    encode_entry,
)
from tidemark.epoch_protocol.stopped_lanes import SkipResult, StoppedLane, StopReason
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.ledger_client.fold_reader import Applied
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition
from tidemark.table_status.services import (
    EndedServiceAction,
    OpenServiceAction,
    OwnServices,
    ServiceFailures,
    ServiceKindState,
)
from tidemark.table_verification.report import document
from tidemark.table_verification.verify import verify_table

SERVICES = OwnServices(
    enabled=True,
    behind=["slice f1 has 99 log files"],
    kinds=[
        ServiceKindState(
            kind="archive",
            held_back=["savepoint 1"],
            open=OpenServiceAction(number=2, instant="2", step="planned", planned_ms=1),
            last=EndedServiceAction(number=1, instant="1", outcome="done", planned_ms=1, ended_ms=2),
            failures=ServiceFailures(1, "why", 3),
        )
    ],
)
GIVEN_UP = CoordinatorView(
    term=0, epoch=1, halted="epoch 2 was given up", paused=True, pause_reason="why", services=SERVICES
)


@dataclass
class Served:
    """`file`: its configuration. `service`: to take parts of it away."""

    file: Path
    service: CoordinatorService
    cluster: MemoryCluster


@contextmanager
def served(folder: Path, patched: pytest.MonkeyPatch) -> Iterator[Served]:
    """Answers calls until the end; nothing is planned."""
    [port] = own_ports(1)
    file = write_config(folder, coordinator=f"127.0.0.1:{port}")
    cluster, table = MemoryCluster(), folder / "table"
    ids, failpoints = SeededIds(1), FailpointRegistry(CoordinatorFailpoint)
    ports = Ports(cluster.client, LocalStorage(table), cluster.clock, ids, failpoints)
    found = pb.LookupResponse.Found(
        key="a", tier="hot", file_id="f", partition_path="d", has_ordering=True, ordering=1
    )
    patched.setattr(KeyLookups, "lookup", lambda *_: [found])
    patched.setattr(InputSkips, "skip", lambda *_: SkipResult("", 4, 7))
    service = CoordinatorService(load_config(file), ports)
    try:
        service.start()
        existing_table(table).commit(orders(("k1", "2026-01-01", 1)))
        _tell(service, cluster, document(verify_table(LocalStorage(table), lambda _: None)))
        patched.setattr(Inbox, "put", _retried(service))
        yield Served(file, service, cluster)
    finally:
        service.close()


def _tell(service: CoordinatorService, cluster: MemoryCluster, verified: dict[str, Any]) -> None:
    """Something of each kind that status has a place for."""
    service.inputs.look()
    for stage in Stage:
        service.members.join(stage, "assigner-1", "127.0.0.1:9", 0)
        figures = {"hot_entries": 3.0, f"{DROPPED_STAT}orders-in/price": 2.0}
        service.members.renew(stage, "assigner-1", [], 0, figures)
    stopped = StoppedLane(Stage.SHUFFLE, "orders-in:0", "orders-in", 0, 7, StopReason.UNREADABLE, "broken", 0)
    service.members.stopped_lanes.stop(stopped)
    service.parts.failures.say(Stage.SHUFFLE, "assigner-0", "input was deleted")
    _epoch(service)
    differences = {"key-twice": {"count": 1, "examples": ["k1"]}}
    service.parts.verification._take(VerificationResult(verified, 1.0, 5))
    service.parts.verification._take(
        VerificationResult({**verified, "agrees": False, "differences": differences}, 1.0, 5)
    )
    letters = TopicPartition("orders.dead-letter", 0)
    message = Message("orders-in", 0, 3, b"k", b"{", (("trace", b"1"),), 1_234)
    [letter] = dead_letters([message], [Refusal(0, DeadLetterReason.NOT_JSON, "why")], letters.topic, 1 << 20)
    cluster.broker.produce(letters, letter.key, letter.value, letter.headers)
    watched = service.parts.metrics._watched
    assert watched is not None
    watched[1].sample()
    producer = cluster.client.producer("orders-assign-0")
    producer.init()
    producer.begin()
    producer.produce(TopicPartition("orders.ledger", 0), encode_entry(TransactionBegun(Stage.ASSIGN, 0, "n")))
    producer.flush()
    service.parts.board.show(GIVEN_UP)


def _epoch(service: CoordinatorService) -> None:
    entries = (
        EpochPlanned(0, 1, 1, 0, 10, "20260101000000000", "0", "", 100),
        CommitDecided(0, 1, 1, "20260101000000001", "20260101000000002", "statuses", "sha", 150),
        EpochCommitted(0, 1, 1, "20260101000000000", "20260101000000002", 180),
    )
    for entry in entries:
        service.parts.history.observe(Applied(0, entry, fold.Verdict.APPLIED))
    service.parts.history.cover(1, [], {"0": (0, 3)}, {"orders-in:0": (0, 3)})
    service.parts.history.timed(1, 1, {"plan_lock": 1.0})


def _retried(service: CoordinatorService) -> Any:
    """The loop does not run: an epoch that is to be tried again is, at once, and so is a table service."""

    def put(_: Inbox, request: object) -> None:
        if isinstance(request, RetryEpoch):
            service.parts.board.show(CoordinatorView(term=0, epoch=1, services=SERVICES))
        elif isinstance(request, RunService):
            request.answer.set_result(RunAnswer(1))

    return put
