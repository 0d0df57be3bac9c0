"""`tidemark writer -c F`: the writer service of one table."""

from __future__ import annotations

import os
import threading

from stream_runtime.clock import SystemClock
from stream_runtime.config import Address, TableConfigFile
from stream_runtime.failpoint import FailpointRegistry
from stream_runtime.ids import SystemIds
from stream_runtime.logging import bound
from stream_runtime.service_http import served
from stream_runtime.tracing import open_traces
from stream_writer.bootstrap import run_writer
from stream_writer.failpoints import WriterFailpoint
from stream_writer.observer import Several
from stream_writer.writer_metrics import WriterMetrics
from stream_writer.writer_traces import WriterTraces


def run(
    config: TableConfigFile,
    foreign_failpoints: frozenset[str] = frozenset(),
    http: Address | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT, the running epoch finished first; serves metrics at `http`.

    `config` holds real addresses. Raises ListenError, EngineSettingError, EngineLostError (a new process
    cures it), StreamRuntimeError, HudiFormatError.
    """
    failpoints = FailpointRegistry.from_environment(WriterFailpoint, os.environ, foreign_failpoints)
    ready, clock, table = threading.Event(), SystemClock(), config.table.name
    metrics, traces = WriterMetrics(table, clock), open_traces(config, "writer")
    observer = Several(metrics, WriterTraces(table, traces)) if traces.enabled else metrics
    with bound(table=table), served(http, config, metrics.metrics, ready):
        try:
            run_writer(config, threading.Event(), clock, SystemIds(), failpoints, ready, observer)
        finally:
            traces.close()
