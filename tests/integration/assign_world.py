"""A table with its services on threads: real Kafka, coordinator, stages, RocksDB, files; no Spark.

The writer is the real one with an engine that runs its tasks one by one here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

from tests.integration.service_threads import Running, ServiceThreads
from tests.own_ports import own_ports
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.index_assigner.adapters import TOPICS_RECORD
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_runtime.kafka.ports import TopicSpec
from tidemark.stream_runtime.retry import Deadline
from tidemark.stream_writer import task_outcome
from tidemark.stream_writer.coordinator_client import GrpcCoordinator
from tidemark.stream_writer.epoch_tasks import table_facts, task_planner
from tidemark.stream_writer.service import WriterService
from tidemark.stream_writer.task_entry import run_one
from tidemark.stream_writer.tasks import run_task
from tidemark.stream_writer.worker_context import WorkerContext

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
_CATCH_UP_S: Final = 20.0


class ThreadEngine:
    """The writer's tasks, one by one, in this thread."""

    slots = 1

    def __init__(self) -> None:
        self._worker = WorkerContext(SystemClock())

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        return [task_outcome.encode(run_one(run_task, task, self._worker, 0, 1)) for task in tasks]

    def close(self) -> None:
        self._worker.drop_readers()


class Brokers(Protocol):
    """A cluster, or a proxy in front of one."""

    @property
    def bootstrap_servers(self) -> str: ...


class ServedTable(ServiceThreads):
    """One table, its topics and its services.

    The services reach Kafka at `kafka`; the test itself feeds and observes at `direct` where that is given.
    `transaction_timeout`: where transactions are to be lost, the broker ends them sooner; elsewhere a slow
    machine must be able to end its own.
    """

    def __init__(
        self,
        kafka: Brokers,
        folder: Path,
        name: str,
        ordered: bool = True,
        type_: str = "merge_on_read",
        direct: Brokers | None = None,
        input_start: str = "earliest",
        transaction_timeout: str = "10s",
    ) -> None:
        self.input = f"{name}-in"
        coordinator, metrics = own_ports(2)
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
input: {{topics: [{self.input}], partitions: {PARTITIONS}, start: {input_start}}}
kafka: {{bootstrap.servers: "{kafka.bootstrap_servers}"}}
state: {{path: ./state, memory: 64MiB}}
epoch: {{interval: 500ms}}
services: {{coordinator: "127.0.0.1:{coordinator}", metrics: "127.0.0.1:{metrics}"}}
limits: {{transaction_interval: 50ms, transaction_records: 2000, transaction_timeout: {transaction_timeout}}}
"""
        )
        super().__init__(folder / "orders.yaml", (direct or kafka).bootstrap_servers)
        self.sent = 0
        admin = self.observer.admin()
        admin.create_topics([TopicSpec(self.input, PARTITIONS)])
        admin.close()

    def coordinator(self) -> Running:
        """Returns when the topics are there."""
        running = super().coordinator()
        end = time.monotonic() + 240.0
        while not self.storage.exists(TOPICS_RECORD):
            assert time.monotonic() < end, (running.errors, running.restarts)
            time.sleep(0.05)
        return running

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

        return self.start(work)

    def _table_config(self, stop: threading.Event) -> Any:
        while not self.storage.exists(".hoodie/metadata/.hoodie/hoodie.properties"):
            assert not stop.wait(0.05)
        return read_table_config(self.storage)

    def produce(self, records: Sequence[tuple[str, dict[str, Any] | None]]) -> None:
        """Records of a key stay in one partition, so that their order is known. None: a null value."""
        producer = self.observer.plain_producer()
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
        with closing(self.fold_reader()) as reader:
            reader.start()
            reader.catch_up()
            return reader.fold.state

    def wait_until_committed(self, timeout_s: float = 240.0) -> FoldState:
        """Returns when every record that was sent is in a committed epoch."""
        deadline = Deadline(SystemClock(), timeout_s)
        while True:
            try:
                with closing(self.fold_reader()) as reader:
                    return self._follow_until_committed(reader, deadline)
            except (KafkaUnavailableError, DeadlineExceededError):
                # Where brokers die, a reader may have met the one that is gone: the next one has not.
                deadline.check(f"{self.sent} records in committed epochs; {self._ended()}")

    def _follow_until_committed(self, reader: FoldReader, deadline: Deadline) -> FoldState:
        reader.start()
        while True:
            reader.catch_up(_CATCH_UP_S)
            state = reader.fold.state
            done = state.committed_counts.input
            if done >= self.sent:
                assert done == self.sent
                return state
            shuffled = {name: lane.next for name, lane in state.shuffle_lanes.items()}
            assigned = {name: lane.next for name, lane in state.assign_lanes.items()}
            where = (done, self.sent, self._ended(), shuffled, assigned, state.planned)
            assert not deadline.is_over, where
            deadline.sleep(0.05)

    def _ended(self) -> list[object]:
        """What ended services, for good or for a moment."""
        return [(each.errors, each.restarts) for each in self.running]

    def rows(self) -> dict[str, tuple[str, int, str | None]]:
        """Key -> (day, at, note), as the files say; a key that is there twice fails."""
        config = read_table_config(self.storage)
        schema = TableSchema.from_avro(json.dumps(SCHEMA), self.name)
        mode, ordering = table_ordering(config, schema)
        snapshot = MetadataTableSnapshot.load(self.storage)
        found: dict[str, tuple[str, int, str | None]] = {}
        view = TableView.of(self.storage, snapshot.data_timeline)
        for each in view.slices(snapshot.files.names()):
            for row in read_slice(self.storage, each, schema, mode, ordering).to_pylist():
                assert row["id"] not in found
                assert row["_hoodie_partition_path"] == each.partition_path
                found[row["id"]] = (row["day"], row["at"], row["note"])
        return found
