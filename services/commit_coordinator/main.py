"""`tidemark coordinator -c F`: the commit coordinator of one table."""

from __future__ import annotations

import os
import signal
import threading

from commit_coordinator.bootstrap import CoordinatorService, Ports
from commit_coordinator.failpoints import CoordinatorFailpoint
from hudi_format.storage.locate import open_storage
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile
from stream_runtime.failpoint import FailpointRegistry
from stream_runtime.ids import SystemIds
from stream_runtime.kafka.confluent.client import ConfluentKafkaClient


def run(config: TableConfigFile, foreign_failpoints: frozenset[str] = frozenset()) -> None:
    """Runs until SIGTERM or SIGINT. Raises SupersededError, TableMismatchError, UnsupportedTableError, …"""
    clock = SystemClock.from_environment(os.environ)
    ports = Ports(
        kafka=ConfluentKafkaClient.from_config(config, clock=clock),
        storage=open_storage(config.table.path),
        clock=clock,
        ids=SystemIds(),
        failpoints=FailpointRegistry.from_environment(CoordinatorFailpoint, os.environ, foreign_failpoints),
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    CoordinatorService(config, ports).run(stop)
