"""The writer without Spark, for campaigns in a hurry (`--no-spark`): the product's own loops and tasks, run
one after the other in one process that is up in a second. What Spark does about tasks is left to the others.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

from tidemark.commit.v1 import commit_pb2
from tidemark.config import TableConfigFile, load_config
from tidemark.config.run_file import resolve_addresses
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.logging import configure_logging
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.platform.signals import set_by_signals
from tidemark.stream_runtime.rpc.health import wait_until_serving
from tidemark.stream_runtime.security.client import IN_THE_CLEAR
from tidemark.stream_writer import task_outcome
from tidemark.stream_writer.coordinator_client import GrpcCoordinator
from tidemark.stream_writer.epoch_tasks import RUNNER, table_facts, task_planner
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.group_task import run_group_task
from tidemark.stream_writer.service import WriterService
from tidemark.stream_writer.services_worker import (
    beside_epochs,
    open_services,
    services_loop,
    share_in_writer,
)
from tidemark.stream_writer.table_services.process_engine import ProcessEngine
from tidemark.stream_writer.task_entry import find_runner, run_one
from tidemark.stream_writer.worker_context import worker_context

_ATTEMPTS: Final = 4


class LocalEngine:
    """Runs each task until it gives an outcome, at most four times."""

    slots = 2

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        return [self._run(task) for task in tasks]

    def _run(self, task: bytes) -> bytes:
        runner = find_runner(RUNNER)
        for attempt in range(_ATTEMPTS):
            try:
                return task_outcome.encode(run_one(runner, task, worker_context(), attempt, _ATTEMPTS))
            except Exception:
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")


def run(config: TableConfigFile) -> None:
    """Until SIGTERM."""
    stop = threading.Event()
    # As Spark names its local folders to workers. This one survives kills, and what is kept in it with it.
    local = config.state.path / "writer" / "local"
    local.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_LOCAL_DIRS"] = str(local)
    set_by_signals(stop)
    names = TopicNames(config.table.name)

    def plan_tasks(begun: commit_pb2.BeginResponse, slots: int) -> list[bytes]:
        table = read_table_config(open_storage(config.table.path))
        kafka, disk = config.kafka.settings, config.limits.secondary_disk
        facts = table_facts(table, config.table.path, kafka, names.data, names.index, disk)
        return list(task_planner(facts)(begun, slots))

    coordinator = GrpcCoordinator(
        config.services.coordinator, config.table.name, SystemIds().uuid(), config.limits.rpc_message_bytes
    )
    failpoints = FailpointRegistry.from_environment(WriterFailpoint, os.environ)
    service = WriterService(
        coordinator, LocalEngine(), plan_tasks, SystemClock(), failpoints.hit, run_here=run_group_task
    )
    try:
        wait_until_serving(config.services.coordinator, stop)
        with _services(config, failpoints) if share_in_writer(config) else nullcontext():
            service.run(stop)
    finally:
        coordinator.close()


@contextmanager
def _services(config: TableConfigFile, failpoints: FailpointRegistry) -> Iterator[None]:
    engine, services = ProcessEngine(slots=2), open_services(config, SystemIds(), IN_THE_CLEAR)
    scratch = config.state.path / "writer" / "merges"
    try:
        with beside_epochs(services_loop(config, services, engine, scratch, failpoints.hit), engine.cancel):
            yield
    finally:
        services.close()


if __name__ == "__main__":
    use_arrow_alone()
    configure_logging("writer")
    run(resolve_addresses(load_config(sys.argv[2])))
