"""Coordinator and assigners of one table on threads: real Kafka, gRPC, RocksDB, files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports as CoordinatorPorts
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.config import TableConfigFile, load_config
from tidemark.epoch_protocol.entries import Stage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.index_assigner.bootstrap import AssignerService, Ports
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.main import FACTORIES
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError

_END_S: Final = 120.0
_RESTART_S: Final = 0.5
_log = logging.getLogger("tidemark.test")


class Running:
    """A service on a thread of its own.

    One that Kafka did not answer is started again, as `tidemark run` does it; `restarts` says why. What else
    ended it is in `errors`.
    """

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        """``work``: runs the service, made anew each time, until its event is set."""
        self.errors: list[BaseException] = []
        self.restarts: list[Exception] = []
        self._work = work
        self._lock = threading.Lock()
        self._ending = False
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Asks it to end, and waits until it has."""
        with self._lock:
            self._ending = True
            self._stop.set()
        self.thread.join(_END_S)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                self._work(self._stop)
            except (KafkaUnavailableError, DeadlineExceededError) as error:
                if not self._goes_on(error):
                    return
                continue
            except BaseException as error:
                self.errors.append(error)
            return

    def _goes_on(self, error: Exception) -> bool:
        _log.warning("a service is started again: %s", error)
        with self._lock:
            if self._ending:
                return False
            # A service that ends by itself sets the event that it was given.
            self._stop = threading.Event()
        self.restarts.append(error)
        return not self._stop.wait(_RESTART_S)


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
        return self.start(lambda stop: CoordinatorService(self.config, ports).run(stop))

    def assigner(self, *stages: Stage, place: AssignerFailpoint | None = None, nth: int = 1) -> Running:
        """Both stages, unless one is named; `place` fails when it is reached for the `nth` time."""
        failpoints = FailpointRegistry(AssignerFailpoint)
        if place is not None:
            failpoints.arm(place, nth)
        ports = Ports(self.client, self.storage, SystemClock(), SystemIds(), failpoints)
        factories = {stage: FACTORIES[stage] for stage in stages or tuple(Stage)}
        return self.start(lambda stop: AssignerService(self.config, ports, factories).run(stop))

    def start(self, work: Callable[[threading.Event], None]) -> Running:
        running = Running(work)
        self.running.append(running)
        return running

    def fold_reader(self) -> FoldReader:
        def load_snapshot(path: str, sha256: str) -> bytes:
            content: bytes = self.storage.read(path)
            return content

        return FoldReader(self.observer, self.names.ledger, self.names.epochs, load_snapshot, SystemClock())

    def close(self) -> None:
        for running in reversed(self.running):
            running.end()
