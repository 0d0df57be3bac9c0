"""Wires the stages of one process and runs them until the process is told to stop or a stage fails.

Each stage has two threads: its transaction loop, and the renewal of its lease. gRPC has threads of its own.
The first error of any stage stops the process. A supervisor starts it again, and it goes on at the positions
that the fold names.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.assigner.v1 import assigner_pb2_grpc
from tidemark.commit.v1 import commit_pb2_grpc
from tidemark.config import TableConfigFile
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import Stage
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.index_assigner.adapters import LOOKUP_SERVICE, LookupGate, check_topics, snapshot_loader
from tidemark.index_assigner.assign_traces import AssignTraces
from tidemark.index_assigner.assigner_metrics import AssignerMetrics
from tidemark.index_assigner.awaited_index import AwaitedIndex
from tidemark.index_assigner.circles import CircleSearch
from tidemark.index_assigner.input.careful_frames import CarefulSettings
from tidemark.index_assigner.input.deleted_input import read_by
from tidemark.index_assigner.input.positions import start_of
from tidemark.index_assigner.input.same_topics import stale_by_record
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.lane_function import keep_lane_function
from tidemark.index_assigner.slots.membership import Identity, JoinFacts, MembershipClient
from tidemark.index_assigner.slots.observer import AssignerObserver, CompositeObserver
from tidemark.index_assigner.slots.pace import TransactionLimits
from tidemark.index_assigner.slots.same_table import check_same_table
from tidemark.index_assigner.slots.slot import SlotLoop, SlotParts
from tidemark.index_assigner.slots.stage_work import StageWork
from tidemark.index_assigner.stage_context import StageContext, StageFactory
from tidemark.ledger_client.fold_reader import Ends, FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ports import KafkaClient
from tidemark.stream_runtime.rpc.channel import open_channel
from tidemark.stream_runtime.rpc.server import RpcServer, start_server
from tidemark.stream_runtime.security.client import client_security
from tidemark.stream_runtime.security.listening import is_loopback
from tidemark.stream_runtime.security.server import server_security
from tidemark.stream_runtime.tracing import open_traces

_LOOPBACK: Final = "127.0.0.1"
_ANY: Final = "0.0.0.0"
_STOP_WAIT_S: Final = 30.0
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class Ports:
    """What the process uses of the outside: Kafka, the table's storage, clock, ids, failpoints."""

    kafka: KafkaClient
    storage: LocalStorage
    clock: Clock
    ids: IdSource
    failpoints: FailpointRegistry
    careful_settings: CarefulSettings | None = None
    """Of the Kafka consumers in the child process that reads suspect lanes; None: they are read like
    others.
    """


def shuffle_work(context: StageContext) -> StageWork:
    """Builds the shuffle stage."""
    config = context.config
    settings = ShuffleSettings(
        topics=context.topics,
        start=start_of(config.input.start, context.storage),
        schema_id=context.facts.schema_id,
        batch_bytes=config.limits.batch_bytes,
        message_bytes=config.limits.message_bytes,
        record_bytes_max=config.limits.record_bytes,
        stale=stale_by_record(context.storage),
        careful=context.careful(),
        ledger_read=read_by(context.folds, context.client, context.topics.ledger_partition),
        may_read=context.awaited_index.is_over,
    )
    return ShuffleWork(context.client, context.keyer(), settings, context.clock)


class AssignerService:
    """One process of the index-assigner service."""

    def __init__(
        self, config: TableConfigFile, ports: Ports, factories: Mapping[Stage, StageFactory]
    ) -> None:
        """``factories``: the stages to run. Raises SetupError when none of them is left."""
        self._config = config
        self._ports = ports
        self._factories = _wanted(config, factories)
        self._topics = TopicNames(config.table.name)
        self._process_id = f"assigner-{ports.ids.uuid()}"
        text = config.table.schema.read_text(encoding="utf-8")
        self._schema = TableSchema.from_avro(text, config.table.name)
        self._lookups, self._awaited_index = LookupGate(), AwaitedIndex()
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._claimed = threading.Event()
        self.metrics = AssignerMetrics(config)
        self._traces = open_traces(config, "assigner")
        self._observer: AssignerObserver = self.metrics
        if self._traces.enabled:
            self._observer = CompositeObserver(self.metrics, AssignTraces(config.table.name, self._traces))
        self.ready = threading.Event()
        """Set once all stages run."""

    def run(self, stop: threading.Event) -> None:
        """Runs the stages until ``stop``. Raises the first error that stopped one of them."""
        config = self._config
        channel = open_channel(
            config.services.coordinator,
            message_bytes_max=config.limits.rpc_message_bytes,
            security=client_security(config, self._ports.clock),
        )
        stub = commit_pb2_grpc.CommitCoordinatorStub(channel)
        server = self._serve()
        address = self._address(server)
        members = {stage: self._member(stage, stub, address) for stage in self._factories}
        threads: list[threading.Thread] = []
        try:
            self.metrics.watch(members)
            for member in members.values():
                member.start()
            for stage, member in members.items():
                facts = member.facts(stop)
                if facts is None:
                    return
                loop = self._loop(stage, self._context(facts, stub, stop), member)
                threads.append(self._start(stage, loop, stop))
            server.set_serving(True)
            self.ready.set()
            _log.info("running %s of table %s", ", ".join(s.value for s in members), config.table.name)
            circles = CircleSearch(self._ports.clock)
            while not stop.wait(0.2) and not self._ended.is_set():
                circles.when_due()
        finally:
            self._end(stop, threads, list(members.values()), server)
            channel.close()
            self._traces.close()
        if self._failure is not None:
            raise self._failure

    def _end(
        self,
        stop: threading.Event,
        threads: Sequence[threading.Thread],
        members: Sequence[MembershipClient],
        server: RpcServer,
    ) -> None:
        """Ends everything in an order that leaves no transaction open and no lane held.

        1. The stages' threads finish their transactions.
        2. The memberships leave: slots and lanes are free for others at once.
        3. The gRPC server ends: lookups are refused.
        """
        stop.set()
        for thread in threads:
            thread.join(_STOP_WAIT_S)
        failure = _for_good(self._failure)
        for member in members:
            member.stop(failure, by_error=self._failure is not None)
        server.stop()

    def _start(self, stage: Stage, loop: SlotLoop, stop: threading.Event) -> threading.Thread:
        def work() -> None:
            try:
                loop.run(stop)
            except BaseException as error:
                _log.error("the %s stage ends: %s", stage.value, error)
                if self._failure is None:
                    self._failure = error
                stop.set()
            finally:
                self._ended.set()

        thread = threading.Thread(target=work, name=f"stage-{stage.value}", daemon=True)
        thread.start()
        return thread

    def _loop(self, stage: Stage, context: StageContext, member: MembershipClient) -> SlotLoop:
        limits = self._config.limits
        parts = SlotParts(
            topics=self._topics,
            client=self._ports.kafka,
            folds=context.folds,
            lease=member,
            limits=TransactionLimits(
                limits.transaction_interval_ms, limits.transaction_records, limits.transaction_bytes
            ),
            clock=self._ports.clock,
            ids=self._ports.ids,
            failpoints=self._ports.failpoints,
            owner=self._process_id,
            claimed=self._claimed,
            observer=self._observer,
            ledger=context.facts.ledger,
        )
        return SlotLoop(parts, self._factories[stage](context))

    def _context(
        self, facts: JoinFacts, stub: commit_pb2_grpc.CommitCoordinatorStub, stop: threading.Event
    ) -> StageContext:
        config, ports = self._config, self._ports
        if facts.lanes != config.table.index.lanes:
            raise SetupError(
                f"{config.file}: table.index.lanes is {config.table.index.lanes}, but the coordinator has "
                f"{facts.lanes}: use one configuration for all services of a table"
            )
        admin = ports.kafka.admin()
        try:
            admin.check_broker()
            check_topics(config, admin, ports.storage)
        finally:
            admin.close()
        folds = self._caught_up(stop)
        check_same_table(config, ports.storage, facts.ledger, folds.fold.state)
        keep_lane_function(ports.storage)
        return StageContext(
            config=config,
            topics=self._topics,
            client=ports.kafka,
            storage=ports.storage,
            table=read_table_config(ports.storage),
            schema=self._schema,
            facts=facts,
            folds=folds,
            coordinator=stub,
            lookups=self._lookups,
            clock=ports.clock,
            ids=ports.ids,
            process_id=self._process_id,
            observer=self._observer,
            careful_settings=ports.careful_settings,
            awaited_index=self._awaited_index,
            stop=stop,
        )

    def _caught_up(self, stop: threading.Event) -> FoldReader:
        """Returns a new fold that has read ledger and decisions to their ends; each stage has its own.

        No end is beyond that of the first try, see `FoldReader.catch_up`.
        """
        reader = FoldReader(
            self._ports.kafka,
            self._topics.ledger,
            self._topics.epochs,
            snapshot_loader(self._ports.storage),
            self._ports.clock,
        )
        ends: Ends | None = None
        while not stop.is_set():
            try:
                ends = reader.ends(at_most=ends)
                reader.catch_up(1.0, ends)
                reader.follow()
                break
            except (DeadlineExceededError, KafkaError) as error:
                # An open transaction keeps readers from the end, or a new topic has no leader yet.
                if error.kind is not ErrorKind.RETRYABLE:
                    raise
                _log.warning("waiting for the ledger: %s", error)
                stop.wait(0.2)
        return reader

    def _member(
        self, stage: Stage, stub: commit_pb2_grpc.CommitCoordinatorStub, address: str
    ) -> MembershipClient:
        identity = Identity(self._config.table.name, stage, self._process_id, address, self._schema.avro_json)
        return MembershipClient(stub, identity, self._ports.clock)

    def _serve(self) -> RpcServer:
        services = self._config.services
        host = services.bind or (_ANY if services.allow_remote else _LOOPBACK)
        return start_server(
            Address(host, 0),
            [
                (
                    LOOKUP_SERVICE,
                    lambda s: assigner_pb2_grpc.add_IndexAssignerServicer_to_server(self._lookups, s),
                )
            ],
            allow_remote=services.allow_remote,
            security=server_security(self._config, self._ports.clock, self.metrics.metrics.refused),
            message_bytes_max=self._config.limits.rpc_message_bytes,
        )

    def _address(self, server: RpcServer) -> str:
        """The address at which the coordinator reaches this process's gRPC server."""
        host = server.address.host if is_loopback(server.address.host) else socket.gethostname()
        return str(Address(host, server.address.port))


def _for_good(failure: BaseException | None) -> str:
    """The text of a failure that every other process would have as well, for `tidemark status`; else ""."""
    return str(failure) if kind_of(failure) in (ErrorKind.CORRUPT, ErrorKind.INVALID) else ""


def _wanted(config: TableConfigFile, factories: Mapping[Stage, StageFactory]) -> dict[Stage, StageFactory]:
    """The stages to run: without the shuffle stage when the input is partitioned by shard already."""
    sharded = config.input.is_sharded
    wanted = {s: f for s, f in factories.items() if not (sharded and s is Stage.SHUFFLE)}
    if not wanted:
        raise SetupError(
            f"{config.file}: with input.partitioning: shard there is no shuffle stage: run --stages assign"
        )
    return wanted
