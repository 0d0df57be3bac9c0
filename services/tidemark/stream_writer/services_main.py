"""`tidemark services serve -c F`: works on a table's service actions in a process of its own, without Spark
(docs/adr/0013-merges-in-child-processes.md).
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from tidemark.config import Address, TableConfigFile
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.logging import bound
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_runtime.platform.signals import set_by_signals
from tidemark.stream_runtime.rpc.health import wait_until_serving
from tidemark.stream_runtime.security.client import client_security
from tidemark.stream_runtime.service_http import served
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.services_worker import open_services, services_loop
from tidemark.stream_writer.table_services.process_engine import ProcessEngine


def run(
    config: TableConfigFile,
    foreign_failpoints: frozenset[str] = frozenset(),
    http: Address | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT. Children that merge then are ended: what is merged stays prepared, and
    the coordinator hands the action out again.

    Raises ListenError, StreamRuntimeError, HudiFormatError.
    """
    failpoints = FailpointRegistry.from_environment(WriterFailpoint, os.environ, foreign_failpoints)
    stop, ready, clock, table = threading.Event(), threading.Event(), SystemClock(), config.table.name
    set_by_signals(stop)
    security = client_security(config, clock)
    folder = config.state.path / "services"
    folder.mkdir(parents=True, exist_ok=True)
    metrics = Metrics("services", table)
    with (
        bound(table=table),
        served(http, config, metrics, ready),
        tempfile.TemporaryDirectory(prefix="merges-", dir=folder) as scratch,
    ):
        wait_until_serving(config.services.coordinator, stop, security)
        ready.set()
        engine = ProcessEngine()
        coordinator = open_services(config, SystemIds(), security)
        try:
            loop = services_loop(config, coordinator, engine, Path(scratch), failpoints.hit)
            worker = threading.Thread(target=loop.run, args=(stop,), daemon=True)
            worker.start()
            stop.wait()
            engine.cancel()
            worker.join()
        finally:
            coordinator.close()
