"""A table with its topics on an in-memory broker, and shufflers driven by hand, message by message."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    Consumed,
    LanesClaimed,
    Stage,
    TransactionBegun,
    encode_entry,
)
from tidemark.epoch_protocol.messages import EncodedBatch, produced_ranges
from tidemark.epoch_protocol.stopped_lanes import SkipOrder
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.shuffle_batch import (
    encode_lanes,
    keyed_messages,
)
from tidemark.index_assigner.shuffle.stage import ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget, PreparedTransaction
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition, TopicSpec, TransactionalProducer

SHARDS, LANES = 4, 2
RECORD_BYTES_MAX = 1 << 20
PLENTY = Budget(1_000_000, 1 << 30)
ORDERS = TableSchema.from_arrow(
    "orders",
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("day", pa.string(), nullable=False),
            pa.field("at", pa.int64(), nullable=False),
            pa.field("note", pa.string()),
        ]
    ),
)


def rules(lanes: int = LANES) -> RecordRules:
    return RecordRules(
        schema=ORDERS,
        generator=KeyGenerator.for_table(ORDERS, ["id"], ["day"]),
        ordering=OrderingField.of(ORDERS, "at"),
        num_shards=SHARDS,
        lanes=lanes,
        record_bytes_max=RECORD_BYTES_MAX,
        delete_field="_deleted",
    )


def order(key: str, at: object = 1, **more: object) -> bytes:
    return json.dumps({"id": key, "day": "2024-01-01", "at": at, **more}).encode()


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    names: TopicNames = field(default_factory=lambda: TopicNames("orders"))

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.clock, SeededIds(1))
        self.client = MemoryKafkaClient(self.broker)
        self.admin = self.client.admin()
        topics = {
            self.names.ledger: 1,
            self.names.epochs: 1,
            self.names.keyed: LANES,
            self.names.dead_letter: 1,
            "orders-in": LANES,
        }
        self.admin.create_topics([TopicSpec(name, count) for name, count in topics.items()])
        self.keyer = RecordKeyer(rules())

    def fold_reader(self) -> FoldReader:
        reader = FoldReader(
            self.client, self.names.ledger, self.names.epochs, lambda path, sha: b"", self.clock
        )
        reader.start()
        return reader

    def encode(self, keys: Sequence[str], batch_bytes: int = 1 << 20) -> list[EncodedBatch]:
        messages = [Message("orders-in", 0, i, None, order(key)) for i, key in enumerate(keys)]
        return encode_lanes(self.keyer.key_records(messages), batch_bytes, 1 << 20).batches

    def all_keyed(self, partition: int) -> list[Message]:
        reader = self.client.partition_reader()
        reader.assign({TopicPartition(self.names.keyed, partition): 0})
        return reader.poll(10_000, 0.0)


class HandShuffler:
    """One transaction at a time: `begin`, `send`, then `finish` or `abort`."""

    def __init__(self, world: World, slot: int, lane: str) -> None:
        self.world, self.slot, self.lane = world, slot, lane
        self.producer: TransactionalProducer = world.client.producer(f"orders-shuffle-{slot}")
        self.producer.init()
        self.term = -1
        self.next = 0
        self.nonce = ""
        self._count = 0
        self._sent: list[tuple[EncodedBatch, int]] = []

    def claim(self, lane: str | None = None) -> None:
        self.lane = lane or self.lane
        self.producer.begin()
        claim = LanesClaimed(Stage.SHUFFLE, [self.lane], 0, self.slot, f"hand-{self.slot}")
        delivery = self.producer.produce(self.world.names.ledger_partition, encode_entry(claim))
        self.producer.flush()
        self.producer.commit()
        self.term = delivery.offset

    def begin(self) -> None:
        self._count += 1
        self.nonce = f"nonce-{self.slot}-{self._count}"
        self._sent = []
        self.producer.begin()
        begun = TransactionBegun(Stage.SHUFFLE, self.slot, self.nonce)
        self.producer.produce(self.world.names.ledger_partition, encode_entry(begun))
        self.producer.flush()

    def send(self, batch: EncodedBatch) -> None:
        batches = [b for b, _ in self._sent] + [batch]
        message = keyed_messages(batches, self.world.names.keyed, self.nonce, "s")[-1]
        delivery = self.producer.produce(message.topic_partition, message.value, message.key, message.headers)
        self.producer.flush()
        self._sent.append((batch, delivery.offset))

    def finish(self, records: int = 10, tampered: dict[str, int] | None = None) -> None:
        produced = produced_ranges([b for b, _ in self._sent], [o for _, o in self._sent])
        if tampered:
            produced = [msgspec.structs.replace(p, **tampered) for p in produced]
        entry = BatchShuffled(
            slot=self.slot,
            nonce=self.nonce,
            terms={self.lane: self.term},
            consumed=[Consumed(self.lane, self.next, self.next + records)],
            produced=produced,
            records=records,
            dead_letters=0,
        )
        self.producer.produce(self.world.names.ledger_partition, encode_entry(entry))
        self.producer.flush()
        self.producer.commit()
        self.next += records

    def shuffle(self, batches: Sequence[EncodedBatch]) -> None:
        """One whole transaction."""
        self.begin()
        for batch in batches:
            self.send(batch)
        self.finish()


def skipped(work: ShuffleWork, wanted: SkipOrder) -> PreparedTransaction:
    """What the stage makes of an order that comes again and again."""
    for number in range(1_200):
        work.skip([wanted])
        if work.gather(PLENTY, 0.0).records:
            prepared = work.prepare(f"skip-{number}")
            assert prepared is not None
            return prepared
        time.sleep(0.05)
    raise AssertionError(f"nothing is skipped: {work.skip_results()}")
