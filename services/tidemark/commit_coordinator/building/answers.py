"""Makes what answers calls: the two gRPC services, their server, and the page.

The server starts before the table is taken over. Until then it answers commands and `Serves`, and the writer
and the assigners are told to come again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemark.commit_coordinator.admin.dead_letter_calls import DeadLetterCalls
from tidemark.commit_coordinator.admin.service import AdminService, AdminSources
from tidemark.commit_coordinator.admin.value_calls import lookup_value
from tidemark.commit_coordinator.admin.verify_calls import VerifyCalls
from tidemark.commit_coordinator.building.parts import Parts
from tidemark.commit_coordinator.calls.lookup_streams import LookupStreams
from tidemark.commit_coordinator.calls.lookups import KeyLookups, LaneHolders
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.pausing import pause_of
from tidemark.commit_coordinator.calls.service import CommitService, Facts
from tidemark.commit_coordinator.calls.terminal_failures import TerminalFailure
from tidemark.commit_coordinator.calls.unreported import unreported
from tidemark.commit_coordinator.calls.warming import IndexWarming
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.dead_letters.newest import newest_letters
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.dead_letters.retention import retention_now
from tidemark.commit_coordinator.input.ends import awaited_records, input_ends
from tidemark.commit_coordinator.input.lag import InputLag
from tidemark.commit_coordinator.input.skips import InputSkips
from tidemark.commit_coordinator.input.watch import InputWatch
from tidemark.commit_coordinator.opening.configured_stats import other_stats
from tidemark.commit_coordinator.opening.schemas import SchemaRegistry
from tidemark.commit_coordinator.opening.table_description import describe_configured
from tidemark.commit_coordinator.opening.table_open import OpenedTable
from tidemark.commit_coordinator.server import serve
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.kafka_probe import KafkaProbe
from tidemark.commit_coordinator.status.sampled_stats import SampledStats
from tidemark.config.hoodie_section import target_file_bytes
from tidemark.epoch_protocol.entries import PROTOCOL_VERSION
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.page.open_page import Shown, open_page
from tidemark.page.page import WebPage
from tidemark.page.sources import Pictures, RecordsPassed
from tidemark.stream_runtime.rpc.server import RpcServer
from tidemark.stream_runtime.security.client import client_security


@dataclass(frozen=True)
class Opened:
    """What a start opened before the takeover. ``ledger``: identity of the table's ledger."""

    table: OpenedTable
    inputs: InputWatch
    members: Members
    schemas: SchemaRegistry
    ledger: str

    def failed(self, parts: Parts) -> list[TerminalFailure]:
        """The processes that said that they cannot go on, and that nobody has replaced."""
        return parts.failures.current(lambda stage: bool(self.members.members(stage)))


class Answers:
    """The services of one table. They are made at once; `serve` and `open_page` start their servers."""

    def __init__(self, parts: Parts, opened: Opened, is_ready: Callable[[], bool]) -> None:
        """``is_ready``: whether the table is taken over."""
        self._parts = parts
        self._opened = opened
        self._is_ready = is_ready
        admin, inputs = parts.admin, opened.inputs
        self._ends = lambda: input_ends(admin, inputs.view.lanes())
        self._awaited = awaited_records(
            admin, opened.members.empty_ranges, lambda: bool(opened.failed(parts)), lambda: inputs.starts
        )
        self._retention = partial(retention_now, parts.ports.kafka, parts.config, parts.ports.clock)
        self._skips = InputSkips(
            opened.members.stopped_lanes.current,
            parts.board,
            parts.ports.ids,
            parts.ports.clock,
            opened.members.holder,
        )
        self._admin = self._admin_service()

    def serve(self) -> RpcServer:
        """Starts the gRPC server. Raises ListenError."""
        return serve(self._parts.config, self._commit_service(), self._admin, self._parts.security)

    def open_page(self) -> WebPage | None:
        """Starts the page, which asks the admin service; None where `services.web` is not set.

        Raises ListenError.
        """
        parts, config, ports = self._parts, self._parts.config, self._parts.ports
        pictures = Pictures(
            lambda: passed_records(parts.board.current),
            parts.placement.slices,
            partial(newest_letters, ports.kafka, config.table.name, ports.clock),
        )
        shown = Shown(self._admin, pictures, self._opened.table.config, target_file_bytes(config))
        return open_page(config, ports.storage, ports.clock, parts.security, shown)

    def _admin_service(self) -> AdminService:
        """The metrics sample the same status as `Status` answers."""
        status, config = self._status(), self._parts.config
        sampled = SampledStats(status, self._ends, self._awaited, config.input.is_sharded, self._retention)
        self._parts.metrics.watch(status, sampled)
        return AdminService(config.table.name, self._admin_sources(status))

    def _commit_service(self) -> CommitService:
        parts, opened, config = self._parts, self._opened, self._parts.config
        limits, memory_max = config.limits, config.state.uncommitted_memory
        return CommitService(
            self._facts(),
            opened.members,
            parts.placement,
            parts.attempts,
            opened.schemas.register,
            lambda stage: pause_of(
                stage, parts.board.current, opened.members.uncommitted(), limits, memory_max
            ),
            self._is_ready,
            parts.inbox,
            self._skips,
            parts.services,
            parts.failures.say,
        )

    def _facts(self) -> Facts:
        """The facts that joining processes are told."""
        config = self._parts.config
        return Facts(
            table=config.table.name,
            num_shards=self._opened.table.num_shards,
            lanes=config.table.index.lanes,
            lease_ms=config.limits.lease_ms,
            protocol_version=PROTOCOL_VERSION,
            ledger=self._opened.ledger,
            report_bytes_max=config.limits.rpc_message_bytes,
        )

    def _admin_sources(self, status: StatusSource) -> AdminSources:
        parts, opened, config, ports = self._parts, self._opened, self._parts.config, self._parts.ports
        security = client_security(config, ports.clock)
        asked = AskedLanes(opened.table.kind, opened.table.num_shards, config.table.index.lanes)
        holders = LaneHolders(opened.members)
        streams = LookupStreams(config.table.name, holders, asked, ports.clock, security)
        dead_letters = DeadLetterQueries(
            ports.kafka, config.table.name, config.input.topics, ports.clock, self._retention
        )
        return AdminSources(
            board=parts.board,
            history=parts.history,
            inbox=parts.inbox,
            status=status.take,
            targets=lambda: input_ends(parts.admin, opened.inputs.look_for_all().lanes()),
            accept_topic=opened.inputs.accept,
            holds_records=self._awaited,
            stopped_lanes=opened.members.stopped_lanes.current,
            skip=self._skips.skip,
            lookup=KeyLookups(config.table.name, holders, asked, security).lookup,
            lookup_stream=streams.answers,
            lookup_value=partial(lookup_value, ports.storage),
            warm=IndexWarming(config.table.name, opened.table.num_shards, opened.members, security).warm,
            served=parts.served.answer,
            dead_letters=DeadLetterCalls(dead_letters),
            verify=VerifyCalls(parts.verification, ports.clock),
            describe=partial(describe_configured, config, ports.storage, opened.table.num_shards),
            clock=ports.clock,
        )

    def _status(self) -> StatusSource:
        parts, opened, config, ports = self._parts, self._opened, self._parts.config, self._parts.ports
        lag = InputLag(self._ends, self._awaited, ports.clock)
        return StatusSource(
            table=config.table.name,
            path=config.table.path,
            board=parts.board,
            members=opened.members,
            history=parts.history,
            placement=parts.placement,
            storage=ports.storage,
            clock=ports.clock,
            kafka=KafkaProbe(lag.document, parts.open_transactions.oldest),
            writer_asked=lambda: parts.attempts.asked,
            verification=parts.verification,
            writer=lambda: parts.attempts.writer,
            not_reported=lambda: unreported(
                parts.attempts.unreported(), parts.attempts.writer, ports.storage, parts.topics, self._facts()
            ),
            open_transaction=parts.open_transactions.oldest,
            terminal_failures=lambda: opened.failed(parts),
            lease_ms=config.limits.lease_ms,
            stopped_lanes=opened.members.stopped_lanes.current,
            refused=parts.security.access.refused.counts,
            inputs=opened.inputs,
            unfilled_columns=opened.schemas.unfilled_columns,
            dead_letters=parts.metrics.dead_letters,
            large_shards=partial(parts.metrics.large_shards, config.table.index.lanes),
            other_stats=partial(other_stats, config, ports.storage),
        )


def passed_records(view: CoordinatorView) -> RecordsPassed | None:
    """How many records have passed each stage; None before the table is taken over."""
    if view.term < 0:
        return None
    committed = view.committed.input
    return RecordsPassed(view.shuffled_records, committed + view.uncommitted.input, committed)
