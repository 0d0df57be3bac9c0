"""The commit path without gRPC, Spark and a broker process: the product's coordinator, decisions log, writer
tasks and format library over the in-memory broker and a real folder; the tagger is a script.

Everything that dies in reality can be dropped here: `crash()` forgets the coordinator, and the next `step`
starts a new one with a new term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from commit_coordinator.attempt_desk import AttemptDesk
from commit_coordinator.commit_service import begin_response
from commit_coordinator.context import Context, RecordIndexFile, Report, TableFacts
from commit_coordinator.coordinator import Coordinator
from commit_coordinator.decisions_log import DecisionsLog
from commit_coordinator.domain.next_action import Limits
from commit_coordinator.failpoints import CoordinatorFailpoint
from commit_coordinator.staging import load_document
from commit_coordinator.takeover import take_over
from epoch_protocol.batches import (
    DATA_COLUMNS,
    FILE_ID,
    INDEX_COLUMNS,
    KEY,
    PARTITION,
    BatchHeader,
    DataOp,
    IndexOp,
    chained_checksum,
    encode_batch,
    with_user_columns,
)
from epoch_protocol.entries import (
    Consumed,
    Counts,
    LanesClaimed,
    Produced,
    Stage,
    Topic,
    TransactionTagged,
    encode_entry,
)
from hudi_format.commit.create_table import create_table
from hudi_format.commit.lock import TableLock
from hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from hudi_format.model import InstantGenerator
from hudi_format.record_index_hash import record_index_shard
from hudi_format.schema import TableSchema
from hudi_format.storage.local import LocalStorage
from hudi_format.table_config import TableDefinition, TableType, read_table_config
from hudi_format.timeline import Action
from hudi_format.timeline.avro_records import WriteStat
from ledger_client.fold_reader import FoldReader
from stream_runtime.clock import ManualClock
from stream_runtime.failpoint import FailpointRegistry
from stream_runtime.ids import SeededIds
from stream_runtime.kafka.memory import MemoryBroker, MemoryKafkaClient
from stream_runtime.kafka.ports import Isolation, RangeReader, TopicPartition, TopicSpec
from stream_runtime.kafka.topics import TopicNames
from stream_writer.epoch_tasks import table_facts, task_planner
from stream_writer.task_outcome import TaskSucceeded
from stream_writer.tasks import run_task

SHARDS = 2
TABLE = "t"
SCHEMA = TableSchema.from_arrow(
    TABLE,
    pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]),
)
Row = Mapping[str, Any]


class _Worker:
    """Stands in for a Spark worker's context: a reader of the in-memory broker."""

    def __init__(self, client: MemoryKafkaClient, clock: ManualClock) -> None:
        self.clock = clock
        self._client = client

    def range_reader(self, _kafka: Mapping[str, str]) -> RangeReader:
        return self._client.range_reader()


class CommitPath:
    """One table under test. `ordered`: it has the ordering field ``ts``."""

    def __init__(self, folder: Path, table_type: TableType, *, ordered: bool, seed: int = 7) -> None:
        self.clock = ManualClock(1_750_000_000_000)
        self.ids = SeededIds(seed)
        self.failpoints = FailpointRegistry(CoordinatorFailpoint)
        self.client = MemoryKafkaClient(MemoryBroker(self.clock, self.ids))
        self.topics = TopicNames(TABLE)
        for name in (self.topics.data, self.topics.index, self.topics.ledger, self.topics.epochs):
            self.client.admin().create_topics([TopicSpec(name, 1)])
        self.storage = LocalStorage(folder)
        definition = TableDefinition(
            name=TABLE,
            table_type=table_type,
            record_key_fields=("id",),
            partition_fields=("day",),
            ordering_fields=("ts",) if ordered else (),
            schema=SCHEMA.avro_json,
        )
        create_table(self.storage, definition)
        bootstrap_metadata_table(self.storage, SHARDS, InstantGenerator(self.clock))
        self.merge_on_read = table_type is TableType.MERGE_ON_READ
        self._planner = task_planner(
            table_facts(
                read_table_config(self.storage),
                self.storage.base_uri,
                {},
                self.topics.data,
                self.topics.index,
            )
        )
        self.coordinator: Coordinator | None = None
        self.context: Context | None = None
        self.desk = AttemptDesk()
        self._claim_offset: int | None = None
        self._consumed = 0
        self._transactions = 0
        self._generation = 0

    def start_coordinator(self) -> Coordinator:
        """A new process with a new term."""
        reader = FoldReader(
            self.client,
            self.topics.ledger,
            self.topics.epochs,
            lambda path, sha256: load_document(self.storage, path, sha256),
            self.clock,
        )
        log = DecisionsLog(
            self.client, self.topics.epochs, f"{TABLE}-coordinator", reader, self.clock, lambda _: None
        )
        folder = take_over(self.storage, log, lambda: reader.fold, self.ids.uuid())
        self.context = Context(
            table=TableFacts(
                TABLE,
                Action.DELTA_COMMIT if self.merge_on_read else Action.COMMIT,
                self.topics.keyed,
                SHARDS,
                lambda _: SCHEMA.avro_json,
            ),
            storage=self.storage,
            clock=self.clock,
            ids=self.ids,
            log=log,
            lock=TableLock(self.storage, self.clock, self.ids, term=log.term, term_dir=folder),
            instants=InstantGenerator(self.clock),
            fold=lambda: reader.fold,
            lock_wait_ms=1_000,
            hit=lambda name: self.failpoints.hit(CoordinatorFailpoint(name)),
        )
        self.desk = AttemptDesk()
        self.coordinator = Coordinator(self.context, Limits(0, 1 << 30, 5), self.desk)
        return self.coordinator

    def crash(self) -> None:
        """The coordinator is gone, with all it had in memory."""
        self.coordinator, self.context = None, None

    def tag(self, rows: Sequence[tuple[Row, DataOp, str]]) -> int:
        """One transaction of the assigner: (row, what to do, file id). Returns its ledger offset."""
        producer = self.client.producer(f"{TABLE}-assign-0")
        producer.init()
        ledger = TopicPartition(self.topics.ledger, 0)
        if self._claim_offset is None:
            claim = LanesClaimed(Stage.ASSIGN, ["0"], self._generation, 0, "script")
            producer.begin()
            delivery = producer.produce(ledger, encode_entry(claim))
            producer.flush()
            producer.commit()
            self._claim_offset = delivery.offset
        self._transactions += 1
        nonce = f"n{self._transactions}"
        producer.begin()
        produced = [
            self._produce(producer, Topic.DATA, self.topics.data, nonce, _data_batch(rows)),
            self._produce(producer, Topic.INDEX, self.topics.index, nonce, _index_batch(rows)),
        ]
        entry = TransactionTagged(
            slot=0,
            nonce=nonce,
            generation=self._generation,
            terms={"0": self._claim_offset},
            consumed=[Consumed("0", self._consumed, self._consumed + len(rows))],
            produced=produced,
            counts=Counts(input=len(rows), updates=len(rows)),
            bytes=100,
            schema_id=SCHEMA.fingerprint,
        )
        delivery = producer.produce(ledger, encode_entry(entry))
        producer.flush()
        producer.commit()
        producer.close()
        self._consumed += len(rows)
        return delivery.offset

    def forget_claim(self) -> None:
        """The next transaction claims anew, under the generation that the fold shows now."""
        assert self.context is not None
        state = self.context.fold().state
        self._claim_offset, self._generation = None, state.generation
        self._consumed = state.committed.keyed_next.get("0", 0)

    def write_open_attempt(self) -> list[bytes] | None:
        """Runs the open attempt's tasks and reports; returns the tasks, None when no attempt is open."""
        view = self.desk.wait_for_unreported(0.0)
        if view is None:
            return None
        tasks = self._planner(begin_response(view, SHARDS), 2)
        outcomes = [run_task(task, _Worker(self.client, self.clock)) for task in tasks]
        self.report(view.planned.epoch, view.planned.attempt, view.planned.instant or "", outcomes)
        return tasks

    def report(self, epoch: int, attempt: int, instant: str, outcomes: Sequence[TaskSucceeded]) -> bool:
        """Hands the outcomes in as the writer's driver would."""
        stats = [stat for outcome in outcomes for stat in outcome.write_stats]
        report = Report(
            tuple(WriteStat.from_avro(msgspec.json.decode(stat)) for stat in stats),
            tuple(
                RecordIndexFile(f.shard, f.size, f.upserts, f.deletes)
                for o in outcomes
                for f in o.record_index
            ),
        )
        return self.desk.report(epoch, attempt, instant, report)

    def run_until_idle(self, steps_max: int = 60) -> None:
        """Steps the coordinator and writes what it opens until nothing that counts is uncommitted."""
        for _ in range(steps_max):
            coordinator = self.coordinator or self.start_coordinator()
            coordinator.step(0.0)
            self.write_open_attempt()
            self.clock.advance(0.01)
            assert self.context is not None
            state = self.context.fold().state
            if state.planned is None and not state.tagged and not coordinator.seen.rewind_due:
                return
        raise AssertionError(f"not idle after {steps_max} steps: {coordinator.doing}")

    def rows(self) -> dict[str, Row]:
        """The live rows as hudi-rs reads them, by key; fails when a key is there twice."""
        from hudi import HudiTableBuilder

        table = HudiTableBuilder.from_base_uri(self.storage.base_uri).build()
        found = [row for batch in table.read() for row in pa.table(batch).to_pylist()]
        assert len({row["id"] for row in found}) == len(found), "a key is there twice"
        return {row["id"]: {name: row[name] for name in ("id", "day", "ts", "v")} for row in found}

    def record_index(self) -> dict[str, tuple[str, str]]:
        """(partition path, file id) per key, as the metadata table has it."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        found: dict[str, tuple[str, str]] = {}
        for shard in range(snapshot.num_shards):
            entries = snapshot.shard(shard).entries()
            for key, location in zip(entries.keys.to_pylist(), entries.location_ids, strict=True):
                at = entries.locations[int(location)]
                assert key not in found
                found[key] = (at.partition_path, at.file_id)
        return found

    def ledger_end(self) -> int:
        """The read_committed end of the ledger."""
        return self.client.admin().end_offset(TopicPartition(self.topics.ledger, 0), Isolation.READ_COMMITTED)

    def _produce(self, producer: Any, role: Topic, topic: str, nonce: str, batch: pa.Table) -> Produced:
        value = encode_batch(batch).to_pybytes()
        header = BatchHeader(nonce, 0, batch.num_rows, SCHEMA.fingerprint)
        delivery = producer.produce(TopicPartition(topic, 0), value, None, header.encode())
        producer.flush()
        return Produced(
            role, 0, delivery.offset, delivery.offset, 1, batch.num_rows, chained_checksum([value])
        )


def _data_batch(rows: Sequence[tuple[Row, DataOp, str]]) -> pa.Table:
    schema = with_user_columns(DATA_COLUMNS, SCHEMA.arrow)
    records = [
        {
            KEY: row["id"],
            PARTITION: row["day"],
            FILE_ID: file_id,
            "_tm_ordering": row["ts"],
            "_tm_op": int(op),
            **({} if op is DataOp.DELETE else row),
        }
        for row, op, file_id in rows
    ]
    return pa.Table.from_pylist(records, schema=schema)


def _index_batch(rows: Sequence[tuple[Row, DataOp, str]]) -> pa.Table:
    ops = {DataOp.INSERT: IndexOp.UPSERT, DataOp.UPDATE: IndexOp.UNCHANGED, DataOp.DELETE: IndexOp.DELETE}
    shards = record_index_shard(pa.array([row["id"] for row, _, _ in rows], pa.string()), SHARDS)
    records = [
        {
            KEY: row["id"],
            "_tm_shard": int(shard),
            PARTITION: row["day"],
            FILE_ID: file_id,
            "_tm_ordering": row["ts"],
            "_tm_exact": True,
            "_tm_op": int(ops[op]),
        }
        for (row, op, file_id), shard in zip(rows, shards, strict=True)
    ]
    return pa.Table.from_pylist(records, schema=INDEX_COLUMNS)
