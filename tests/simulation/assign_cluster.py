"""Several assigners on one in-memory broker, a coordinator by hand, and a writer that obeys the ledger.

The writer model takes epochs as the coordinator plans them, from the batches that counting entries name, and
refuses whatever does not fit: a key in two places, a delete where the key is not. In the end its rows are
compared with a replay of the input.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.simulation.shuffle_cluster import FakeLease
from tests.unit.index_assigner.assign_rig import (
    DATA_PARTITIONS,
    LANES,
    SCHEMA,
    SHARDS,
    Event,
    HandLeases,
    keyed_rows,
)
from tests.unit.index_assigner.dict_index import DictIndex, Known
from tests.unit.index_assigner.domain.test_tagging_model import Event as ModelEvent
from tests.unit.index_assigner.domain.test_tagging_model import replay
from tests.unit.index_assigner.shuffle_world import HandShuffler
from tests.unit.index_assigner.writer_model import WriterModel
from tidemark.epoch_protocol.batches import encode_batch
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CommitDecided,
    CoordinatorClaimed,
    Counts,
    Decision,
    EpochCommitted,
    EpochPlanned,
    Rewound,
    SnapshotTaken,
    Topic,
    TransactionTagged,
    encode_entry,
)
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.messages import EncodedBatch
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.index_assigner.assign.emit import EmitLimits, Emitter, topic_name
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.assign.lookups import LookupQueue
from tidemark.index_assigner.assign.placement import Placement
from tidemark.index_assigner.assign.tagger import BatchTagger
from tidemark.index_assigner.assign.uncommitted_limits import UncommittedLimits
from tidemark.index_assigner.assign.work import AssignParts, AssignWork
from tidemark.index_assigner.domain.locations import NO_LOCATION, Locations
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from tidemark.index_assigner.slots.pace import TransactionLimits
from tidemark.index_assigner.slots.slot import SlotLoop, SlotParts
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.named_batches import NamedBatch, NamedRange, collect_named
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

ALL_LANES = frozenset(str(lane) for lane in range(LANES))


@dataclass
class Assigner:
    loop: SlotLoop
    work: AssignWork
    lease: FakeLease
    failpoints: FailpointRegistry
    index: DictIndex
    queue: LookupQueue
    locations: Locations
    leases: HandLeases = field(default_factory=HandLeases)


class AssignCluster:
    """``world``-like for `HandShuffler`: it has the client and the names."""

    def __init__(self, seed: int, ordered: bool = True) -> None:
        self.random = Random(seed)
        self.ordered = ordered
        self.clock = ManualClock()
        self.ids = SeededIds(seed)
        self.broker = MemoryBroker(self.clock, self.ids)
        self.client = MemoryKafkaClient(self.broker)
        self.names = TopicNames("orders")
        n = self.names
        topics = {
            n.ledger: 1,
            n.epochs: 1,
            n.dead_letter: 1,
            n.data: DATA_PARTITIONS,
            **dict.fromkeys((n.keyed, n.index, n.tombstones), LANES),
        }
        self.client.admin().create_topics([TopicSpec(name, count) for name, count in topics.items()])
        self.table = WriterModel(ordered)
        self.leases = HandLeases(room=5)
        self.assigners: list[Assigner] = []
        self.sent: list[Event] = []
        self.snapshots: dict[str, bytes] = {}
        self.rewinds_wanted: list[tuple[str, int]] = []
        self._shuffler = HandShuffler(self, 0, "orders-in:0")  # type: ignore[arg-type]
        self._shuffler.claim()
        self.coordinator = HandCoordinator(self)

    def fold_reader(self) -> FoldReader:
        reader = FoldReader(
            self.client,
            self.names.ledger,
            self.names.epochs,
            lambda path, _: self.snapshots[path],
            self.clock,
        )
        reader.start()
        return reader

    def add_assigner(self, slot: int, records: int = 50, memory: int = 1 << 30) -> Assigner:
        """A new process in the slot. ``memory``: bytes for its uncommitted entries."""
        folds = self.fold_reader()
        locations = Locations(DATA_PARTITIONS)
        index = DictIndex(locations, lambda lane: self._stored(lane, locations), self.table.ordering_of)
        placement = Placement(self.leases, locations, self.ids)
        queue = LookupQueue(AskedLanes(IndexKind.GLOBAL, SHARDS, LANES), locations, self.clock)
        n, client, clock = self.names, self.client, self.clock
        source = KeyedTopicSource(client, n.keyed, folds, n.ledger_partition, 1 << 24, 1 << 12)
        work = AssignWork(
            AssignParts(
                topics=n,
                schema=SCHEMA,
                shards=SHARDS,
                folds=folds,
                source=source,
                locations=locations,
                index=index,
                opener=LaneOpener(index, client, n, lambda: None, clock, self.ordered),  # type: ignore[arg-type,return-value]
                placement=placement,
                tagger=BatchTagger(index, locations, placement, clock, self.ordered, 3_600_000),
                emitter=Emitter(SCHEMA, locations, LANES, EmitLimits(4_000, 1 << 20)),
                lookups=queue,
                clock=clock,
                uncommitted=UncommittedLimits(memory),
                want_rewind=lambda reason, generation, _: self.rewinds_wanted.append((reason, generation)),
            )
        )
        lease = FakeLease(slot)
        failpoints = FailpointRegistry(AssignerFailpoint)
        parts = SlotParts(
            topics=n,
            client=client,
            folds=folds,
            lease=lease,
            limits=TransactionLimits(interval_ms=200, records=records, bytes=1 << 20),
            clock=clock,
            ids=self.ids,
            failpoints=failpoints,
            owner=f"process-{len(self.assigners)}",
            claimed=threading.Event(),
        )
        made = Assigner(SlotLoop(parts, work), work, lease, failpoints, index, queue, locations)
        self.assigners.append(made)
        return made

    def _stored(self, lane: int, locations: Locations) -> dict[str, Known]:
        """What the metadata table says of the lane: locations, and at most bounds of ordering values."""
        known = {}
        for key, place in self.table.index.items():
            if Event(key).lane != lane:
                continue
            ordering = self.table.ordering_of(key) if self.ordered else None
            sure = self.random.random() < 0.5
            bound = None if ordering is None else ordering if sure else ordering - self.random.randrange(3)
            known[key] = Known(locations.intern(*place), bound, sure and self.ordered, NO_LOCATION)
        return known

    def feed(self, events: Sequence[Event]) -> None:
        """One counting shuffle transaction."""
        self.sent += events
        by_lane = [[e for e in events if e.lane == lane] for lane in range(LANES)]
        self._shuffler.shuffle(
            [
                EncodedBatch(Topic.KEYED, lane, encode_batch(keyed_rows(mine)).to_pybytes(), len(mine))
                for lane, mine in enumerate(by_lane)
                if mine
            ]
        )

    def random_events(self, count: int, keys: int = 12) -> list[Event]:
        events = []
        for _ in range(count):
            delete = self.random.random() < 0.25
            at = self.random.randrange(20) if self.ordered else None
            if delete and self.random.random() < 0.4:
                at = None
            day = None if delete and self.random.random() < 0.5 else f"d{self.random.randrange(3)}"
            events.append(Event(f"k{self.random.randrange(keys)}", day, at, delete))
        return events

    def settle(self, *assigners: Assigner, rounds: int = 80) -> None:
        """Lets the assigners finish what is there."""
        for _ in range(rounds):
            for each in assigners:
                each.loop.step()
            self.clock.advance(0.05)

    def verdicts(self) -> list[tuple[TransactionTagged, Verdict]]:
        """All transactions of the stage and what the fold made of them."""
        applied = self.fold_reader().catch_up()
        return [(a.entry, a.verdict) for a in applied if isinstance(a.entry, TransactionTagged)]

    def check(self) -> None:
        """After the last commit: the table is the replay of the input, and every record is counted once."""
        model = [ModelEvent(e.key, e.delete, e.at if self.ordered else None, e.day or "") for e in self.sent]
        rows, tombstones = replay(model, self.ordered)
        assert self.table.live() == {key: (row.partition, row.ordering) for key, row in rows.items()}
        assert self.table.tombstones == (tombstones if self.ordered else {})
        state = self.coordinator.fold.fold.state
        assert state.tagged == []
        counts: Counts = state.committed_counts
        assert counts.input == len(self.sent)
        gone = counts.deletes + counts.superseded + counts.no_ops + counts.dead_letters
        assert counts.inserts + counts.updates + gone == counts.input


class HandCoordinator:
    """Writes decisions; what it commits is applied to the table first."""

    def __init__(self, cluster: AssignCluster) -> None:
        self._cluster = cluster
        self._producer = cluster.client.producer("orders-coordinator")
        self._producer.init()
        self.fold = cluster.fold_reader()
        self.term = self.decide(CoordinatorClaimed("coordinator-0"))
        self._completion = 100
        self.epochs = 0

    def decide(self, *decisions: Decision) -> int:
        """Appends the decisions in one transaction; the offset of the last."""
        self._producer.begin()
        sent = [
            self._producer.produce(self._cluster.names.epochs_partition, encode_entry(each))
            for each in decisions
        ]
        self._producer.flush()
        self._producer.commit()
        return sent[-1].offset

    def plan(self) -> EpochPlanned | None:
        """Plans everything that counts by now; None when there is nothing."""
        self.fold.catch_up()
        state = self.fold.fold.state
        if state.planned is not None:
            return state.planned
        if not state.tagged:
            return None
        planned = EpochPlanned(
            term=self.term,
            epoch=state.committed.epoch + 1,
            attempt=state.attempts + 1,
            generation=state.generation,
            through=state.tagged[-1].offset,
            instant=f"i{self._completion}",
            as_of="0",
            schema="",
            planned_ms=0,
        )
        self.decide(planned)
        self.fold.catch_up()
        assert self.fold.fold.state.planned == planned
        return planned

    def commit(self) -> bool:
        """Plans, writes and commits an epoch; False when there was nothing to commit."""
        planned = self.plan()
        if planned is None:
            return False
        self._completion += 1
        completion = str(self._completion)
        decided = CommitDecided(
            self.term, planned.epoch, planned.attempt, completion, completion, "p", "s", 0
        )
        self._write(planned)
        committed = EpochCommitted(self.term, planned.epoch, planned.attempt, planned.instant, completion, 0)
        self.decide(decided, committed)
        self.fold.catch_up()
        assert self.fold.fold.state.committed.epoch == planned.epoch
        self.epochs += 1
        return True

    def rewind(self) -> None:
        """Voids the planned attempt, if any, and rewinds to the last committed epoch."""
        self.fold.catch_up()
        state = self.fold.fold.state
        decisions: list[Decision] = []
        if state.planned is not None:
            decisions.append(
                AttemptVoided(self.term, state.planned.epoch, state.planned.attempt, "foreign commit")
            )
        generation = state.generation + 1
        decisions.append(
            Rewound(self.term, generation, state.committed.through, state.handled, "foreign commit")
        )
        self.decide(*decisions)
        self.fold.catch_up()
        assert self.fold.fold.state.generation == generation

    def trim(self) -> None:
        """Takes a snapshot and deletes all entries before it: a reader that fell behind loads it."""
        self.fold.catch_up()
        state = self.fold.fold.state
        path = f"fold-{state.decisions_next}"
        self._cluster.snapshots[path] = self.fold.fold.snapshot()
        at = self.decide(SnapshotTaken(self.term, path, "", state.ledger_next))
        names = self._cluster.names
        ends = {names.epochs_partition: at, names.ledger_partition: state.ledger_next}
        self._cluster.client.admin().delete_records(ends)
        self.fold.catch_up()

    def _write(self, planned: EpochPlanned) -> None:
        manifest = self.fold.fold.manifest(planned.through)
        found: list[tuple[int, int, Topic, int, NamedBatch]] = []
        for place, topic in enumerate((Topic.DATA, Topic.INDEX, Topic.TOMBSTONES)):
            partitions = {p.partition for c in manifest for p in c.entry.produced if p.topic is topic}
            for partition in sorted(partitions):
                ranges = [
                    NamedRange(c.entry.nonce, c.offset, p)
                    for c in manifest
                    for p in c.entry.produced
                    if (p.topic, p.partition) == (topic, partition)
                ]
                batches = self._named(topic, partition, ranges)
                found += [(each.order, place, topic, partition, each) for each in batches]
        for _, _, topic, partition, each in sorted(found, key=lambda f: f[:2]):
            self._cluster.table.apply(topic, partition, each.batch)

    def _named(self, topic: Topic, partition: int, ranges: list[NamedRange]) -> list[NamedBatch]:
        name = topic_name(self._cluster.names, topic)
        reader = self._cluster.client.range_reader()
        try:
            first = min(r.produced.first for r in ranges)
            last = max(r.produced.last for r in ranges)
            return collect_named(reader.read(TopicPartition(name, partition), first, last), ranges)
        finally:
            reader.close()
