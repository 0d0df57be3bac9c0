"""The transaction coordinator of the in-memory broker: Kafka's protocol as librdkafka speaks it (no epoch per
transaction).

    EMPTY, COMPLETE_* ── add partitions ──► ONGOING ── end ──► COMPLETE_COMMIT | COMPLETE_ABORT

A request with an older producer epoch is fenced. An end that arrives late but with the current epoch is
obeyed: the hole in the protocol that ledger-first-and-last closes (ARCHITECTURE.md, "What counts").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from tidemark.stream_runtime.kafka.errors import AbortableError, FencedError, ProducerFatalError
from tidemark.stream_runtime.kafka.ports import TopicPartition


class TransactionState(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    COMPLETE_COMMIT = "complete commit"
    COMPLETE_ABORT = "complete abort"


@dataclass(slots=True)
class Transaction:
    """What the coordinator knows of one transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int = -1
    timeout_s: float = 0.0
    started_s: float = 0.0
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    out_of_sequence: set[TopicPartition] = field(default_factory=set)
    """Where an old message's copy was refused while no transaction was open: its number is kept in mind."""

    def check_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError(
                f"transactional id {self.transactional_id}: producer epoch {epoch} is over, "
                f"{self.epoch} is current"
            )

    def open(self, now_s: float) -> None:
        """The first partition or offset of a transaction opens it."""
        if self.state is not TransactionState.ONGOING:
            self.state = TransactionState.ONGOING
            self.started_s = now_s

    def check_contains(self, topic_partition: TopicPartition) -> None:
        """Partition verification: a produce outside of an open transaction that has the partition is
        refused.
        """
        if self.state is not TransactionState.ONGOING or topic_partition not in self.partitions:
            topic, partition = topic_partition
            raise AbortableError(
                f"INVALID_TXN_STATE: {topic}[{partition}] is not in an open transaction "
                f"of {self.transactional_id}"
            )

    def check_in_sequence(self, topic_partition: TopicPartition) -> None:
        """Measured: after such a copy the broker takes the epoch's next message for one behind a gap."""
        if topic_partition in self.out_of_sequence:
            topic, partition = topic_partition
            raise ProducerFatalError(
                f"OUT_OF_ORDER_SEQUENCE_NUMBER: {topic}[{partition}] of {self.transactional_id}"
            )

    def must_end(self, commit: bool) -> bool:
        """False when this end was done already (a repeated request). Raises AbortableError when it
        contradicts.
        """
        if self.state is TransactionState.ONGOING:
            return True
        done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        if self.state is done:
            return False
        verb = "commit" if commit else "abort"
        raise AbortableError(
            f"INVALID_TXN_STATE: cannot {verb} the transaction of {self.transactional_id}: "
            f"it is {self.state.value}"
        )

    def close(self, commit: bool) -> tuple[set[TopicPartition], dict[tuple[str, TopicPartition], int]]:
        """Ends it; returns the partitions that need a marker and the consumed offsets."""
        partitions, offsets = self.partitions, self.offsets
        self.partitions, self.offsets = set(), {}
        self.state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        return partitions, offsets

    @property
    def deadline_s(self) -> float:
        """When it runs out of time; infinite while none is open."""
        return self.started_s + self.timeout_s if self.state is TransactionState.ONGOING else math.inf

    def has_expired(self, now_s: float) -> bool:
        return now_s >= self.deadline_s
