"""Builds the writer of one table from its configuration, and runs it until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from tidemark.commit.v1 import commit_pb2
from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.platform.jars import SPARK_KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import find_java
from tidemark.stream_runtime.platform.signals import set_by_signals
from tidemark.stream_runtime.rpc.health import wait_until_serving
from tidemark.stream_runtime.security.client import ClientSecurity, client_security
from tidemark.stream_writer.cluster import with_certificates
from tidemark.stream_writer.coordinator_client import GrpcCoordinator
from tidemark.stream_writer.epoch_stream import EpochStream
from tidemark.stream_writer.epoch_tasks import RUNNER, PlanTasks, table_facts, task_planner
from tidemark.stream_writer.group_task import run_group_task
from tidemark.stream_writer.java_kafka import java_settings
from tidemark.stream_writer.job import SparkEngine, read_master, start_engine
from tidemark.stream_writer.observer import WriterObserver
from tidemark.stream_writer.same_table import check_same_ledger
from tidemark.stream_writer.scratch import own_scratch
from tidemark.stream_writer.service import WriterService
from tidemark.stream_writer.services_worker import (
    beside_epochs,
    open_services,
    services_loop,
    share_in_writer,
)

SCRATCH: Final = "spark"
MERGES: Final = "merges"
CHECKPOINT: Final = "checkpoint"
LOG: Final = "spark.log"


def run_writer(
    config: TableConfigFile,
    stop: threading.Event,
    clock: Clock,
    ids: IdSource,
    failpoints: FailpointRegistry,
    ready: threading.Event,
    observer: WriterObserver,
) -> None:
    """Starts Spark, then writes epochs until `stop` is set. A job that runs then is finished first.

    `ready` is set once Spark has started and the coordinator answers. `config.kafka` has the addresses of
    real brokers. SIGTERM and SIGINT set `stop`. Raises WriterError, StreamRuntimeError, HudiFormatError.
    """
    folder = config.state.path / "writer"
    with own_scratch(folder / SCRATCH) as scratch:
        kafka = java_settings(config.kafka.settings)
        java = find_java()
        jars = ensure_jars(SPARK_KAFKA.name, java)
        share = share_in_writer(config)
        engine = start_engine(config.spark, java, scratch, RUNNER, jars=jars, log=folder / LOG, share=share)
        # After the session has started, because PySpark installs a SIGINT handler of its own then.
        set_by_signals(stop)
        security = client_security(config, clock)
        coordinator = GrpcCoordinator(
            config.services.coordinator,
            config.table.name,
            ids.uuid(),
            config.limits.rpc_message_bytes,
            security,
        )
        table = config.table.name
        service = WriterService(
            coordinator,
            engine,
            _planner(config),
            clock,
            failpoints.hit,
            observer,
            lambda text: engine.describe(f"{table}: {text}"),
            run_group_task,
        )
        topic = TopicNames(table).epochs
        try:
            wait_until_serving(config.services.coordinator, stop, security)
            ready.set()
            with _services(config, engine, ids, security, scratch, failpoints) if share else nullcontext():
                EpochStream(engine, kafka, topic, folder / CHECKPOINT, service.write_one).run(stop)
        finally:
            coordinator.close()
            engine.stop()


@contextmanager
def _services(
    config: TableConfigFile,
    engine: SparkEngine,
    ids: IdSource,
    security: ClientSecurity,
    scratch: Path,
    failpoints: FailpointRegistry,
) -> Iterator[None]:
    """Works on service actions while the block runs."""
    here = scratch / MERGES if read_master(config.spark).is_local else None
    coordinator = open_services(config, ids, security)
    try:
        with beside_epochs(
            services_loop(config, coordinator, engine, here, failpoints.hit), engine.cancel_bins
        ):
            yield
    finally:
        coordinator.close()


def _planner(config: TableConfigFile) -> PlanTasks:
    """A `PlanTasks` that reads the table's properties at the first epoch, because before that the table may
    not exist. At each epoch it checks that the folder is the coordinator's table (`same_table`).
    """
    plan: PlanTasks | None = None
    settings = config.kafka.settings
    kafka = settings if read_master(config.spark).is_local else with_certificates(settings)

    def plan_tasks(begun: commit_pb2.BeginResponse, slots: int) -> list[bytes]:
        nonlocal plan
        storage = open_storage(config.table.path)
        check_same_ledger(config, storage, begun.ledger)
        if plan is None:
            names = TopicNames(config.table.name)
            facts = table_facts(
                read_table_config(storage),
                config.table.path,
                kafka,
                names.data,
                names.index,
                config.limits.secondary_disk,
            )
            plan = task_planner(facts)
        return plan(begun, slots)

    return plan_tasks
