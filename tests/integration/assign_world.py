"""A table with its services on threads: real Kafka, coordinator, stages, RocksDB, files; no Spark.

The writer is the real one with an engine that runs its tasks one by one here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commit_coordinator.bootstrap import CoordinatorService
from commit_coordinator.bootstrap import Ports as CoordinatorPorts
from commit_coordinator.failpoints import CoordinatorFailpoint
from epoch_protocol.entries import Stage
from epoch_protocol.state import FoldState
from hudi_format.file_group.slice_reader import read_slice
from hudi_format.file_group.slices import build_slices
from hudi_format.metadata_table import MetadataTableSnapshot
from hudi_format.ordering import table_ordering
from hudi_format.schema import TableSchema
from hudi_format.storage.locate import open_storage
from hudi_format.table_config import read_table_config
from index_assigner.adapters import TOPICS_RECORD
from index_assigner.bootstrap import AssignerService, Ports
from index_assigner.failpoints import AssignerFailpoint
from index_assigner.main import FACTORIES
from ledger_client.fold_reader import FoldReader
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile, load_config
from stream_runtime.failpoint import FailpointRegistry
from stream_runtime.ids import SystemIds
from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from stream_runtime.kafka.ports import TopicSpec
from stream_runtime.kafka.topics import TopicNames
from stream_runtime.platform.broker_files import free_ports
from stream_runtime.platform.embedded_kafka import EmbeddedKafka
from stream_writer import task_outcome
from stream_writer.coordinator_client import GrpcCoordinator
from stream_writer.epoch_tasks import table_facts, task_planner
from stream_writer.service import WriterService
from stream_writer.task_entry import run_one
from stream_writer.tasks import run_task
from stream_writer.worker_context import WorkerContext

SCHEMA = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "day", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
PARTITIONS = 3


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


def start(work: Callable[[threading.Event], None]) -> Running:
    stop = threading.Event()

    def guarded() -> None:
        try:
            work(stop)
        except BaseException as error:
            running.errors.append(error)

    running = Running(threading.Thread(target=guarded, daemon=True), stop)
    running.thread.start()
    return running


class ThreadEngine:
    """The writer's tasks, one by one, in this thread."""

    slots = 1

    def __init__(self) -> None:
        self._worker = WorkerContext(SystemClock())

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        return [task_outcome.encode(run_one(run_task, task, self._worker, 0, 1)) for task in tasks]

    def close(self) -> None:
        self._worker.drop_readers()


class ServedTable:
    """One table, its topics and its services."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path, name: str, ordered: bool, type_: str) -> None:
        self.name, self.input = name, f"{name}-in"
        coordinator, metrics = free_ports(2, SystemIds().random())
        (folder / "orders.avsc").write_text(json.dumps(SCHEMA))
        (folder / "orders.yaml").write_text(
            f"""
table:
  name: {name}
  path: ./warehouse
  type: {type_}
  record_key: [id]
  partition: [day]
  {"ordering: at" if ordered else ""}
  schema: orders.avsc
  index: {{shards: 4, lanes: 2}}
input: {{topics: [{self.input}], partitions: {PARTITIONS}}}
kafka: {{bootstrap.servers: "{kafka.bootstrap_servers}"}}
state: {{path: ./state, memory: 64MiB}}
epoch: {{interval: 500ms}}
services: {{coordinator: "127.0.0.1:{coordinator}", metrics: "127.0.0.1:{metrics}"}}
limits: {{transaction_interval: 50ms, transaction_records: 2000, transaction_timeout: 2s}}
"""
        )
        self.config: TableConfigFile = load_config(folder / "orders.yaml")
        self.client = ConfluentKafkaClient.from_config(self.config)
        self.storage = open_storage(self.config.table.path)
        self.names = TopicNames(name)
        self.running: list[Running] = []
        self.sent = 0
        admin = self.client.admin()
        admin.create_topics([TopicSpec(self.input, PARTITIONS, 1)])
        admin.close()

    def coordinator(self) -> Running:
        ports = CoordinatorPorts(
            self.client, self.storage, SystemClock(), SystemIds(), FailpointRegistry(CoordinatorFailpoint)
        )
        running = self._start(CoordinatorService(self.config, ports).run)
        end = time.monotonic() + 30.0
        while not self.storage.exists(TOPICS_RECORD):
            assert time.monotonic() < end, running.errors
            time.sleep(0.05)
        return running

    def assigner(self, *stages: Stage, place: AssignerFailpoint | None = None, nth: int = 1) -> Running:
        """Both stages, unless one is named."""
        failpoints = FailpointRegistry(AssignerFailpoint)
        if place is not None:
            failpoints.arm(place, nth)
        ports = Ports(self.client, self.storage, SystemClock(), SystemIds(), failpoints)
        factories = {stage: FACTORIES[stage] for stage in stages or tuple(Stage)}
        return self._start(AssignerService(self.config, ports, factories).run)

    def writer(self) -> Running:
        def work(stop: threading.Event) -> None:
            coordinator = GrpcCoordinator(self.config.services.coordinator, self.name, "w", 1 << 26)
            facts = table_facts(
                self._table_config(stop),
                self.config.table.path,
                self.config.kafka.settings,
                self.names.data,
                self.names.index,
            )
            engine = ThreadEngine()
            try:
                WriterService(coordinator, engine, task_planner(facts), SystemClock()).run(stop)
            finally:
                engine.close()

        return self._start(work)

    def _table_config(self, stop: threading.Event) -> Any:
        while not self.storage.exists(".hoodie/metadata/.hoodie/hoodie.properties"):
            assert not stop.wait(0.05)
        return read_table_config(self.storage)

    def _start(self, work: Callable[[threading.Event], None]) -> Running:
        self.running.append(start(work))
        return self.running[-1]

    def produce(self, records: Sequence[tuple[str, dict[str, Any] | None]]) -> None:
        """Records of a key stay in one partition, so that their order is known. None: a null value."""
        producer = self.client.plain_producer()
        by_partition: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
        for key, value in records:
            content = None if value is None else json.dumps({"id": key, **value}).encode()
            by_partition.setdefault(sum(key.encode()) % PARTITIONS, []).append((key.encode(), content))
        for partition, batch in by_partition.items():
            producer.produce_batch(self.input, batch, partition)
        producer.flush()
        producer.close()
        self.sent += len(records)

    def fold(self) -> FoldState:
        """As of now."""
        reader = FoldReader(
            self.client, self.names.ledger, self.names.epochs, self._load_snapshot, SystemClock()
        )
        reader.start()
        try:
            reader.catch_up()
            return reader.fold.state
        finally:
            reader.close()

    def _load_snapshot(self, path: str, sha256: str) -> bytes:
        content: bytes = self.storage.read(path)
        return content

    def wait_until_committed(self, timeout_s: float = 90.0) -> FoldState:
        """Returns when every record that was sent is in a committed epoch."""
        end = time.monotonic() + timeout_s
        while True:
            errors = [error for running in self.running for error in running.errors]
            state = self.fold()
            done = state.committed_counts.input
            if done >= self.sent:
                assert done == self.sent
                return state
            assert time.monotonic() < end, (done, self.sent, errors, state.tagged, state.planned)
            time.sleep(0.2)

    def rows(self) -> dict[str, tuple[str, int, str | None]]:
        """Key -> (day, at, note), as the files say; a key that is there twice fails."""
        config = read_table_config(self.storage)
        schema = TableSchema.from_avro(json.dumps(SCHEMA), self.name)
        mode, ordering = table_ordering(config, schema)
        snapshot = MetadataTableSnapshot.load(self.storage)
        found: dict[str, tuple[str, int, str | None]] = {}
        for each in build_slices(snapshot.files.names(), snapshot.data_timeline):
            for row in read_slice(self.storage, each, schema, mode, ordering).to_pylist():
                assert row["id"] not in found
                assert row["_hoodie_partition_path"] == each.partition_path
                found[row["id"]] = (row["day"], row["at"], row["note"])
        return found

    def close(self) -> None:
        for running in reversed(self.running):
            running.end()
