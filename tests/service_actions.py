"""Table services done to a table on disk as the coordinator does them, on one thread, without a broker: plan,
tasks, decide, commit, sweep. It can die at a failpoint; a successor goes on from the decisions.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from testing.ids import SeededIds
from testing.terms import begin_term
from tests.simulation.clocked_storage import ClockedStorage
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceReport
from tidemark.commit_coordinator.commit.context import Context, TableFacts
from tidemark.commit_coordinator.commit.listed_slices import index_stats
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.table_services import steps
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.commit_coordinator.table_services.cleans import CleanData, CleanIndex
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    ServiceHandler,
)
from tidemark.commit_coordinator.table_services.listings import own_pending
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.config.table_services_model import (
    ArchiveConfig,
    CleanConfig,
    DataCompactionConfig,
    IndexCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.entries import TimelineSeen
from tidemark.epoch_protocol.seen import SeenInstants
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned, ServiceStep
from tidemark.epoch_protocol.service_status import apply_service
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.publication.locate import service_files_of
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.data_group import RowRules, merge_data_group
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import (
    CompactionPlan,
    MergeOutcome,
    decode_plan,
    encode_outcomes,
    output_name,
    output_path,
)
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.identity import judged_instants
from tidemark.stream_runtime.clock import SystemClock

EVERYTHING_NOW: Final = TableServicesConfig(
    compact_index=IndexCompactionConfig(ratio_from_bytes=0),
    compact_data=DataCompactionConfig(log_files=1),
    clean=CleanConfig(retain_ms=1),
    archive=ArchiveConfig(min=2, max=2, batch=1),
)
"""Each log file is worth a compaction, readers keep nothing, and two writes stay active."""


class _AtOnce(Executor):
    """Runs what is submitted before `submit` returns."""

    def submit(self, fn, /, *args, **kwargs):
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class DiedError(Exception):
    """The process ended at a failpoint."""


@dataclass
class _Fold:
    state: FoldState


class _Decisions:
    """The decisions topic: an entry is read back at once."""

    def __init__(self, term: int, state: FoldState) -> None:
        self.term, self._state = term, state

    def append(self, *entries: ServiceStep | TimelineSeen) -> None:
        for entry in entries:
            if isinstance(entry, TimelineSeen):
                assert self._state.seen is not None
                self._state.seen.look(entry.start, entry.added, entry.removed)
                continue
            following = apply_service(self._state.services, self._state.next_service, entry)
            assert following is not None, f"{entry} is out of place"
            self._state.next_service = following

    def check_term(self) -> None:
        """There is no successor yet."""


class ServedTable:
    """A table with a coordinator's term. ``clock``: of the coordinator and of the lock."""

    def __init__(
        self, table: Path, schema: TableSchema, clock: Clock, config: TableServicesConfig = EVERYTHING_NOW
    ) -> None:
        self.schema, self.clock = schema, clock
        is_real = isinstance(clock, SystemClock)
        # Files are as old as they are by the clock that the test moves.
        self.storage = LocalStorage(str(table)) if is_real else ClockedStorage(table, clock)
        self.table_config = read_table_config(self.storage)
        self.config = config
        self.state = FoldState()
        self._term = 0
        self._dies_at: tuple[str, int] | None = None
        self.dropped = ""
        self.begin()

    def begin(self) -> None:
        """A coordinator begins its term: the first one, or the successor of one that died."""
        self.begin_without_listing()
        self.list_files()

    def begin_without_listing(self) -> None:
        """As `begin`; what is known of the table's slices is nothing."""
        self._term += 1
        self._dies_at = None
        self.term = begin_term(self.storage, self._term, cast(Any, self.clock))
        self.placement = Placement(120 << 20, SeededIds(self._term))
        self.context = self._context()
        self.handlers: dict[ServiceKind, ServiceHandler] = {
            each.kind: each
            for each in (
                CompactIndex(self.config.compact_index, self.placement),
                CompactData(self.config.compact_data, self.placement),
                CleanData(self.config, self.placement),
                CleanIndex(self.config),
                RollBackDead(self.config.rollback),
                Archive(self.config.archive, _AtOnce()),
            )
        }

    def _context(self) -> Context:
        is_on_read = self.table_config.is_merge_on_read
        action = Action.DELTA_COMMIT if is_on_read else Action.COMMIT
        shards = MetadataTableSnapshot.load(self.storage).num_shards
        facts = TableFacts(
            self.table_config.name, action, "keyed", shards, lambda _, __: self.schema.avro_json
        )
        decisions: Any = _Decisions(self._term, self.state)
        return Context(
            facts,
            self.term,
            self.clock,  # type: ignore[arg-type]
            SeededIds(self._term),
            decisions,
            InstantGenerator(self.clock),
            lambda: cast(Any, _Fold(self.state)),
            5_000,
            self._hit,
            3_600_000,
        )

    def list_files(self) -> None:
        """The stats of all slices, as after a rewind."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        view = TableView.of(self.storage, snapshot.data_timeline)
        own = own_pending(self.context)
        self.placement.load(snapshot.files, view, index_stats(self.storage, snapshot), own)
        self.state.seen = SeenInstants(names=set(judged_instants(snapshot.data_timeline)))

    def dies_at(self, failpoint: str, nth: int = 1) -> None:
        """The process dies at this hit of the failpoint."""
        self._dies_at = (failpoint, nth)

    def lives(self) -> None:
        """The process passes all failpoints."""
        self._dies_at = None

    def _hit(self, name: str) -> None:
        if self._dies_at is not None and self._dies_at[0] == name:
            if self._dies_at[1] == 1:
                raise DiedError(name)
            self._dies_at = (name, self._dies_at[1] - 1)

    def act(self, kind: ServiceKind, *, asked: bool = False) -> bool:
        """One whole action; False when there was nothing to do, or it became void."""
        return self.plan(kind, asked=asked) and self.decide(kind) and self.sweep(kind)

    def plan(self, kind: ServiceKind, *, asked: bool = False) -> bool:
        planned = steps.plan(self.context, self.handlers[kind], self.state.next_service, asked)
        self.dropped = planned.reason if isinstance(planned, Dropped) else ""
        return isinstance(planned, ServicePlanned)

    def work(self, kind: ServiceKind) -> ServiceReport:
        """The tasks: prepares the files."""
        if not self.handlers[kind].has_tasks:
            return steps.NO_REPORT
        planned = self.state.services[kind].planned
        plan = decode_plan(
            load_document(self.storage, planned.plan_path, planned.plan_sha256), planned.plan_path
        )
        token = self.term.open_service(planned.service)
        outcomes = tuple(self._merge(plan, number, token) for number, _ in plan.kept())
        tickets = tuple(each.ticket for each in outcomes if each.ticket is not None)
        return ServiceReport(encode_outcomes(outcomes), tickets)

    def _merge(self, plan: CompactionPlan, number: int, token: str) -> MergeOutcome:
        files, operation = service_files_of(self.storage, token), plan.operations[number]
        name = output_name(plan, number)
        sink = files.grow(output_path(plan, number, METADATA_TABLE_PATH if plan.is_index else ""))
        with tempfile.TemporaryDirectory() as scratch:
            bounds = MergeBounds(64 << 20, Path(scratch))
            if plan.is_index:
                counts = merge_index_shard(self.storage, operation, plan.instant, sink, bounds)
            else:
                counts = merge_data_group(self.storage, operation, self._rules(), name, sink, bounds)
        ticket = sink.finish()
        return counts.outcome(number, name, ticket)

    def _rules(self) -> RowRules:
        fields = self.table_config.ordering_fields
        ordering = OrderingField.of(self.schema, fields[0]) if fields else None
        return RowRules(self.schema, self.table_config.merge_mode, ordering)

    def decide(self, kind: ServiceKind, report: ServiceReport | None = None) -> bool:
        """Decides and commits; the tasks are done before, unless their report is given."""
        report = self.work(kind) if report is None else report
        planned = self.state.services[kind].planned
        result = steps.decide(self.context, self.handlers[kind], planned, report)
        if isinstance(result, Dropped):
            self.dropped = result.reason
            steps.void(self.context, planned, result.reason)
            self.term.close_service(planned.service)
            return False
        self._completed = result
        return True

    def finish(self, kind: ServiceKind) -> bool:
        """Goes on with an action that a coordinator has decided, and ends it."""
        self._completed = steps.commit(self.context, self.handlers[kind], *self._held(kind))
        return self.sweep(kind)

    def sweep(self, kind: ServiceKind) -> bool:
        planned, decided = self._held(kind)
        while True:
            handler, completed = self.handlers[kind], self._completed
            if steps.sweep(self.context, handler, planned, decided, completed, 50):
                return True

    def decided(self, kind: ServiceKind) -> DecidedAction:
        return steps.decided_action(self.context, *self._held(kind))

    def take_back(self, kind: ServiceKind) -> None:
        planned, decided = self._held(kind)
        assert steps.take_back(self.context, self.handlers[kind], planned, decided, "a test says so")
        self.term.close_service(planned.service)

    def _held(self, kind: ServiceKind) -> tuple[ServicePlanned, ServiceDecided]:
        held = self.state.services[kind]
        assert held.decided is not None
        return held.planned, held.decided
