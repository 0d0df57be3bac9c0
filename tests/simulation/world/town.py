"""Seats and the processes in them, their calls to each other, and the judge who watches the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, cast

import grpc

from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.simulation.world.actors import (
    Actor,
    CoordinatorActor,
    StageActor,
    Surroundings,
    WriterActor,
)
from tests.simulation.world.checkers.bounds import Bounds
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.checkers.model import Change
from tests.simulation.world.checkers.table import DATA_TIMELINE, METADATA_TIMELINE, Reader
from tests.simulation.world.checkers.topics import Sent, Sharded, Since, Topics
from tests.simulation.world.deadly_input import DeadlyInput
from tests.simulation.world.edges import Edges
from tests.simulation.world.encoding import Encoding
from tests.simulation.world.foreign.engine import ForeignEngine
from tests.simulation.world.index_commands import IndexCommands
from tests.simulation.world.operator import Operator
from tests.simulation.world.ports import WorldClock
from tests.simulation.world.process import Process, Status
from tests.simulation.world.rocks import Disk, LightRocks
from tests.simulation.world.script import Script, Setup
from tests.simulation.world.settings import INPUT, TABLE, config_of, inputs_of, layout_of, schema
from tests.simulation.world.storage import WatchedStorage
from tests.simulation.world.switched_on import SwitchedOn
from tests.simulation.world.takeovers import Takeovers
from tests.simulation.world.watched_caches import WatchedCaches
from tests.simulation.world.watched_entries import WatchedEntries
from tests.simulation.world.watched_partitions import WatchedPartitions
from tests.simulation.world.watched_services import WatchedServices
from tests.simulation.world.watched_stops import WatchedStops
from tests.simulation.world.watched_work import WatchedWork
from tidemark.epoch_protocol.entries import Stage
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec
from tidemark.stream_runtime.rpc.errors import RpcError, status_of

_TIMELINES: Final = (DATA_TIMELINE, METADATA_TIMELINE)
_CALL_PREFIX: Final = "/tidemark.commit.v1.CommitCoordinator/"
_ATTEMPTS_MAX: Final = 40
_TTL_LONG_MS: Final = 3_600_000
_BETWEEN_LEASES: Final = 7
"""Transactions of a process until it hears that it has to rest: a round takes 0.2 s, or more where limits are
so low that they matter, and a lease is renewed every second; the coordinator looks once a round.
"""
_READ_S: Final = 1.5
"""After that every process knows that there is a secondary index."""
_CURABLE: Final = ("RETRYABLE", "FENCED", "CONFLICT")


@dataclass
class Seat:
    """Where one process of a service sits; who sat there before and was not ended is a zombie."""

    name: str
    current: Actor | None = None
    zombies: list[Actor] = field(default_factory=list)
    made: int = 0


class Ground:
    """What there is without any process: time, Kafka, the table's folder and who reads it, local disks.
    ``records``: fed so far. ``since``, ``gone``: what the ledger begins with (`Judge.goes_on`).
    """

    def __init__(self, setup: Setup) -> None:
        self.clock = WorldClock()
        self.ids = SeededIds(setup.ids)
        self.broker = MemoryBroker(self.clock, self.ids)
        storage = self.storage = WatchedStorage(self.clock, setup.store == "folders")
        layout = layout_of(setup)
        self.reader = Reader(storage.file_names, storage.memory.read, storage.folders, setup.ordered, layout)
        self.disks: dict[str, Disk] = {}
        self.records = 0
        self.since = Since()
        self.gone: Mapping[str, int] = {}


class Town:
    """All processes of a world, what they share, and who judges them."""

    def __init__(self, script: Script, ground: Ground | None = None) -> None:
        self.script = script
        setup = self.setup = script.setup
        ground = self.ground = ground or Ground(setup)
        self.clock, self.ids, self.broker, self.storage = (
            ground.clock, ground.ids, ground.broker, ground.storage,
        )  # fmt: skip
        self.client = MemoryKafkaClient(self.broker)
        self.config = config_of(setup)
        self.reached = Counter[str]()
        self.deadly = DeadlyInput(self.client, self._position)
        self.edges = Edges(self._call, self._open_cache, WatchedCaches(self.reached), self.deadly)
        self.around = Surroundings(self.config, self.storage, self.client, self.clock, self.ids, self.edges)
        shufflers = 0 if setup.is_sharded else setup.shufflers
        names = ["coordinator", *(f"shuffler-{n}" for n in range(shufflers))]
        names += [*(f"assigner-{n}" for n in range(setup.assigners)), "writer"]
        self.seats = {name: Seat(name) for name in names}
        self.log: list[str] = []
        self._begun: dict[str, int] = {}
        self._restored_at: int | None = None
        self._disks = ground.disks
        self._call_faults: dict[tuple[str, str], str] = {}
        self._late_calls: list[tuple[str, Any]] = []
        self._sent: list[Change] = []
        self._broken = self._ended = 0
        self._deletions_lost = self._has_grown = False
        self.layout = layout_of(setup)
        self._encoding = Encoding(setup.format, self.layout)
        self._by_lane: dict[int, list[tuple[int, Change]]] = {n: [] for n in range(setup.lanes)}
        self._lost: list[tuple[str, int, int]] = []
        self.client.admin().create_topics([TopicSpec(name, setup.inputs) for name in inputs_of(setup)])
        self.judge = self._judge()
        if ground.since.generation:
            self.judge.goes_on(ground.since, ground.gone)
        self.takeovers = Takeovers(self.judge, self.reached)
        self._entries = WatchedEntries(self.judge, self.reached)
        self._stops = WatchedStops(self.judge, self.deadly, self.broker, self.reached)
        self._acting: str | None = None
        self.commands = IndexCommands(self.storage, self.clock, self.ids, self._goes_on)
        self._indexed_s = inf
        self._work = WatchedWork(self.judge, self.storage, self.layout.by_partition)
        self._services = WatchedServices(self.judge, ground.reader, self.storage)
        self._stats = SwitchedOn(setup, self.storage, self.judge)
        self._partitions = WatchedPartitions(
            self.judge,
            ground.reader,
            self.storage,
            self.layout,
            lambda instant: instant in self.foreign.begun,
            self.reached,
        )
        self.operator = Operator(self.storage, self.reached, self.log)
        self.around.job_failed = self._work.job_failed
        self.storage.changed = self._stored
        is_log = setup.type == "mor"
        self.foreign = ForeignEngine(
            self.storage, self.clock, self.ids, schema(self.layout), self.judge, _shards_there(setup), is_log,
            setup.ordered, self.layout, lambda: 1 + max((each.at or 0 for each in self._sent), default=0),
        )  # fmt: skip

    def _judge(self) -> Judge:
        storage, setup = self.storage, self.setup
        sharded = Sharded(INPUT, self._by_lane) if setup.is_sharded else None
        common = (setup.lanes, min(setup.lanes, 16), setup.ordered, self.layout)
        topics = Topics(self._read, TABLE, *common, sharded)
        return Judge(
            self.ground.reader, storage.memory.read, topics, setup.ordered, setup.lanes, self._bounds(),
            _ATTEMPTS_MAX, setup.ttl_ms < _TTL_LONG_MS,
        )  # fmt: skip

    def _bounds(self) -> Bounds:
        limits, setup = self.config.limits, self.setup
        # An assigner looks at the limit before it gathers; each may add one transaction.
        entries = setup.uncommitted + (len(self.seats) + 1) * max(setup.records, 20) * 2
        spare = _BETWEEN_LEASES * max(setup.shufflers, setup.assigners)
        return Bounds(
            entries,
            limits.uncommitted_transactions,
            limits.uncommitted_bytes,
            limits.shuffled_transactions,
            spare,
        )

    def _read(self, topic: str, partition: int, position: int) -> tuple[list[Sent], int]:
        # A tuple is found like the TopicPartition that is equal to it, and this is asked very often.
        log = self.broker._logs.get(cast(TopicPartition, (topic, partition)))
        if log is None:
            return [], position
        if position < log.start:
            position = log.start
        if position == log.last_stable:
            return [], position
        found, after = log.read(position, Isolation.READ_COMMITTED, 10_000)
        return [Sent(m.offset, dict(m.headers), m.value) for m in found], after

    # ------------------------------------------------------------ processes

    def _open_cache(self, process: Process, identity: str) -> LightRocks:
        seat = process.name.partition("#")[0]
        return self._disks.setdefault(seat, Disk()).open(process, identity)

    def _make(self, seat: Seat) -> Actor:
        process = Process(f"{seat.name}#{seat.made}")
        seat.made += 1
        self._work.begins(process.name)
        kind = seat.name.partition("-")[0]
        if kind == "coordinator":
            return CoordinatorActor(process, self.around)
        if kind == "writer":
            return WriterActor(process, self.around)
        return StageActor(process, self.around, Stage.SHUFFLE if kind == "shuffler" else Stage.ASSIGN)

    def step(self, seat: Seat) -> None:
        """The seat's process takes a step; one that died is started again. With an input that is partitioned
        by lane nobody shuffles.
        """
        if self.setup.is_sharded and seat.name.startswith("shuffler"):
            return
        if seat.current is None or not seat.current.process.alive:
            seat.current = self._make(seat)
        self._step(seat.current)

    def _step(self, actor: Actor) -> None:
        self._carried(actor, lambda: actor.process.step(actor.step))

    def _thaw(self, actor: Actor) -> None:
        self._carried(actor, actor.process.thaw)

    def _position(self, place: TopicPartition) -> int:
        self.judge.topics.follow()
        _, counted = self.judge.topics.counted()
        return self.judge.topics.taken(counted).get(f"{place.topic}:{place.partition}", 0)

    def _stored(self, path: str) -> None:
        is_operator = self.judge.indexes.may_go = self._acting is None and self.commands.runs
        self.judge.stored(path)
        self._services.stored(path)
        if self.judge.is_elsewhere or is_operator:
            self._work.foreign_stored(path)
        else:
            self._partitions.stored(path)
        if self._acting is not None and path.startswith(_TIMELINES):
            self.takeovers.stored(self._acting)

    def _happened(self) -> None:
        """After an event of the script, and after each round at rest."""
        self.judge.happened()
        self._stats.happened()
        is_indexed = self.judge.indexes.indexed is not None
        self._indexed_s = min(self._indexed_s, self.clock.monotonic_s() + _READ_S) if is_indexed else inf
        self._work.follow()
        self.takeovers.happened()
        self._stops.happened(self._actors())
        self._entries.happened()
        self._partitions.happened()

    def _goes_on(self, seconds: float) -> None:
        """A round that takes so long, while somebody who is no process of the town's waits."""
        for seat in list(self.seats.values()):
            self.step(seat)
        self.clock.advance(seconds)
        self._happened()

    def _carried(self, actor: Actor, work: Callable[[], None]) -> None:
        self._acting = actor.process.name
        try:
            work()
        except Exception as error:
            actor.process.kill()
            text = f"{type(error).__name__}: {str(error)[:300]}"
            self.log.append(f"    {actor.process.name} ends: {text}")
            # A coordinator that starts beside another engine's unfinished write refuses, by design.
            refuses = self.foreign.has_half and type(error).__name__ == "UnsupportedTableError"
            self._ended += 1
            if not self.operator.reads(str(error)) and not refuses:
                self._ends(actor, error, text)
        finally:
            self._acting = None
        if actor.process.status is Status.FROZEN:
            self.log.append(f"    {actor.process.name} is frozen at {actor.process.trail[-1]}")
        elif not actor.process.alive and actor.process.trail:
            self.log.append(f"    {actor.process.name} is gone at {actor.process.trail[-1]}")

    def _ends(self, actor: Actor, error: Exception, text: str) -> None:
        if not _may_end(error):
            self.judge.say("unexpected", f"{actor.process.name} ends with {text}")
        else:
            self._work.ends(actor, text)

    def _actors(self) -> list[Actor]:
        found = [actor for seat in self.seats.values() for actor in (seat.current, *seat.zombies)]
        return [actor for actor in found if actor is not None]

    # ------------------------------------------------------------ calls

    def _call(self, caller: Process, path: str, request: Any) -> Any:
        method = path.removeprefix(_CALL_PREFIX)
        caller.place(f"call {method}")
        fault = self._call_faults.pop((caller.name.partition("#")[0], method), None)
        if fault is not None:
            self.log.append(f"    {caller.name} calls {method}: {fault}")
        if fault == "late":
            self._late_calls.append((path, request))
        if fault in ("lost", "late"):
            raise _unavailable(method, "no answer")
        answer = self._answer(path, request)
        if fault == "twice":
            answer = self._answer(path, request)
        self.takeovers.answered(caller.name, method, request)
        if fault == "answer":
            raise _unavailable(method, "the answer is lost")
        caller.place(f"answer {method}")
        return answer

    def _answer(self, path: str, request: Any) -> Any:
        method = path.removeprefix(_CALL_PREFIX)
        actor = self.seats["coordinator"].current
        running = isinstance(actor, CoordinatorActor) and actor.process.status is Status.RUNNING
        if not running or actor.server is None or path not in actor.server.handlers:
            raise _unavailable(method, "nobody listens")
        assert isinstance(actor, CoordinatorActor)
        actor.process.in_call += 1
        try:
            return actor.server.handlers[path](request, None)
        except Exception as error:
            status = status_of(error)
            if status is grpc.StatusCode.INTERNAL:
                self.judge.say("unexpected", f"{method}: {type(error).__name__}: {error}")
            if method.startswith("Report"):
                self.log.append(f"    {method} is refused: {error}")
            raise RpcError(method, status, str(error)) from error
        finally:
            actor.process.in_call -= 1


def _shards_there(setup: Setup) -> int:
    """Shards as the other engine has them: with a partitioned record index it begins partitions with another
    number than we do.
    """
    return setup.shards % 3 + 1 if setup.by_partition else setup.shards


def _unavailable(method: str, why: str) -> RpcError:
    return RpcError(method, grpc.StatusCode.UNAVAILABLE, why)


def _may_end(error: Exception) -> bool:
    """Whether a process may end so: whoever supervises it starts it again. All other ends are loud stops."""
    kind = getattr(getattr(error, "kind", None), "name", "")
    return kind in _CURABLE
