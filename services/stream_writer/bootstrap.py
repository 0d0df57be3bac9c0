"""Wires the writer of one table from its configuration, and runs it until it is told to stop."""

from __future__ import annotations

import signal
import threading
from typing import Final

from stream_runtime.clock import Clock
from stream_runtime.config import TableConfigFile
from stream_runtime.ids import IdSource
from stream_runtime.platform.java import find_java
from stream_writer.coordinator_client import GrpcCoordinator
from stream_writer.job import start_engine
from stream_writer.service import PlanTasks, WriterService

SCRATCH: Final = "spark"
LOG: Final = "spark.log"


def run_writer(
    config: TableConfigFile,
    plan_tasks: PlanTasks,
    runner: str,
    stop: threading.Event,
    clock: Clock,
    ids: IdSource,
) -> None:
    """Starts Spark, then writes epochs until `stop` is set; the running epoch is finished first.

    `runner` names the function that Spark's workers import (`module:function`). Raises WriterError, RpcError.
    """
    folder = config.state.path / "writer"
    scratch = folder / SCRATCH
    scratch.mkdir(parents=True, exist_ok=True)
    engine = start_engine(config.spark, find_java(), scratch, runner, log=folder / LOG)
    # After the session: PySpark takes SIGINT for itself when it starts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    coordinator = GrpcCoordinator(
        config.services.coordinator, config.table.name, ids.uuid(), config.limits.rpc_message_bytes
    )
    try:
        WriterService(coordinator, engine, plan_tasks, clock).run(stop)
    finally:
        coordinator.close()
        engine.stop()
