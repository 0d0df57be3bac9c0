"""The commit path without gRPC, Spark and a broker process: the product's coordinator, decisions log, writer
tasks and format library over the in-memory broker and a real folder; the tagger is a script.

Everything that dies in reality can be dropped here: `crash()` forgets the coordinator, and the next `step`
starts a new one with a new term.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from hudi import HudiTableBuilder

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.kept_tables import MemoryKept
from tests.simulation.clocked_storage import ClockedStorage
from tests.simulation.points import Points
from tests.simulation.scripted_tagger import SCHEMA, SHARDS, TABLE, Row, ScriptedTagger
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff, OpenAttemptView
from tidemark.commit_coordinator.calls.service import begin_response
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.commit.attempt_effects import tick_lock
from tidemark.commit_coordinator.commit.context import Context, Report, TableFacts
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.coordinator import Coordinator
from tidemark.commit_coordinator.domain.next_action import AttemptProblem, Limits
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.opening.schemas import SchemaRegistry
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.commit_coordinator.table_services.handler import ServiceHandler
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.file_group.kept_tables import KeptTables
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, ShardId
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.table_lock import CLOCK_SKEW_MS, FREE_MS
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableDefinition, TableType, read_table_config
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import WriteStat
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ports import RangeReader, TopicSpec
from tidemark.stream_writer.epoch_tasks import index_tasks, table_facts, task_planner, touched_groups
from tidemark.stream_writer.errors import WriterError
from tidemark.stream_writer.task_outcome import TaskFailed, TaskSucceeded, failure_of
from tidemark.stream_writer.tasks import run_task

ATTEMPTS_MAX = 8


class MemoryWorker:
    """Stands in for a Spark worker's context: a reader of the in-memory broker."""

    def __init__(self, client: MemoryKafkaClient, clock: ManualClock) -> None:
        self.clock = clock
        self._client = client
        self._kept = MemoryKept(lost_every=5)

    def kept_tables(self, epoch: int, bytes_max: int) -> KeptTables:
        return self._kept

    def range_reader(self, kafka: Mapping[str, str]) -> RangeReader:
        return self._client.range_reader()


class CommitPath:
    """One table under test. `ordered`: it has the ordering field ``ts``. `stats`: columns of its column
    stats. `partition_shards`: of a new data partition in a partitioned record index; 0: the index is global.
    """

    def __init__(
        self,
        folder: Path,
        table_type: TableType,
        *,
        ordered: bool,
        seed: int = 7,
        stats: Sequence[str] = (),
        schema: TableSchema = SCHEMA,
        partition_shards: int = 0,
    ) -> None:
        self.schema, self.partition_shards = schema, partition_shards
        self.clock = ManualClock(1_750_000_000_000)
        self.ids = SeededIds(seed)
        self.failpoints = FailpointRegistry(CoordinatorFailpoint)
        self.broker = MemoryBroker(self.clock, self.ids)
        self.client = MemoryKafkaClient(self.broker)
        self.worker = MemoryWorker(self.client, self.clock)
        self.topics = TopicNames(TABLE)
        for name in (self.topics.data, self.topics.index, self.topics.ledger, self.topics.epochs):
            self.client.admin().create_topics([TopicSpec(name, 1)])
        self.storage = ClockedStorage(folder, self.clock)
        self.make_table(table_type, ordered, stats)
        self.action = Action.DELTA_COMMIT if table_type is TableType.MERGE_ON_READ else Action.COMMIT
        facts = table_facts(
            read_table_config(self.storage),
            self.storage.base_uri,
            {},
            self.topics.data,
            self.topics.index,
            1 << 20,
        )
        self.plan_tasks = task_planner(facts)
        self.tagger = ScriptedTagger(self.client, self.topics, schema)
        self.coordinator: Coordinator | None = None
        self.context: Context | None = None
        self.attempts = AttemptHandoff()
        self.points = Points()
        self.handlers: Callable[[Context], Sequence[ServiceHandler]] = lambda _: ()
        self.service_rules = ServiceRules()
        self.handoff = ServiceHandoff(self.clock)

    def make_table(self, table_type: TableType, ordered: bool, stats: Sequence[str]) -> None:
        """An empty table with a metadata table."""
        definition = TableDefinition(
            name=TABLE,
            table_type=table_type,
            record_key_fields=("id",),
            partition_fields=("day",),
            ordering_fields=("ts",) if ordered else (),
            schema=self.schema.avro_json,
        )
        create_table(self.storage, definition)
        kind = IndexKind.PARTITIONED if self.partition_shards else IndexKind.GLOBAL
        instants = InstantGenerator(self.clock)
        bootstrap_metadata_table(self.storage, SHARDS, instants, kind=kind, stats=stats)

    def fold_reader(self) -> FoldReader:
        """A reader of its own."""
        return FoldReader(
            self.client,
            self.topics.ledger,
            self.topics.epochs,
            lambda path, sha256: load_document(self.storage, path, sha256),
            self.clock,
        )

    def start_coordinator(self) -> Coordinator:
        """A new process with a new term, and new `points` that tell where it is."""
        reader, points = self.fold_reader(), Points()
        log = DecisionsLog(
            self.client, self.topics.epochs, f"{TABLE}-coordinator", reader, self.clock, lambda _: None
        )
        storage = points.over(self.storage)
        publication = open_publication(storage, self.clock, self.ids)
        term = take_over(publication, log, lambda: reader.fold, self.ids.uuid())

        def hit(name: str) -> None:
            points.passing(name)
            self.failpoints.hit(CoordinatorFailpoint(name))

        schemas = SchemaRegistry(storage, TABLE, self.schema, ["id"])
        schemas.register(self.schema.avro_json)
        self.context = Context(
            table=TableFacts(
                TABLE,
                self.action,
                self.topics.keyed,
                0 if self.partition_shards else SHARDS,
                schemas.united,
                partition_shards=self.partition_shards,
            ),
            publishing=term,
            clock=self.clock,
            ids=self.ids,
            log=log,
            instants=InstantGenerator(self.clock),
            fold=lambda: reader.fold,
            lock_wait_ms=1_000,
            index_build_ms=3_600_000,
            hit=hit,
        )
        self.points, self.attempts, self.handoff = points, AttemptHandoff(), ServiceHandoff(self.clock)
        services = ServiceRunner(self.context, self.handlers(self.context), self.handoff, self.service_rules)
        limits = Limits(0, 1 << 30, ATTEMPTS_MAX)
        self.coordinator = Coordinator(self.context, limits, self.attempts, (), services)
        return self.coordinator

    def crash(self) -> None:
        """The coordinator is gone, with all it had in memory."""
        self.coordinator, self.context = None, None

    def state(self) -> FoldState:
        """What a new reader makes of the topics."""
        reader = self.fold_reader()
        reader.catch_up()
        return reader.fold.state

    def tag(self, rows: Sequence[tuple[Row, DataOp, str]]) -> int:
        """One transaction of the assigner; returns its ledger offset."""
        return self.tagger.tag(rows)

    def open_attempt(self) -> OpenAttemptView:
        """The open attempt, which there must be."""
        view = self.attempts.wait_for_unreported(0.0)
        assert view is not None
        return view

    def run_open_attempt(self) -> list[bytes]:
        """Runs the open attempt's tasks without a report; returns them, none when no attempt is open."""
        view = self.attempts.wait_for_unreported(0.0)
        return [] if view is None else self.plan_tasks(begin_response(view, SHARDS), 2)

    def write_open_attempt(self) -> list[bytes]:
        """Runs the open attempt's tasks and reports; returns the tasks, none when no attempt is open."""
        view, tasks = self.attempts.wait_for_unreported(0.0), self.run_open_attempt()
        if view is not None:
            outcomes = self.outcomes_of(view, tasks)
            assert self.report(view.planned.epoch, view.planned.attempt, view.planned.instant or "", outcomes)
        return tasks

    def outcomes_of(self, view: OpenAttemptView, tasks: Sequence[bytes]) -> list[TaskSucceeded]:
        """Runs the tasks, then those of the indexes that follow from all files."""
        outcomes = [run_task(task, self.worker) for task in tasks]
        more = index_tasks(begin_response(view, SHARDS), tasks, outcomes)
        return [*outcomes, *(run_task(task, self.worker) for task in more)]

    def try_open_attempt(self) -> TaskFailed | None:
        """Runs the open attempt's tasks as a worker does; the first failure, None when all are written."""
        for task in self.run_open_attempt():
            try:
                run_task(task, self.worker)
            except WriterError as error:
                return failure_of(error, 0)
        return None

    def report(self, epoch: int, attempt: int, instant: str, outcomes: Sequence[TaskSucceeded]) -> bool:
        """Hands the outcomes in as the writer's driver would."""
        stats = [stat for outcome in outcomes for stat in outcome.write_stats]
        logs = [log for outcome in outcomes for log in outcome.metadata_logs]
        report = Report(
            tuple(WriteStat.from_avro(msgspec.json.decode(stat)) for stat in stats),
            tuple(logs),
            files_without_stats=sum(outcome.files_without_stats for outcome in outcomes),
            secondary_groups=touched_groups(outcomes),
            begun=tuple(file for outcome in outcomes for file in outcome.begun),
        )
        return self.attempts.report(epoch, attempt, instant, report)

    def fail_open_attempt(self, *, rewind: bool) -> None:
        """The writer says that the attempt cannot be written."""
        planned = self.open_attempt().planned
        problem = AttemptProblem("disk full", rewind)
        assert self.attempts.fail(planned.epoch, planned.attempt, planned.instant or "", problem)

    def step_coordinator(self) -> None:
        """One step of the coordinator, a new one when there is none; and the time in which it leaves the
        table's lock to others.
        """
        (self.coordinator or self.start_coordinator()).step(0.0)
        self.clock.advance((CLOCK_SKEW_MS + FREE_MS) / 1000)
        assert self.context is not None
        tick_lock(self.context)

    def step(self) -> None:
        """One step of the coordinator, then of the writer."""
        self.step_coordinator()
        self.write_open_attempt()
        self.clock.advance(0.01)

    def is_idle(self) -> bool:
        """Nothing that counts is uncommitted, and nothing is to be cleaned."""
        if self.coordinator is None or self.context is None:
            return False
        state = self.context.fold().state
        clean = set(state.voided) <= self.coordinator.seen.cleaned
        return state.planned is None and not state.tagged and not self.coordinator.seen.rewind_due and clean

    def run_until_idle(self, steps_max: int = 60) -> None:
        """Steps the coordinator and writes what it opens until nothing that counts is uncommitted."""
        for _ in range(steps_max):
            self.step()
            if self.is_idle():
                return
        raise AssertionError(
            f"not idle after {steps_max} steps: {self.coordinator and self.coordinator.doing}"
        )

    def rows(self) -> dict[str, Row]:
        """The live rows as hudi-rs reads them, by key; fails when a key is there twice."""
        table = HudiTableBuilder.from_base_uri(self.storage.base_uri).build()
        found = [row for batch in table.read() for row in pa.table(batch).to_pylist()]
        assert len({row["id"] for row in found}) == len(found), "a key is there twice"
        return {row["id"]: {name: row[name] for name in ("id", "day", "ts", "v")} for row in found}

    def record_index(self) -> dict[str, tuple[str, str]]:
        """(partition path, file id) per key, as the metadata table has it."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        found: dict[str, tuple[str, str]] = {}
        for shard in range(snapshot.num_shards):
            entries = snapshot.shard(ShardId(shard)).entries()
            for key, location in zip(entries.keys.to_pylist(), entries.location_ids, strict=True):
                at = entries.locations[int(location)]
                assert key not in found
                found[key] = (at.partition_path, at.file_id)
        return found

    def files(self) -> dict[str, str]:
        """Every file of the table with its content's hash."""
        return {
            info.path: hashlib.sha256(self.storage.read(info.path)).hexdigest()
            for info in self.storage.walk("")
        }
