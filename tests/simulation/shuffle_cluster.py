"""Several shufflers on one in-memory broker, stepped one by one, under a coordinator that changes its mind.

The coordinator here keeps no promise but the names of slots: it moves lanes at any moment, also without being
told that the former holder gave them up, and sometimes does not answer. Whatever it does, the fold has to
come out right.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.index_assigner.shuffle_world import ORDERS
from tidemark.epoch_protocol.entries import BatchShuffled
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.stopped_lanes import SkipOrder
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.input.deleted_input import read_by
from tidemark.index_assigner.input.positions import StartOf, earliest
from tidemark.index_assigner.input.same_topics import StaleLogs, none_stale
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.lease import StageLease, StageReport
from tidemark.index_assigner.slots.pace import TransactionLimits
from tidemark.index_assigner.slots.slot import SlotLoop, SlotParts
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.ledger_client.fold_reader import Applied, FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

INPUT = "orders-in"
PARTITIONS, LANES, SHARDS = 4, 2, 4


@dataclass
class FakeLease:
    """One slot's lease, set by the test."""

    slot: int
    lanes: frozenset[str] = frozenset()
    answers: bool = True
    skips: tuple[SkipOrder, ...] = ()
    paused: bool = False
    reported: StageReport = field(default_factory=StageReport)

    def lease(self) -> StageLease | None:
        return StageLease(self.slot, self.lanes, paused=self.paused, skips=self.skips)

    def report(self, report: StageReport) -> None:
        self.reported = report

    def renew_now(self) -> StageLease | None:
        return StageLease(self.slot, self.lanes) if self.answers else None


class ShuffleCluster:
    def __init__(self, seed: int, start: StartOf = earliest, stale: StaleLogs = none_stale) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.ids = SeededIds(seed)
        self.broker = MemoryBroker(self.clock, self.ids)
        self.client = MemoryKafkaClient(self.broker)
        self.names = TopicNames("orders")
        topics = {
            self.names.ledger: 1,
            self.names.epochs: 1,
            self.names.keyed: LANES,
            self.names.dead_letter: 1,
            INPUT: PARTITIONS,
        }
        self.client.admin().create_topics([TopicSpec(name, count) for name, count in topics.items()])
        self.lanes = [f"{INPUT}:{partition}" for partition in range(PARTITIONS)]
        self.start, self.stale = start, stale
        self.leases: list[FakeLease] = []
        self.loops: list[SlotLoop] = []
        self.claimed: list[threading.Event] = []
        self.failpoints: list[FailpointRegistry] = []
        self.sent: list[str] = []
        self.bad = 0

    def add_shuffler(self, slot: int, claimed: threading.Event | None = None) -> int:
        """A new process in the slot, or with the ``claimed`` of another a part of its process; returns its
        number.
        """
        self.claimed.append(claimed or threading.Event())
        self.leases.append(FakeLease(slot))
        self.failpoints.append(FailpointRegistry(AssignerFailpoint))
        parts = SlotParts(
            topics=self.names,
            client=self.client,
            folds=self.fold_reader(),
            lease=self.leases[-1],
            limits=TransactionLimits(interval_ms=200, records=50, bytes=1 << 20),
            clock=self.clock,
            ids=self.ids,
            failpoints=self.failpoints[-1],
            owner=f"process-{len(self.loops)}",
            claimed=self.claimed[-1],
        )
        rules = RecordRules(
            ORDERS,
            KeyGenerator.for_table(ORDERS, ["id"], ["day"]),
            OrderingField.of(ORDERS, "at"),
            SHARDS,
            LANES,
            1 << 20,
        )
        ledger_read = read_by(parts.folds, self.client, self.names.ledger_partition)
        settings = ShuffleSettings(
            self.names, self.start, "s", 4_000, 1 << 20, 1 << 20, self.stale, ledger_read=ledger_read
        )
        self.loops.append(SlotLoop(parts, ShuffleWork(self.client, RecordKeyer(rules), settings, self.clock)))
        return len(self.loops) - 1

    def fold_reader(self) -> FoldReader:
        reader = FoldReader(
            self.client, self.names.ledger, self.names.epochs, lambda path, sha: b"", self.clock
        )
        reader.start()
        return reader

    def share(self, *numbers: int) -> None:
        """Deals all lanes to these shufflers, by dice."""
        dealt: dict[int, set[str]] = {number: set() for number in numbers}
        for lane in self.lanes:
            dealt[self.random.choice(numbers)].add(lane)
        for number, lease in enumerate(self.leases):
            lease.lanes = frozenset(dealt.get(number, ()))

    def produce(self, count: int) -> None:
        """Records with keys that tell partition and place, every 17th of them broken."""
        for _ in range(count):
            number = len(self.sent) + self.bad
            partition = self.random.randrange(PARTITIONS)
            value = b"{broken"
            if number % 17:
                key = f"{partition}-{len(self.sent)}"
                self.sent.append(key)
                value = json.dumps({"id": key, "day": "d", "at": number}).encode()
            else:
                self.bad += 1
            self.broker.produce(TopicPartition(INPUT, partition), None, value, ())

    def step(self, number: int, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.loops[number].step()

    def settle(self, *numbers: int) -> None:
        """Lets the shufflers finish what is there."""
        for _ in range(120):
            for number in numbers:
                self.step(number)
            self.clock.advance(0.05)

    # ------------------------------------------------------------ what came out

    def ledger(self) -> list[Applied]:
        reader = self.fold_reader()
        return reader.catch_up()

    def counted(self) -> list[BatchShuffled]:
        return [
            a.entry
            for a in self.ledger()
            if isinstance(a.entry, BatchShuffled) and a.verdict is Verdict.COUNTS
        ]

    def keyed(self) -> list[str]:
        """Keys that an assigner would be handed, in its order, lane after lane."""
        folds = self.fold_reader()
        source = KeyedTopicSource(
            self.client, self.names.keyed, folds, self.names.ledger_partition, 1 << 24, 1 << 12
        )
        for lane in range(LANES):
            source.assign(str(lane), 0)
        keys: dict[str, list[str]] = {}
        for _ in range(200):
            folds.poll(0.0)
            for slice_ in source.poll(Budget(1_000, 1 << 20), 0.0):
                for batch in slice_.batches:
                    keys.setdefault(slice_.lane, []).extend(batch.column("_tm_key").to_pylist())
        return [key for lane in sorted(keys) for key in keys[lane]]

    def check(self) -> None:
        """Input = keyed + dead letters, each once, in the input's order per partition."""
        keyed = self.keyed()
        assert Counter(keyed) == Counter(self.sent)
        entries = self.counted()
        assert sum(e.records for e in entries) == len(self.sent) + self.bad
        assert sum(e.dead_letters for e in entries) == self.bad
        places: dict[tuple[str, int], list[int]] = {}
        for key, shard in zip(keyed, record_index_shard(keyed, SHARDS), strict=True):
            partition, _, place = key.partition("-")
            places.setdefault((partition, int(shard) % LANES), []).append(int(place))
        assert all(found == sorted(found) for found in places.values())
