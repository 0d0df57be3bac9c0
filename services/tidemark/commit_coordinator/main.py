"""`tidemark coordinator -c F`: the commit coordinator of one table."""

from __future__ import annotations

import os
import threading

from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.config import Address, TableConfigFile
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.stream_runtime.allocator import use_system_allocator
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.platform.signals import set_by_signals
from tidemark.stream_runtime.service_http import served


def run(
    config: TableConfigFile,
    foreign_failpoints: frozenset[str] = frozenset(),
    http: Address | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT; serves metrics at `http`. Raises SupersededError, TableMismatchError,
    UnsupportedTableError, ListenError, …
    """
    use_system_allocator()
    clock = SystemClock.from_environment(os.environ)
    ports = Ports(
        kafka=ConfluentKafkaClient.from_config(config, clock=clock),
        storage=open_storage(config.table.path),
        clock=clock,
        ids=SystemIds(),
        failpoints=FailpointRegistry.from_environment(CoordinatorFailpoint, os.environ, foreign_failpoints),
    )
    stop = threading.Event()
    set_by_signals(stop)
    service = CoordinatorService(config, ports, with_page=True)
    with served(http, config, service.parts.metrics.metrics, service.ready):
        service.run(stop)
