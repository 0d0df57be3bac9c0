"""What a coordinator process has from its start to its end, whether or not it has taken the table over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff
from tidemark.commit_coordinator.calls.inbox import Inbox
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.calls.terminal_failures import TerminalFailures
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.opening.served import ServedTable
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.status.metrics import CoordinatorMetrics
from tidemark.commit_coordinator.status.open_transactions import OpenTransactions
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.config import TableConfigFile
from tidemark.config.hoodie_section import target_file_bytes
from tidemark.epoch_protocol.fold import Fold
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import Admin, KafkaClient
from tidemark.stream_runtime.security.server import ServerSecurity, server_security


@dataclass(frozen=True)
class Ports:
    """The outside world, which tests replace."""

    kafka: KafkaClient
    storage: Storage
    clock: Clock
    ids: IdSource
    failpoints: FailpointRegistry


@dataclass(frozen=True)
class Parts:
    """``reader`` folds the topics for all others; ``log`` appends the decisions. ``board`` shows the loop's
    view to the threads of calls; ``attempts``, ``services``, ``inbox`` and ``failures`` carry what calls say
    to the loop.
    """

    config: TableConfigFile
    ports: Ports
    topics: TopicNames
    admin: Admin
    reader: FoldReader
    log: DecisionsLog
    history: EpochHistory
    board: ViewBoard
    attempts: AttemptHandoff
    services: ServiceHandoff
    inbox: Inbox
    failures: TerminalFailures
    verification: PeriodicVerification
    open_transactions: OpenTransactions
    placement: Placement
    served: ServedTable
    metrics: CoordinatorMetrics
    security: ServerSecurity

    def fold(self) -> Fold:
        """The newest state that the topics gave."""
        return self.reader.fold

    def close(self) -> None:
        """Closes the clients of Kafka. The threads that use them have ended before."""
        self.log.close()
        self.reader.close()
        self.open_transactions.close()
        self.admin.close()


def make_parts(
    config: TableConfigFile, ports: Ports, show_health: Callable[[CoordinatorView], None]
) -> Parts:
    """``show_health``: is told each new view of the loop."""
    kafka, clock, topics = ports.kafka, ports.clock, TopicNames(config.table.name)
    admin = kafka.admin()
    load = partial(load_document, ports.storage)
    reader = FoldReader(kafka, topics.ledger, topics.epochs, load, clock)
    history = EpochHistory()
    metrics = CoordinatorMetrics(config, clock, lambda: log.term)
    observe = metrics.observing(history.observe)
    log = DecisionsLog(kafka, topics.epochs, f"{config.table.name}-coordinator", reader, clock, observe)
    return Parts(
        config=config,
        ports=ports,
        topics=topics,
        admin=admin,
        reader=reader,
        log=log,
        history=history,
        board=ViewBoard(show_health),
        attempts=AttemptHandoff(),
        services=ServiceHandoff(clock),
        inbox=Inbox(),
        failures=TerminalFailures(clock),
        verification=PeriodicVerification.of(config, clock),
        open_transactions=OpenTransactions(kafka, admin, topics.ledger_partition, clock),
        placement=Placement(target_file_bytes(config), ports.ids),
        served=ServedTable(ports.storage),
        metrics=metrics,
        security=server_security(config, clock, metrics.metrics.refused),
    )
