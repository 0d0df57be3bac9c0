"""Coordinator and assigners of one table on threads: real Kafka, gRPC, RocksDB, files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from commit_coordinator.bootstrap import CoordinatorService
from commit_coordinator.bootstrap import Ports as CoordinatorPorts
from commit_coordinator.failpoints import CoordinatorFailpoint
from epoch_protocol.entries import Stage
from hudi_format.storage.locate import open_storage
from index_assigner.bootstrap import AssignerService, Ports
from index_assigner.failpoints import AssignerFailpoint
from index_assigner.main import FACTORIES
from ledger_client.fold_reader import FoldReader
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile, load_config
from stream_runtime.failpoint import FailpointRegistry
from stream_runtime.ids import SystemIds
from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from stream_runtime.kafka.topics import TopicNames


@dataclass
class Running:
    """A service on a thread of its own."""

    thread: threading.Thread
    stop: threading.Event
    errors: list[BaseException] = field(default_factory=list)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(30.0)
        assert not self.thread.is_alive()


class ServiceThreads:
    """Services that share a configuration file; `close` ends all of them, the newest first.

    The test's own client, `observer`, reaches Kafka at `observed_at` where that is given.
    """

    def __init__(self, config: Path, observed_at: str | None = None) -> None:
        self.config: TableConfigFile = load_config(config)
        self.name = self.config.table.name
        self.client = ConfluentKafkaClient.from_config(self.config)
        self.observer = ConfluentKafkaClient.from_config(self.config, observed_at)
        self.storage = open_storage(self.config.table.path)
        self.names = TopicNames(self.name)
        self.running: list[Running] = []

    def coordinator(self) -> Running:
        ports = CoordinatorPorts(
            self.client, self.storage, SystemClock(), SystemIds(), FailpointRegistry(CoordinatorFailpoint)
        )
        return self.start(CoordinatorService(self.config, ports).run)

    def assigner(self, *stages: Stage, place: AssignerFailpoint | None = None, nth: int = 1) -> Running:
        """Both stages, unless one is named; `place` fails when it is reached for the `nth` time."""
        failpoints = FailpointRegistry(AssignerFailpoint)
        if place is not None:
            failpoints.arm(place, nth)
        ports = Ports(self.client, self.storage, SystemClock(), SystemIds(), failpoints)
        factories = {stage: FACTORIES[stage] for stage in stages or tuple(Stage)}
        return self.start(AssignerService(self.config, ports, factories).run)

    def start(self, work: Callable[[threading.Event], None]) -> Running:
        stop = threading.Event()

        def guarded() -> None:
            try:
                work(stop)
            except BaseException as error:
                running.errors.append(error)

        running = Running(threading.Thread(target=guarded, daemon=True), stop)
        self.running.append(running)
        running.thread.start()
        return running

    def fold_reader(self) -> FoldReader:
        def load_snapshot(path: str, sha256: str) -> bytes:
            content: bytes = self.storage.read(path)
            return content

        return FoldReader(self.observer, self.names.ledger, self.names.epochs, load_snapshot, SystemClock())

    def close(self) -> None:
        for running in reversed(self.running):
            running.end()
