"""The product's services as actors: each is made of the product's own parts and stepped one round at a
time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from testing.kafka import MemoryKafkaClient
from testing.kept_tables import MemoryKept
from testing.objects.publication import ObjectServiceFiles
from testing.objects.store import ObjectStore
from tests.simulation.world.deadly_input import SETTINGS
from tests.simulation.world.edges import Edges, SwitchboardServer
from tests.simulation.world.ports import PlaceFailpoints, gated_clock, gated_kafka, gated_storage
from tests.simulation.world.process import Process
from tidemark.commit.v1 import commit_pb2, commit_pb2_grpc
from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports as CoordinatorPorts
from tidemark.commit_coordinator.coordinator import Coordinator
from tidemark.commit_coordinator.domain.actions import Wait
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.loop import TableLoop
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import Stage
from tidemark.errors import ErrorKind
from tidemark.hudi_format.file_group.kept_tables import KeptTables
from tidemark.hudi_format.publication.locate import service_files_of
from tidemark.hudi_format.publication.port import ServiceFiles
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_services.operations import MergeOutcome
from tidemark.index_assigner.assign_stage import assign_work
from tidemark.index_assigner.bootstrap import AssignerService, shuffle_work
from tidemark.index_assigner.bootstrap import Ports as AssignerPorts
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.slots.membership import MembershipClient
from tidemark.index_assigner.slots.slot import SlotLoop
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import KafkaClient, RangeReader
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer import task_outcome
from tidemark.stream_writer.coordinator_client import GrpcCoordinator
from tidemark.stream_writer.epoch_tasks import PlanTasks, table_facts, task_planner
from tidemark.stream_writer.errors import EngineFailedError
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.service import WriterService
from tidemark.stream_writer.table_services.bins import (
    BinReport,
    MergeBin,
    MergeFailed,
    decode_bin,
    encode_report,
)
from tidemark.stream_writer.table_services.merges import merge_bin
from tidemark.stream_writer.table_services.services_client import GrpcServices, read_plan
from tidemark.stream_writer.table_services.services_loop import MergeSettings, ServicesLoop
from tidemark.stream_writer.task_entry import run_one
from tidemark.stream_writer.tasks import run_task
from tidemark.stream_writer.worker_context import WorkerContext

_RENEW_EVERY_S: Final = 1.0
_EXPIRE_EVERY_S: Final = 0.2
_STOP_WAITS_MAX: Final = 40
_ENTRIES_S: Final = 0.02
_REPORT_S: Final = 0.005
_TASK_ATTEMPTS: Final = 4
_SLOTS: Final = 2
_NEVER_S: Final = 1e6
_PLACES: Final = frozenset(
    {
        WriterFailpoint.WRITER_INDEXED,
        WriterFailpoint.MERGES_BEGUN,
        WriterFailpoint.MERGES_WAVE,
        WriterFailpoint.MERGES_REPORTED,
    }
)
_ASK_AGAIN: Final = (ErrorKind.RETRYABLE, ErrorKind.FENCED, ErrorKind.CONFLICT)


class StuckError(StreamRuntimeError):
    """A start waited for what did not come; whoever started the process starts it again."""

    kind = ErrorKind.RETRYABLE


class Surroundings:
    """What all processes of a world share."""

    def __init__(
        self,
        config: TableConfigFile,
        storage: Any,
        kafka: MemoryKafkaClient,
        clock: Clock,
        ids: IdSource,
        edges: Edges,
    ) -> None:
        self.config, self.storage, self.kafka = config, storage, kafka
        self.clock, self.ids, self.edges = clock, ids, edges
        self.job_failed: Callable[[], None] = lambda: None


class Actor(Protocol):
    """One process of a service. `step` may raise what ends it; the world then starts another one."""

    process: Process

    def step(self) -> None: ...


class _Stop:
    """A stop event whose waits take the world's time, and which does not wait for ever."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits = 0

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        self._waits += 1
        if self._waits > _STOP_WAITS_MAX:
            raise StuckError("the start waits for something that does not come")
        self._clock.sleep(timeout)
        return False


def _waits_in_the_worlds_time(coordinator: Coordinator) -> None:
    """A round that waits passes a fixed time of the world's clock, which scripts count on, and none of ours:
    a report that comes over RPC wakes nobody here.
    """

    def wait_s(longest_s: float) -> float:
        if not isinstance(coordinator.doing, Wait):
            return 0.0
        is_written = coordinator._context.fold().state.planned is not None
        return min(longest_s, _REPORT_S if is_written else _ENTRIES_S)

    coordinator._wait_s = wait_s  # type: ignore[method-assign]


class CoordinatorActor:
    """A commit-coordinator process. ``server`` answers calls once it is started."""

    def __init__(self, process: Process, around: Surroundings) -> None:
        self.process = process
        self.server: SwitchboardServer | None = None
        self.loop: TableLoop | None = None
        self._around = around
        self._clock = gated_clock(around.clock, process)
        self._expire_s = 0.0
        ports = CoordinatorPorts(
            kafka=gated_kafka(around.kafka, process),
            storage=gated_storage(around.storage, process),
            clock=self._clock,
            ids=around.ids,
            failpoints=PlaceFailpoints(CoordinatorFailpoint, process),
        )
        self.service = CoordinatorService(around.config, ports)

    def step(self) -> None:
        if self.loop is None:
            with self._around.edges.building(self.process):
                try:
                    self.loop = self.service.start()
                finally:
                    self.server = self._around.edges.take_server()
            _waits_in_the_worlds_time(self.loop._coordinator)
            return
        if self._clock.monotonic_s() >= self._expire_s:
            self._expire_s = self._clock.monotonic_s() + _EXPIRE_EVERY_S
            self.service.members.expire()
            self.service.members.deaths.keep()
        self.loop.round(self.service.load_sizes)


class _SteppedAssigner(AssignerService):
    """An index-assigner process with one stage and without threads."""

    def open(self, stage: Stage, clock: Clock) -> tuple[MembershipClient, SlotLoop] | None:
        """Joins and puts the stage together; None while no coordinator answers."""
        stub = commit_pb2_grpc.CommitCoordinatorStub(self._channel)
        member = self._member(stage, stub, "sim:1")
        if member.renew_now() is None:
            member.lease()
            return None
        stop = cast(Any, _Stop(clock))
        facts = member.facts(stop)
        assert facts is not None
        return member, self._loop(stage, self._context(facts, stub, stop), member)

    _channel: Any = None


class StageActor:
    """An index-assigner process that runs one stage."""

    def __init__(self, process: Process, around: Surroundings, stage: Stage) -> None:
        self.process = process
        self.member: MembershipClient | None = None
        self.loop: SlotLoop | None = None
        self._stage = stage
        self._around = around
        self._clock = gated_clock(around.clock, process)
        self._renew_s = 0.0
        ports = AssignerPorts(
            kafka=gated_kafka(around.edges.deadly.client_of(process), process),
            storage=cast(Any, gated_storage(around.storage, process)),
            clock=self._clock,
            ids=around.ids,
            failpoints=PlaceFailpoints(AssignerFailpoint, process),
            careful_settings=SETTINGS,
        )
        factories = {Stage.SHUFFLE: shuffle_work, Stage.ASSIGN: assign_work}
        self.service = _SteppedAssigner(around.config, ports, {stage: factories[stage]})

    def step(self) -> None:
        if self.loop is None or self.member is None:
            self._start()
            return
        if self._clock.monotonic_s() >= self._renew_s:
            self._renew_s = self._clock.monotonic_s() + _RENEW_EVERY_S
            self.member.renew_now()
        self.loop.step()

    def _start(self) -> None:
        edges = self._around.edges
        with edges.building(self.process):
            self.service._channel = edges._open_channel(self._around.config.services.coordinator)
            opened = self.service.open(self._stage, self._clock)
            edges.take_server()
        if opened is not None:
            self.member, self.loop = opened
            self._renew_s = self._clock.monotonic_s() + _RENEW_EVERY_S

    def leave(self) -> None:
        """Ends in order: the lanes are free at once."""
        if self.loop is not None and self.member is not None:
            self.loop.close()
            self.member.stop()


class _Worker:
    """A Spark worker's context; ``base_uri`` leads to the storage as the writer's process sees it."""

    def __init__(self, kafka: KafkaClient, clock: Clock) -> None:
        self.clock = clock
        self._kafka = kafka
        self._kept = MemoryKept(lost_every=5)

    def kept_tables(self, epoch: int, bytes_max: int) -> KeptTables:
        return self._kept

    def range_reader(self, kafka: Mapping[str, str]) -> RangeReader:
        return self._kafka.range_reader()

    def drop_readers(self) -> None:
        return None


class SimulatedEngine:
    """Spark's part: runs tasks, again after a failure, and twice when it speculates."""

    slots = _SLOTS

    def __init__(self, worker: _Worker, job_failed: Callable[[], None] = lambda: None) -> None:
        self._worker = cast(WorkerContext, worker)
        self._job_failed = job_failed
        self.speculate = False
        self.fails = False

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        """Raises EngineFailedError when its workers die for good, after half of the work."""
        if self.fails:
            self.fails = False
            for task in tasks[: len(tasks) // 2]:
                self._run(task)
            self._job_failed()
            raise EngineFailedError("workers died again and again")
        outcomes = [self._run(task) for task in tasks]
        if self.speculate:
            self.speculate = False
            # The second copy of each task finishes last, and its answer is the one that is taken.
            outcomes = [self._run(task) for task in reversed(tasks)][::-1]
        return [task_outcome.encode(each) for each in outcomes]

    def run_here(self, task: bytes) -> task_outcome.TaskSucceeded:
        """In the driver's process; a failure is its own."""
        return run_task(task, self._worker)

    def _run(self, task: bytes) -> task_outcome.TaskOutcome:
        for attempt in range(_TASK_ATTEMPTS):
            try:
                return run_one(run_task, task, self._worker, attempt, _TASK_ATTEMPTS)
            except Exception:
                if attempt + 1 == _TASK_ATTEMPTS:
                    raise
        raise AssertionError("the loop returns or raises")


class _InProcess:
    """`MergeEngine` without processes: the merges of a bin one after the other, on this thread."""

    slots = merges_max = _SLOTS

    def __init__(self, files_of: Callable[[str], ServiceFiles]) -> None:
        self._files_of = files_of

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        return [self._run(decode_bin(each)) for each in bins]

    def _run(self, work: MergeBin) -> bytes:
        said: list[MergeOutcome | MergeFailed] = []
        files = self._files_of(work.token)
        merge_bin(work, files.storage, files, said.append)
        outcomes = tuple(each for each in said if isinstance(each, MergeOutcome))
        return encode_report(BinReport(outcomes, tuple(e for e in said if isinstance(e, MergeFailed))))


class WriterActor:
    """A stream-writer driver with its workers."""

    def __init__(self, process: Process, around: Surroundings) -> None:
        self.process = process
        self._around = around
        self._clock = gated_clock(around.clock, process)
        self._kafka = gated_kafka(around.kafka, process)
        self._storage: Storage = gated_storage(around.storage, process)
        self._uri = f"sim/{process.name}"
        around.edges.storages[self._uri] = self._storage
        self.engine = SimulatedEngine(_Worker(self._kafka, self._clock), around.job_failed)
        config = around.config
        with around.edges.building(process):
            coordinator = GrpcCoordinator(
                config.services.coordinator, config.table.name, process.name, config.limits.rpc_message_bytes
            )
            services = GrpcServices(
                config.services.coordinator,
                config.table.name,
                process.name,
                config.limits.rpc_message_bytes,
                lambda begun: read_plan(self._storage, begun.plan_path, begun.plan_sha256),
            )
        self._plan: PlanTasks | None = None
        self.service = WriterService(
            coordinator,
            self.engine,
            self._plan_tasks,
            self._clock,
            self._reached,
            run_here=self.engine.run_here,
        )
        files_of = ObjectServiceFiles if isinstance(around.storage.memory, ObjectStore) else service_files_of
        self.services = ServicesLoop(
            services,
            _InProcess(lambda token: files_of(cast(Any, self._storage), token)),
            MergeSettings(self._uri, config.table_services.task_memory_bytes),
            self._reached,
            keep_s=_NEVER_S,
        )
        self._works_on_services = config.table_services.enabled

    def step(self) -> None:
        try:
            self.service.run_once(0.0)
            if self._works_on_services:
                self.services.run_once(0.0, threading.Event())
        except RpcError as error:
            if error.kind not in _ASK_AGAIN:
                raise

    def _reached(self, place: WriterFailpoint) -> None:
        """The other steps are calls, which are places already."""
        if place in _PLACES:
            self.process.place(f"failpoint {place.value}")

    def _plan_tasks(self, begun: commit_pb2.BeginResponse, slots: int) -> list[bytes]:
        if self._plan is None:
            names = TopicNames(self._around.config.table.name)
            config = read_table_config(self._storage)
            facts = table_facts(config, self._uri, {}, names.data, names.index, 1 << 20)
            self._plan = task_planner(facts)
        return self._plan(begun, slots)
