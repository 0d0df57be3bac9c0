"""Table services done to a table on disk as the coordinator does them, on one thread, without a broker: plan,
tasks, decide, commit, sweep. It can die at a failpoint; a successor goes on from the decisions.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from testing.ids import SeededIds
from testing.terms import begin_term
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.context import Context, TableFacts
from tidemark.commit_coordinator.commit.listed_slices import index_figures
from tidemark.commit_coordinator.commit.stored_documents import load_document, store_document
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.table_services.cleans import CleanData, CleanIndex
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceHandler,
)
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.config.table_services_model import (
    CleanConfig,
    DataCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.commit.instants import completed_file
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

EVERYTHING_NOW: Final = TableServicesConfig(
    compact_data=DataCompactionConfig(log_files=1), clean=CleanConfig(retain_ms=1)
)
"""Each log file is worth a compaction, and readers keep nothing."""


class DiedError(Exception):
    """The process ended at a failpoint."""


@dataclass
class _Fold:
    state: FoldState


class ServedTable:
    """A table with a coordinator's term. ``clock``: of the coordinator and of the lock."""

    def __init__(
        self, table: Path, schema: TableSchema, clock: Clock, config: TableServicesConfig = EVERYTHING_NOW
    ) -> None:
        self.storage, self.schema, self.clock = LocalStorage(str(table)), schema, clock
        self.table_config = read_table_config(self.storage)
        self.config = config
        self.state = FoldState()
        self._term = 0
        self._dies_at: tuple[str, int] | None = None
        self._next_service = 1
        self._deletions: list[str] = []
        self.begin()

    def begin(self) -> None:
        """A coordinator begins its term: the first one, or the successor of one that died."""
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
                CleanData(self.config),
                CleanIndex(self.config),
                RollBackDead(self.config.rollback),
            )
        }
        self.list_files()

    def _context(self) -> Context:
        is_on_read = self.table_config.is_merge_on_read
        action = Action.DELTA_COMMIT if is_on_read else Action.COMMIT
        shards = MetadataTableSnapshot.load(self.storage).num_shards
        facts = TableFacts(
            self.table_config.name, action, "keyed", shards, lambda _, __: self.schema.avro_json
        )
        no_log: Any = None
        return Context(
            facts,
            self.term,
            self.clock,  # type: ignore[arg-type]
            SeededIds(self._term),
            no_log,
            InstantGenerator(self.clock),
            lambda: cast(Any, _Fold(self.state)),
            5_000,
            self._hit,
        )

    def list_files(self) -> None:
        """The figures of all slices, as after a rewind."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        view = TableView.of(self.storage, snapshot.data_timeline)
        self.placement.load(snapshot.files, view, index_figures(self.storage, snapshot))

    def dies_at(self, failpoint: str, nth: int = 1) -> None:
        """The process dies at this hit of the failpoint."""
        self._dies_at = (failpoint, nth)

    def _hit(self, name: str) -> None:
        if self._dies_at is not None and self._dies_at[0] == name:
            if self._dies_at[1] == 1:
                raise DiedError(name)
            self._dies_at = (name, self._dies_at[1] - 1)

    def act(self, kind: ServiceKind) -> bool:
        """One whole action; False when there was nothing to do, or it became void."""
        return self.plan(kind) and self.work(kind) is not None and self.decide(kind) and self.finish(kind)

    def step(self) -> LockedStep:
        """A step under the lock, which the caller holds."""
        timelines = load_timelines(self.storage)
        self.context.instants.observe(timelines.times())
        return LockedStep(self.context, timelines)

    @contextlib.contextmanager
    def locked(self):
        self.context.lock.acquire(5_000, ends_epoch=True)
        try:
            yield self.step()
        finally:
            if self._dies_at is None:
                self.context.lock.release(None)

    def plan(self, kind: ServiceKind) -> bool:
        with self.locked() as step:
            instant = self.context.instants.next()
            plan = self.handlers[kind].plan(step, instant)
            if plan is None:
                return False
            path, sha256 = store_document(self.storage, plan)
        planned = ServicePlanned(
            self._term, self._next_service, kind, instant, path, sha256, self.clock.now_ms()
        )
        self._next_service += 1
        self.state.services[kind] = OpenService(planned)
        return True

    def planned(self, kind: ServiceKind) -> tuple[ServicePlanned, bytes]:
        planned = self.state.services[kind].planned
        return planned, load_document(self.storage, planned.plan_path, planned.plan_sha256)

    def work(self, kind: ServiceKind) -> Sequence[MergeOutcome]:
        """The tasks: prepares the files that nobody has prepared."""
        planned, content = self.planned(kind)
        self._outcomes: tuple[MergeOutcome, ...] = ()
        if self.handlers[kind].has_tasks:
            plan = decode_plan(content, planned.plan_path)
            token = self.term.open_service(planned.service)
            self._outcomes = tuple(self._merge(plan, number, token) for number, _ in plan.kept())
        return self._outcomes

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
        return MergeOutcome(
            number, name, ticket.size, counts.rows, counts.inserts, counts.updates, counts.deletes,
            counts.log_records, *counts.digest, ticket,
        )  # fmt: skip

    def _rules(self) -> RowRules:
        fields = self.table_config.ordering_fields
        ordering = OrderingField.of(self.schema, fields[0]) if fields else None
        return RowRules(self.schema, self.table_config.merge_mode, ordering)

    def decide(self, kind: ServiceKind) -> bool:
        with self.locked() as step:
            planned, plan = self.planned(kind)
            kept = self.handlers[kind].recheck(step, planned, plan)
            if isinstance(kept, Dropped):
                self.dropped = kept.reason
                self._close(kind)
                return False
            self._kept = kept
            self._decided_outcomes = encode_outcomes(self._outcomes) if self._outcomes else b""
            instants = self.context.instants
            decided = ServiceDecided(
                self._term, planned.service, instants.next(), instants.next(), "", "", self.clock.now_ms()
            )
            self.state.services[kind] = OpenService(planned, decided)
        return True

    def decided(self, kind: ServiceKind) -> DecidedAction:
        held = self.state.services[kind]
        assert held.decided is not None
        return DecidedAction(
            held.planned, held.decided, self._kept, self._decided_outcomes, self._tickets(held.planned)
        )

    def _tickets(self, planned: ServicePlanned) -> Mapping[str, Any]:
        if not self.handlers[planned.kind].has_tasks:
            return {}
        plan = decode_plan(self._kept, planned.plan_path)
        root = METADATA_TABLE_PATH if plan.is_index else ""
        paths = [output_path(plan, number, root) for number, _ in plan.kept()]
        return {ticket.path: ticket for ticket in self.term.adopt(planned.service, paths)}

    def finish(self, kind: ServiceKind) -> bool:
        """Commits what is decided, if it is not committed yet, and sweeps."""
        handler, action = self.handlers[kind], self.decided(kind)
        with self.locked() as step:
            root = handler.timeline
            done = None if root is None else completed_file(self.storage, action.planned.instant, root)
            if done is None:
                handler.commit(step, action)
            by_other = done is not None and not any(
                time in done for time in (action.decided.data_completion, action.decided.metadata_completion)
            )
        while not handler.sweep(self.context, action, by_other, self.clock.now_ms() + 50):
            pass
        self._close(kind)
        return True

    def take_back(self, kind: ServiceKind) -> None:
        with self.locked() as step:
            self.handlers[kind].take_back(step, self.decided(kind))
        self._close(kind)

    def _close(self, kind: ServiceKind) -> None:
        self.term.close_service(self.state.services.pop(kind).planned.service)
