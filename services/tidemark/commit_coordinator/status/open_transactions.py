"""Finds the oldest open transaction on the ledger, which holds back all its read_committed readers.

Every transaction of a shuffler or assigner begins with a flushed `TransactionBegun` on the ledger. So the
message at the last stable offset is the `TransactionBegun` of the oldest open transaction. All folds wait
there until it ends: its process ends it, its slot is fenced after the lease has ended, or Kafka aborts it
after `limits.transaction_timeout`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from tidemark.epoch_protocol.entries import Stage, TransactionBegun, decode_ledger_entry
from tidemark.epoch_protocol.errors import ProtocolError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import (
    Admin,
    Isolation,
    KafkaClient,
    KafkaError,
    PartitionReader,
    TopicPartition,
)

_LOOK_S: Final = 0.2


@dataclass(frozen=True)
class OpenTransaction:
    """``offset``: on the ledger. ``age_ms``: this process's clock minus its producer's timestamp."""

    stage: Stage
    slot: int
    offset: int
    age_ms: int


class OpenTransactions:
    """Finds the oldest open transaction; thread-safe. The first look opens a reader, `close` closes it."""

    def __init__(self, client: KafkaClient, admin: Admin, ledger: TopicPartition, clock: Clock) -> None:
        self._client = client
        self._admin = admin
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: PartitionReader | None = None

    def oldest(self) -> OpenTransaction | None:
        """The oldest open transaction; None if none is open, or if the broker does not answer."""
        with self._lock:
            try:
                stable = self._admin.end_offset(self._ledger, Isolation.READ_COMMITTED)
                if stable >= self._admin.end_offset(self._ledger, Isolation.READ_UNCOMMITTED):
                    return None
                return self._at(stable)
            except (KafkaError, ProtocolError):
                return None

    def close(self) -> None:
        """Releases the reader."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _at(self, offset: int) -> OpenTransaction | None:
        if self._reader is None:
            self._reader = self._client.partition_reader(Isolation.READ_UNCOMMITTED)
        self._reader.assign({self._ledger: offset})
        messages = self._reader.poll(1, _LOOK_S)
        # Without a partition the reader fetches nothing until the next look.
        self._reader.remove([self._ledger])
        if not messages or messages[0].offset != offset:
            return None
        entry = decode_ledger_entry(messages[0].value or b"")
        if not isinstance(entry, TransactionBegun):
            return None
        age_ms = max(self._clock.now_ms() - messages[0].timestamp_ms, 0)
        return OpenTransaction(entry.stage, entry.slot, offset, age_ms)
