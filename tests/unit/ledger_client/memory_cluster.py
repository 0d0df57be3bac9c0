"""Ledger, decisions and batch topics on an in-memory broker, with the shortest ways to write to them."""

from __future__ import annotations

import pyarrow as pa

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tidemark.epoch_protocol.batches import BatchHeader, encode_batch
from tidemark.epoch_protocol.entries import Decision, LedgerEntry, encode_entry
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

LEDGER = TopicPartition("t.ledger", 0)
EPOCHS = TopicPartition("t.epochs", 0)
DATA = TopicPartition("t.data", 0)
INDEX = TopicPartition("t.index", 0)
KEYED = TopicPartition("t.keyed", 0)


class MemoryCluster:
    """`documents`: what fold snapshots are read from, by path."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, SeededIds(seed))
        self.client = MemoryKafkaClient(self.broker)
        self.admin = self.client.admin()
        self.admin.create_topics([TopicSpec(tp.topic, 1) for tp in (LEDGER, EPOCHS, DATA, INDEX, KEYED)])
        self.documents: dict[str, bytes] = {}

    def reader(self) -> FoldReader:
        """A fold reader of its own."""
        return FoldReader(
            self.client, LEDGER.topic, EPOCHS.topic, lambda path, _: self.documents[path], self.clock
        )

    def ledger(self, entry: LedgerEntry) -> int:
        """Appends a committed entry; returns its offset."""
        return self.broker.produce(LEDGER, None, encode_entry(entry), ())

    def decide(self, entry: Decision) -> int:
        """Appends a committed decision; returns its offset."""
        return self.broker.produce(EPOCHS, None, encode_entry(entry), ())

    def batch(self, nonce: str, sequence: int, values: list[int], at: TopicPartition = DATA) -> int:
        """Appends a committed batch; returns its offset."""
        data = pa.table({"v": pa.array(values, pa.int64())})
        header = BatchHeader(nonce, sequence, len(values), "s")
        return self.broker.produce(at, None, encode_batch(data).to_pybytes(), header.encode())
