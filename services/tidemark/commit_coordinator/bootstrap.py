"""Makes a coordinator from a table's configuration, and runs it until it is told to stop."""

from __future__ import annotations

import logging
import threading

from tidemark.commit_coordinator.building.answers import Answers, Opened
from tidemark.commit_coordinator.building.parts import Parts, Ports, make_parts
from tidemark.commit_coordinator.building.table_loop import make_loop
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.placement import load_listed
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.index_shards import check_kind
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.input.watch import InputView, InputWatch, lanes_by_stage, stopped_by_topic
from tidemark.commit_coordinator.loop import TableLoop
from tidemark.commit_coordinator.opening.ledger_identity import check_identity, ledger_id
from tidemark.commit_coordinator.opening.schemas import SchemaRegistry
from tidemark.commit_coordinator.opening.table_open import open_beside_predecessor, open_table
from tidemark.commit_coordinator.opening.takeover import settle_rebuild, take_over
from tidemark.commit_coordinator.opening.topics_setup import (
    check_lane_source,
    check_recorded,
    ensure_topics,
    open_inputs,
)
from tidemark.commit_coordinator.server import show_health
from tidemark.commit_coordinator.table_services.listings import own_pending
from tidemark.config import TableConfigFile
from tidemark.config.hoodie_section import without_effect
from tidemark.epoch_protocol.input_topics import InputTopics
from tidemark.hudi_format.errors import FencedOutError, LockLostError
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.page.page import WebPage
from tidemark.stream_runtime.rpc.server import RpcServer

_log = logging.getLogger("tidemark.coordinator")


class CoordinatorService:
    """One coordinator process: gRPC calls on their threads, the loop on the caller's thread.

    ``parts``: what it has from its making on.
    """

    def __init__(self, config: TableConfigFile, ports: Ports, with_page: bool = False) -> None:
        """``with_page``: `services.web` is served as well."""
        self.parts: Parts = make_parts(config, ports, self._show_health)
        self._ready = threading.Event()
        self._with_page = with_page
        self._opened: Opened | None = None
        self._members: Members | None = None
        self._inputs: InputWatch | None = None
        self._server: RpcServer | None = None
        self._page: WebPage | None = None
        self._context: Context | None = None

    def run(self, stop: threading.Event) -> None:
        """Serves the table until ``stop``. Raises SupersededError when a newer coordinator claims it."""
        try:
            loop = self.start()
            self.members.start()
            self.parts.metrics.start()
            self.inputs.start()
            with self.parts.served.sign_of_life():
                loop.run(stop, self.load_sizes)
        except (FencedOutError, LockLostError):
            # A successor takes term and lock, after its claim: then the caller has to get SupersededError.
            self.parts.log.check_term()
            raise
        finally:
            self.close()

    def start(self) -> TableLoop:
        """Opens the table, answers calls, takes the table over. The caller runs the loop, then closes."""
        parts, ids = self.parts, self.parts.ports.ids
        opened, recorded = self._open()
        answers = Answers(parts, opened, self._ready.is_set)
        if self._with_page:
            self._page = answers.open_page()
        self._server = answers.serve()
        owner = f"coordinator-{ids.uuid()}"
        publication = open_publication(parts.ports.storage, parts.ports.clock, ids)
        check_kind(parts.ports.storage, parts.fold().state.shards)
        term = take_over(publication, parts.log, parts.fold, owner, opened.ledger, opened.table.num_shards)
        settle_rebuild(term, parts.fold().state.shards)
        parts.log.follow()
        parts.served.taken_over(term, owner)
        opened.table.keep_columns(term)
        opened.inputs.took_over(term, recorded)
        loop, self._context = make_loop(parts, opened, term)
        self.load_sizes()
        opened.members.took_over(parts.fold().state, term)
        self._ready.set()
        self._server.set_serving(True)
        self._show_health(parts.board.current)
        _log.info("coordinating %s as term %d", parts.config.table.path, parts.log.term)
        return loop

    def _open(self) -> tuple[Opened, InputTopics]:
        """Checks table, topics and input; makes the table when it is not there.

        The second value is the record of the input topics, which goes on after the takeover.
        """
        parts, config, ports = self.parts, self.parts.config, self.parts.ports
        parts.admin.check_broker()
        check_identity(config, ports.storage, parts.admin, parts.log, parts.fold)
        table = open_beside_predecessor(
            lambda pending: open_table(config, ports.storage, ports.clock, pending), self._has_begun
        )
        ledger = ledger_id(ports.storage, ports.ids)
        found = open_inputs(config, ports.storage, parts.admin)
        check_recorded(ports.storage, ensure_topics(config, parts.admin))
        check_lane_source(config, ports.storage)
        self._inputs = InputWatch(config, ports.storage, parts.admin, found.topics, self._show_inputs)
        # There are no lanes yet: the first look at the input topics sets them, after the takeover.
        self._members = Members(
            config.table.name, ports.kafka, ports.clock, config.limits.lease_ms, {}, parts.board.position
        )
        if ignored := without_effect(config):
            _log.warning("hoodie: %s has no effect on what Tidemark writes", ", ".join(ignored))
        schemas = SchemaRegistry.of(config, ports.storage, table.schema)
        self._opened = Opened(table, self._inputs, self._members, schemas, ledger)
        return self._opened, found.recorded

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

    @property
    def context(self) -> Context | None:
        """What the loop works in; None before the takeover."""
        return self._context

    def close(self) -> None:
        """Ends all threads and calls, and closes the clients."""
        if self._page is not None:
            self._page.close()
        self.parts.metrics.stop()
        # Callers that wait for a verification are answered before the server stops.
        self.parts.verification.stop()
        if self._server is not None:
            self._server.stop()
        if self._inputs is not None:
            self._inputs.stop()
        if self._members is not None:
            self._members.stop()
        self.parts.close()

    def _show_health(self, view: CoordinatorView) -> None:
        if self._server is not None and self._ready.is_set():
            show_health(self._server, view.halted is not None)

    def _has_begun(self) -> bool:
        """Whether a coordinator has claimed the table before, by the topics."""
        parts = self.parts
        if parts.admin.partitions(parts.topics.epochs) is None:
            return False
        parts.log.catch_up()
        return parts.fold().state.coordinator_term is not None

    def _show_inputs(self, view: InputView) -> None:
        parts, config = self.parts, self.parts.config
        for stage, lanes in lanes_by_stage(config, view).items():
            self.members.set_lanes(stage, lanes)
        taken, now_ms = parts.board.current.taken_next, parts.ports.clock.now_ms()
        self.members.stopped_lanes.stopped_by_topic(stopped_by_topic(config, view, taken, now_ms))

    def load_sizes(self) -> None:
        """Lists the table's files anew, for leases of file groups.

        Raises UnsupportedTableError when another engine wrote log files that cannot be read.
        """
        logs = None if self._opened is None else self._opened.table.logs
        own = own_pending(self._context) if self._context is not None else ()
        load_listed(self.parts.ports.storage, logs, self.parts.placement, own)
