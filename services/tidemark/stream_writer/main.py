"""`tidemark writer -c F`: runs the writer service of one table."""

from __future__ import annotations

import os
import threading

from tidemark.config import Address, TableConfigFile
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.logging import bound
from tidemark.stream_runtime.service_http import served
from tidemark.stream_runtime.tracing import open_traces
from tidemark.stream_writer.bootstrap import run_writer
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.observer import CompositeObserver
from tidemark.stream_writer.writer_metrics import WriterMetrics
from tidemark.stream_writer.writer_traces import WriterTraces


def run(
    config: TableConfigFile,
    foreign_failpoints: frozenset[str] = frozenset(),
    http: Address | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT, and finishes the running epoch first. Serves metrics at `http`.

    `config` has the addresses of real brokers. Raises ListenError, EngineSettingError, EngineLostError (which
    a restart of the process cures), StreamRuntimeError, HudiFormatError.
    """
    failpoints = FailpointRegistry.from_environment(WriterFailpoint, os.environ, foreign_failpoints)
    ready, clock, table = threading.Event(), SystemClock(), config.table.name
    metrics, traces = WriterMetrics(table, clock), open_traces(config, "writer")
    observer = CompositeObserver(metrics, WriterTraces(table, traces)) if traces.enabled else metrics
    with bound(table=table), served(http, config, metrics.metrics, ready):
        try:
            run_writer(config, threading.Event(), clock, SystemIds(), failpoints, ready, observer)
        finally:
            traces.close()
