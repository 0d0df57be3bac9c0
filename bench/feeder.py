"""Puts the benchmark's records into a Kafka topic: whole batches that appear at once, or a steady trickle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from bench.commit_watch import Positions

PARTITIONS: Final = 4
_FLUSH_TIMEOUT_S: Final = 300.0
_PIECE: Final = 20_000
_QUEUED: Final = 1_000_000
"""Records that may wait for the broker: making them rests above it. Twice as many have room."""
_TICK_S: Final = 0.01
_POLL_S: Final = 0.1
# The longest that a broker allows by default; filling a backlog takes some time.
_TRANSACTION_TIMEOUT_MS: Final = 900_000

Floats = npt.NDArray[np.float64]


def json_records(rows: pa.Table) -> list[bytes]:
    """Each row as a JSON object. By whole columns: the texts of the workload need no escapes."""
    pieces: list[Any] = []
    for number, column in enumerate(rows.schema):
        text = pa.types.is_string(column.type)
        name = f'{"{" if number == 0 else ","}"{column.name}":'
        pieces.append(name + ('"' if text else ""))
        pieces.append(rows[column.name].cast(pa.string()))
        if text:
            pieces.append('"')
    joined = pc.binary_join_element_wise(*pieces, "}", "")
    return list(joined.cast(pa.binary()).to_pylist())


class BatchFeeder:
    """Batches that readers of committed records see as a whole, from one moment on: the commit of a Kafka
    transaction. So nobody starts on a part of a batch before the clock does.
    """

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
                "linger.ms": 5,
                "batch.size": 1 << 20,
            }
        )
        self._producer.init_transactions(_FLUSH_TIMEOUT_S)
        self._ends: dict[int, int] = {}
        self._failed = 0

    def publish(
        self, tables: Iterable[pa.Table], before: Callable[[], object] = lambda: None
    ) -> tuple[float, Positions]:
        """All rows in one transaction, spread over the partitions in equal runs. ``before`` is called right
        before its commit.

        Returns the time.perf_counter at which its commit was asked for, and the position after the last
        record of each partition.
        """
        self._producer.begin_transaction()
        for rows in tables:
            self._produce(json_records(rows))
        if self._producer.flush(_FLUSH_TIMEOUT_S) or self._failed:
            raise RuntimeError(f"{self._topic}: {self._failed} records of the batch were not taken")
        started_s = time.perf_counter()
        before()
        self._producer.commit_transaction(_FLUSH_TIMEOUT_S)
        return started_s, dict(self._ends)

    def _produce(self, records: Sequence[bytes]) -> None:
        for number in range(PARTITIONS):
            mine = records[number::PARTITIONS]
            for first in range(0, len(mine), _PIECE):
                messages: list[dict[str, Any]] = [{"value": value} for value in mine[first : first + _PIECE]]
                while len(self._producer) > _QUEUED:
                    self._producer.poll(_POLL_S)
                # Only the last report of a piece is wanted: a partition's records are taken in order.
                messages[-1]["callback"] = self._delivered
                taken = self._producer.produce_batch(self._topic, messages, partition=number)
                if taken != len(messages):
                    raise RuntimeError(f"{self._topic}: the producer's queue is full at {taken} records")
                self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed += 1
            return
        partition = int(message.partition())
        self._ends[partition] = max(self._ends.get(partition, 0), int(message.offset()) + 1)


@dataclass
class Trickle:
    """What a steady feed produced: per partition the time of each record, in order of its offsets."""

    first: dict[int, int] = field(default_factory=dict)
    produced_s: dict[int, list[float]] = field(default_factory=dict)

    @property
    def ends(self) -> Positions:
        return {each: first + len(self.produced_s[each]) for each, first in self.first.items()}

    @property
    def records(self) -> int:
        return sum(map(len, self.produced_s.values()))


class SteadyFeeder:
    """Single records at an even pace, each sent at once; a partition's records keep their order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True}
        )
        self._first: dict[int, int] = {}

    def feed(self, records: Sequence[bytes], rate: float) -> Trickle:
        """Produces the records, `rate` a second; returns when all are acknowledged."""
        trickle, sent, started_s = Trickle(), 0, time.perf_counter()
        while sent < len(records):
            due = min(int((time.perf_counter() - started_s) * rate), len(records))
            for record in records[sent:due]:
                partition = sent % PARTITIONS
                trickle.produced_s.setdefault(partition, []).append(time.perf_counter())
                self._producer.produce(self._topic, record, partition=partition, on_delivery=self._delivered)
                sent += 1
            self._producer.poll(0)
            time.sleep(_TICK_S)
        if self._producer.flush(_FLUSH_TIMEOUT_S):
            raise RuntimeError(f"{self._topic}: not all records were acknowledged")
        trickle.first, self._first = self._first, {}
        return trickle

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(f"{self._topic}: a record was not taken: {error}")
        self._first.setdefault(int(message.partition()), int(message.offset()))
