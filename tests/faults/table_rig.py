"""A table whose services reach Kafka through a proxy, and the input that it must be the replay of."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.kafka_proxy import KafkaProxy
from tests.faults.table_faults import FaultSchedule
from tests.integration.assign_world import ServedTable
from tests.integration.test_assign_service import Records, check, random_records
from tidemark.epoch_protocol.batches import BatchHeader
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.ports import Isolation, Message, TopicPartition
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.retry import Deadline

_RECORDS = 300


class Rig:
    """A table behind the proxy, with all that was sent to it."""

    def __init__(self, table: ServedTable, proxy: KafkaProxy, seed: int) -> None:
        self.table = table
        self.proxy = proxy
        self.dice = random.Random(seed)
        self.faults = FaultSchedule(proxy, table.names, seed)
        self.sent: Records = []

    def start(self) -> None:
        self.table.coordinator()
        self.table.assigner()
        self.table.writer()
        self.feed()
        self.table.wait_until_committed()

    def feed(self) -> None:
        records = random_records(self.dice, _RECORDS, True)
        self.table.produce(records)
        self.sent += records

    def check(self) -> None:
        """The table is the replay of all that was sent, and its files prove themselves."""
        check(self.table, self.sent)

    def any_round(self) -> tuple[list[str], float]:
        """A few random faults while records flow; what happened, and the seconds until all was committed."""
        for _ in range(self.dice.randrange(1, 4)):
            self.faults.any()
            for _ in range(4):
                self.feed()
                time.sleep(self.dice.uniform(0.0, 0.4))
        happened = self.faults.happened()
        return happened, self.settle()

    def settle(self) -> float:
        """All is healed, and all that was sent gets committed; how many seconds that took."""
        self.faults.end_round()
        started_s = time.monotonic()
        self.table.wait_until_committed()
        return time.monotonic() - started_s

    def unnamed(self, topic: str) -> set[str]:
        """Nonces of batches that readers of the topic see, and that no entry of the ledger names."""
        ledger = self._read(self.table.names.ledger)
        entries = [json.loads(message.value or b"") for message in ledger]
        named = {
            entry["nonce"] for entry in entries if entry["type"] in ("batch_shuffled", "transaction_tagged")
        }
        return {BatchHeader.decode(message.headers).nonce for message in self._read(topic)} - named

    def _read(self, topic: str) -> list[Message]:
        admin, reader = self.table.observer.admin(), self.table.observer.partition_reader()
        partitions = [TopicPartition(topic, number) for number in range(admin.partitions(topic) or 0)]
        ends = {tp: admin.end_offset(tp, Isolation.READ_COMMITTED) for tp in partitions}
        reader.assign({tp: admin.start_offset(tp) for tp in partitions})
        messages: list[Message] = []
        deadline = Deadline(SystemClock(), 60.0)
        while any(reader.position(tp) < end for tp, end in ends.items()):
            deadline.check(f"the end of {topic}")
            messages += reader.poll(1_000, 0.1)
        reader.close()
        admin.close()
        return messages


@contextmanager
def table_rig(kafka: EmbeddedKafka, folder: Path, seed: int = 0) -> Iterator[Rig]:
    proxy = KafkaProxy(kafka.bootstrap_servers)
    name = f"faults-{SystemIds().uuid()[:8]}"
    table = ServedTable(proxy, folder, name, direct=kafka, transaction_timeout="2s")
    try:
        yield Rig(table, proxy, seed)
    finally:
        proxy.forget_rules()
        proxy.heal()
        table.close()
        proxy.close()
