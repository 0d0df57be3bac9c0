"""Makes a coordinator from a table's configuration, and runs it until it is told to stop."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidemark.commit_coordinator.admin.dead_letter_calls import DeadLetterCalls
from tidemark.commit_coordinator.admin.service import AdminService, AdminSources
from tidemark.commit_coordinator.admin.verify_calls import VerifyCalls
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff
from tidemark.commit_coordinator.calls.inbox import Inbox
from tidemark.commit_coordinator.calls.lookups import KeyLookups
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.pausing import pause_of
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service import CommitService
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.calls.terminal_failures import TerminalFailure, TerminalFailures
from tidemark.commit_coordinator.calls.unreported import unreported
from tidemark.commit_coordinator.commit.agreement import check_agreement
from tidemark.commit_coordinator.commit.context import Context, TableFacts
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.timeline_look import has_surprises
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.coordinator import CommitListener, Coordinator
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.dead_letters.retention import retention_now
from tidemark.commit_coordinator.input.ends import awaited_records, input_ends
from tidemark.commit_coordinator.input.lag import InputLag
from tidemark.commit_coordinator.input.skips import InputSkips
from tidemark.commit_coordinator.input.watch import InputView, InputWatch
from tidemark.commit_coordinator.listeners import CommitFollowUp
from tidemark.commit_coordinator.loop import TableLoop
from tidemark.commit_coordinator.opening.ledger_identity import check_identity, ledger_id
from tidemark.commit_coordinator.opening.ledger_record import LedgerRecorder
from tidemark.commit_coordinator.opening.schemas import SchemaRegistry
from tidemark.commit_coordinator.opening.served import ServedTable
from tidemark.commit_coordinator.opening.table_description import describe_configured
from tidemark.commit_coordinator.opening.table_open import OpenedTable, open_beside_predecessor, open_table
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.commit_coordinator.opening.topics_setup import (
    check_lane_source,
    check_recorded,
    ensure_topics,
    open_inputs,
)
from tidemark.commit_coordinator.server import serve, show_health
from tidemark.commit_coordinator.service_parts import (
    facts_of,
    free_lock,
    is_sharded,
    lanes_by_stage,
    lease_listed,
    page_pictures,
    planning_limits,
    stopped_by_topic,
    trimmer_of,
)
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.status.kafka_probe import KafkaProbe
from tidemark.commit_coordinator.status.metrics import CoordinatorMetrics
from tidemark.commit_coordinator.status.open_transactions import OpenTransactions
from tidemark.commit_coordinator.status.sampled_figures import SampledFigures
from tidemark.commit_coordinator.table_services.kinds import service_runner
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.config import TableConfigFile
from tidemark.config.hoodie_section import target_file_bytes, without_effect
from tidemark.hudi_format.errors import FencedOutError, LockLostError
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.page.open_page import Shown, open_page
from tidemark.page.page import WebPage
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import Admin, KafkaClient
from tidemark.stream_runtime.rpc.server import RpcServer
from tidemark.stream_runtime.security.client import client_security
from tidemark.stream_runtime.security.server import server_security

LOCK_WAIT_MS: Final = 5_000
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class Ports:
    """The outside world, which tests replace."""

    kafka: KafkaClient
    storage: Storage
    clock: Clock
    ids: IdSource
    failpoints: FailpointRegistry


class CoordinatorService:
    """One coordinator process: gRPC calls on their threads, the loop on the caller's thread."""

    def __init__(self, config: TableConfigFile, ports: Ports, with_page: bool = False) -> None:
        """``with_page``: `services.web` is served as well."""
        self._config = config
        self._ports = ports
        self._topics = TopicNames(config.table.name)
        self._admin: Admin = ports.kafka.admin()
        load = partial(load_document, ports.storage)
        self._reader = FoldReader(ports.kafka, self._topics.ledger, self._topics.epochs, load, ports.clock)
        self._fold = lambda: self._reader.fold
        self._history = EpochHistory()
        self._board = ViewBoard(self._show_health)
        self._attempts, self._services = AttemptHandoff(), ServiceHandoff(ports.clock)
        self._inbox = Inbox()
        self._ready = threading.Event()
        self._verification = PeriodicVerification.of(config, ports.clock)
        self._failures = TerminalFailures(ports.clock)
        self._open_transactions = OpenTransactions(
            ports.kafka, self._admin, self._topics.ledger_partition, ports.clock
        )
        self._placement = Placement(target_file_bytes(config), ports.ids)
        self._members: Members | None = None
        self._inputs: InputWatch | None = None
        self._served = ServedTable(ports.storage)
        self._server: RpcServer | None = None
        self._with_page = with_page
        self._page: WebPage | None = None
        self._context: Context | None = None
        self._ledger = ""
        self._logs: ReadableLogs | None = None
        self.metrics = CoordinatorMetrics(config, ports.clock, lambda: self._log.term)
        self._security = server_security(config, ports.clock, self.metrics.metrics.refused)
        self._log = DecisionsLog(
            ports.kafka,
            self._topics.epochs,
            f"{config.table.name}-coordinator",
            self._reader,
            ports.clock,
            self.metrics.observing(self._history.observe),
        )

    def run(self, stop: threading.Event) -> None:
        """Serves the table until ``stop``. Raises SupersededError when a newer coordinator claims it."""
        try:
            loop = self.start()
            self.members.start()
            self.metrics.start()
            self.inputs.start()
            with self._served.sign_of_life():
                loop.run(stop, self.load_sizes)
        except (FencedOutError, LockLostError):
            # A successor takes term and lock, after its claim: then the caller has to get SupersededError.
            self._log.check_term()
            raise
        finally:
            self.close()

    def start(self) -> TableLoop:
        """Opens the table, answers calls, takes the table over. The caller runs the loop, then closes."""
        ports, config = self._ports, self._config
        self._admin.check_broker()
        check_identity(config, ports.storage, self._admin, self._log, self._fold)
        table = open_beside_predecessor(
            lambda pending: open_table(config, ports.storage, ports.clock, pending), self._has_begun
        )
        self._ledger = ledger_id(ports.storage, ports.ids)
        self._logs = table.logs
        opened = open_inputs(config, ports.storage, self._admin)
        check_recorded(ports.storage, ensure_topics(config, self._admin))
        check_lane_source(config, ports.storage)
        self._inputs = InputWatch(config, ports.storage, self._admin, opened.topics, self._show_inputs)
        # There are no lanes yet: the first look at the input topics sets them, after the takeover.
        self._members = members = Members(
            config.table.name, ports.kafka, ports.clock, config.limits.lease_ms, {}, self._board.position
        )
        if ignored := without_effect(config):
            _log.warning("hoodie: %s has no effect on what Tidemark writes", ", ".join(ignored))
        schemas = SchemaRegistry.of(config, ports.storage, table.schema)
        self._server = self._serve(table, self._inputs, members, self._placement, schemas)
        owner = f"coordinator-{ports.ids.uuid()}"
        publication = open_publication(ports.storage, ports.clock, ports.ids)
        term = take_over(publication, self._log, self._fold, owner, self._ledger, table.num_shards)
        self._served.taken_over(term, owner)
        table.keep_columns(term)
        self._inputs.took_over(term, opened.recorded)
        coordinator, self._context, trimmer = self._coordinator(table, self._placement, schemas, term)
        self.load_sizes()
        members.took_over(self._reader.fold.state, term)
        self._ready.set()
        self._server.set_serving(True)
        self._show_health(self._board.current)
        _log.info("coordinating %s as term %d", config.table.path, self._log.term)
        recorder = LedgerRecorder(term)
        return TableLoop(coordinator, self._context, trimmer, self._inbox, self._board, recorder.keep)

    @property
    def ready(self) -> threading.Event:
        """Set once the table is taken over and its calls are answered."""
        return self._ready

    @property
    def members(self) -> Members:
        """The leases, from `start` on."""
        assert self._members is not None
        return self._members

    @property
    def inputs(self) -> InputWatch:
        """The input topics, from `start` on."""
        assert self._inputs is not None
        return self._inputs

    def close(self) -> None:
        """Ends all threads and calls, and closes the clients."""
        if self._page is not None:
            self._page.close()
        self.metrics.stop()
        # Callers that wait for a verification are answered before the server stops.
        self._verification.stop()
        if self._server is not None:
            self._server.stop()
        if self._inputs is not None:
            self._inputs.stop()
        if self._members is not None:
            self._members.stop()
        self._log.close()
        self._reader.close()
        self._open_transactions.close()
        self._admin.close()

    def _show_health(self, view: CoordinatorView) -> None:
        if self._server is not None and self._ready.is_set():
            show_health(self._server, view.halted is not None)

    def _has_begun(self) -> bool:
        """Whether a coordinator has claimed the table before, by the topics."""
        if self._admin.partitions(self._topics.epochs) is None:
            return False
        self._log.catch_up()
        return self._reader.fold.state.coordinator_term is not None

    def _show_inputs(self, view: InputView) -> None:
        for stage, lanes in lanes_by_stage(self._config, view).items():
            self.members.set_lanes(stage, lanes)
        taken, now_ms = self._board.current.taken_next, self._ports.clock.now_ms()
        self.members.stopped_lanes.stopped_by_topic(stopped_by_topic(self._config, view, taken, now_ms))

    def _serve(
        self,
        table: OpenedTable,
        inputs: InputWatch,
        members: Members,
        placement: Placement,
        schemas: SchemaRegistry,
    ) -> RpcServer:
        config, ports = self._config, self._ports
        gone, starts = (lambda: bool(self._gone())), (lambda: inputs.starts)
        awaited = awaited_records(self._admin, members.empty_ranges, gone, starts)

        def ends() -> dict[str, int]:
            return input_ends(self._admin, inputs.view.lanes())

        retention = partial(retention_now, ports.kafka, config, ports.clock)
        status = self._status_source(table, InputLag(ends, awaited, ports.clock), members, inputs, schemas)
        self.metrics.watch(status, SampledFigures(status, ends, awaited, is_sharded(config), retention))
        skips = InputSkips(members.stopped_lanes.current, self._board, ports.ids, ports.clock, members.holder)
        commit = CommitService(
            facts_of(config, table, self._ledger),
            members,
            placement,
            self._attempts,
            schemas.register,
            lambda stage: pause_of(stage, self._board.current, members.uncommitted_entries(), config.limits),
            self._ready.is_set,
            self._inbox,
            skips,
            self._services,
            self._failures.say,
        )
        security, lanes_count = client_security(config, ports.clock), config.table.index.lanes
        lookups = KeyLookups(config.table.name, members, table.num_shards, lanes_count, security)
        topics = config.input.topics
        dead_letters = DeadLetterQueries(ports.kafka, config.table.name, topics, ports.clock, retention)
        sources = AdminSources(
            board=self._board,
            history=self._history,
            inbox=self._inbox,
            status=status.take,
            targets=lambda: input_ends(self._admin, inputs.look_for_all().lanes()),
            accept_topic=inputs.accept,
            holds_records=awaited,
            stopped_lanes=members.stopped_lanes.current,
            skip=skips.skip,
            lookup=lookups.lookup,
            served=self._served.answer,
            dead_letters=DeadLetterCalls(dead_letters),
            verify=VerifyCalls(self._verification, ports.clock),
            describe=partial(describe_configured, config, ports.storage, table.num_shards),
            clock=ports.clock,
        )
        admin = AdminService(config.table.name, sources)
        if self._with_page:
            pictures = page_pictures(config.table.name, ports.kafka, ports.clock, self._board, placement)
            shown = Shown(admin, pictures, table.config, target_file_bytes(config))
            self._page = open_page(config, ports.storage, ports.clock, self._security, shown)
        return serve(config, commit, admin, self._security)

    def _status_source(
        self, table: OpenedTable, lag: InputLag, members: Members, inputs: InputWatch, schemas: SchemaRegistry
    ) -> StatusSource:
        config, ports = self._config, self._ports
        return StatusSource(
            table=config.table.name,
            path=config.table.path,
            board=self._board,
            members=members,
            history=self._history,
            placement=self._placement,
            storage=ports.storage,
            clock=ports.clock,
            kafka=KafkaProbe(lag.document, self._open_transactions.oldest),
            writer_asked=lambda: self._attempts.asked,
            verification=self._verification,
            writer=lambda: self._attempts.writer,
            not_reported=lambda: unreported(
                self._attempts.unreported(),
                self._attempts.writer,
                ports.storage,
                self._topics,
                facts_of(config, table),
            ),
            open_transaction=self._open_transactions.oldest,
            terminal_failures=self._gone,
            lease_ms=config.limits.lease_ms,
            stopped_lanes=members.stopped_lanes.current,
            refused=self._security.access.refused.counts,
            inputs=inputs,
            unfilled_columns=schemas.unfilled_columns,
            dead_letters=self.metrics.dead_letters,
        )

    def _gone(self) -> list[TerminalFailure]:
        return self._failures.current(lambda stage: bool(self.members.members(stage)))

    def _coordinator(
        self, table: OpenedTable, placement: Placement, schemas: SchemaRegistry, term: Term
    ) -> tuple[Coordinator, Context, Trimmer]:
        config, ports, topics = self._config, self._ports, self._topics
        state, timelines = self._reader.fold.state, load_timelines(ports.storage)
        check_agreement(ports.storage, timelines, state)
        schemas.resume({counted.entry.schema_id for counted in state.tagged})
        action = Action.DELTA_COMMIT if table.config.is_merge_on_read else Action.COMMIT
        sharded = config.input.topics[0] if is_sharded(config) else None
        keyed, inputs = sharded or topics.keyed, InputPositions(sharded)
        accepted = config.table.accept_properties
        context = Context(
            table=TableFacts(
                config.table.name, action, keyed, table.num_shards, schemas.united, inputs, accepted
            ),
            publishing=term,
            clock=ports.clock,
            ids=ports.ids,
            log=self._log,
            instants=InstantGenerator(ports.clock),
            fold=self._fold,
            lock_wait_ms=LOCK_WAIT_MS,
            hit=ports.failpoints.hit,
        )
        context.steps.watch(self.metrics.traces.step)
        trimmer = trimmer_of(self._admin, topics, with_keyed=sharded is None)
        limits = planning_limits(config)
        follow_up = CommitFollowUp(self._history, placement, trimmer, inputs)
        listeners: list[CommitListener] = [follow_up, self._verification, self.metrics]
        services = service_runner(config, context, self._services, placement)
        coordinator = Coordinator(context, limits, self._attempts, listeners, services)
        free_lock(context)
        if state.planned is None and has_surprises(ports.storage, timelines, state):
            coordinator.seen.rewind_due = "commits of other writers before the start"
        return coordinator, context, trimmer

    def load_sizes(self) -> None:
        """Lists the table's files anew, for leases of file groups.

        Raises UnsupportedTableError when another engine wrote log files that cannot be read.
        """
        lease_listed(self._ports.storage, self._logs, self._placement)
