"""The in-memory broker: topics, their logs, and the transaction coordinator, behind one lock.

Methods are the requests of Kafka's protocol. Every request first lets time act: transactions that ran out of
time are aborted (their producer is fenced by it), markers that are due reach their partitions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from testing.kafka.faults import Faults
from testing.kafka.partition_log import PartitionLog, StoredRecord, Visibility
from testing.kafka.transactions import Transaction
from testing.kafka.under_way import LateEnd, LateMessage, PendingMarker
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.errors import (
    KafkaConfigError,
    KafkaError,
    KafkaUnavailableError,
    LeaderChangingError,
    MessageTooLargeError,
    MissingTopicError,
    UnreadableBatchError,
)
from tidemark.stream_runtime.kafka.ports import (
    Headers,
    Isolation,
    Message,
    TopicPartition,
    TopicSpec,
    TopicState,
)

_RECORD_OVERHEAD_BYTES = 72
_MAX_MESSAGE_BYTES_DEFAULT = "1048588"
_LEADER_WAIT_S = 0.05


class MemoryBroker:
    """One cluster. Thread-safe; deterministic for one thread, one clock and one id source."""

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self.clock = clock
        self.random = ids.random()
        self.faults = Faults(ids.random())
        self.lock = threading.RLock()
        self._running = True
        self._topics: dict[str, TopicSpec] = {}
        self._topic_ids: dict[str, str] = {}
        self._topics_made = 0
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._transactions: dict[str, Transaction] = {}
        self._markers: list[PendingMarker] = []
        # Until this moment of the clock time alone changes nothing.
        self._quiet_until_s = 0.0
        self._late_ends: list[LateEnd] = []
        self._late_messages: list[LateMessage] = []
        self._group_offsets: dict[tuple[str, TopicPartition], int] = {}

    # ------------------------------------------------------------ the broker as a process

    def stop(self) -> None:
        """Every request fails with KafkaUnavailableError until `start`; nothing acknowledged is lost."""
        with self.lock:
            self._running = False

    def start(self) -> None:
        with self.lock:
            self._running = True

    def put_start_back(self, topic_partition: TopicPartition, deletions: int) -> None:
        """As after the broker was killed: the newest answered deletions of the log's start are forgotten."""
        with self.lock:
            self._logs[topic_partition].put_start_back(deletions)

    def check_running(self) -> None:
        """Every request starts here."""
        if not self._running:
            raise KafkaUnavailableError("the broker is down")
        now_s = self.clock.monotonic_s()
        if now_s < self._quiet_until_s:
            return
        for transaction in self._transactions.values():
            if transaction.has_expired(now_s):
                self._end(transaction, commit=False)
                transaction.epoch += 1
        self._write_markers(now_s)
        deadlines_s = [transaction.deadline_s for transaction in self._transactions.values()]
        self._quiet_until_s = min(
            [*deadlines_s, *(marker.due_s for marker in self._markers)], default=math.inf
        )

    # ------------------------------------------------------------ topics

    def create_topic(self, spec: TopicSpec) -> None:
        with self.lock:
            self.check_running()
            existing = self._topics.get(spec.name)
            if existing is None:
                self._topics[spec.name] = spec
                self._topics_made += 1
                self._topic_ids[spec.name] = f"topic-{self._topics_made}"
                for partition in range(spec.partitions):
                    topic_partition = TopicPartition(spec.name, partition)
                    self._logs[topic_partition] = PartitionLog(topic_partition)
            elif existing.partitions != spec.partitions:
                raise KafkaConfigError(
                    f"topic {spec.name} has {existing.partitions} partitions and {spec.partitions} are "
                    "wanted: partition counts must not change"
                )

    def delete_topic(self, name: str) -> None:
        with self.lock:
            self.check_running()
            spec = self._topics.pop(name, None)
            for partition in range(spec.partitions if spec is not None else 0):
                del self._logs[TopicPartition(name, partition)]

    def grow_topic(self, name: str, partitions: int) -> None:
        """Adds partitions, as an operator does it."""
        with self.lock:
            self.check_running()
            spec = self._topics[name]
            for partition in range(spec.partitions, partitions):
                topic_partition = TopicPartition(name, partition)
                self._logs[topic_partition] = PartitionLog(topic_partition)
            self._topics[name] = replace(spec, partitions=partitions)

    def topic_state(self, name: str) -> TopicState | None:
        """None when there is no such topic."""
        with self.lock:
            self.check_running()
            spec = self._topics.get(name)
            return None if spec is None else TopicState(spec.partitions, self._topic_ids[name])

    def topic(self, name: str) -> TopicSpec | None:
        with self.lock:
            self.check_running()
            return self._topics.get(name)

    def configure_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Replaces these settings of the topic."""
        with self.lock:
            self.check_running()
            if name not in self._topics:
                raise MissingTopicError(f"there is no topic {name}")
            spec = self._topics[name]
            self._topics[name] = replace(spec, config={**spec.config, **settings})

    def log(self, topic_partition: TopicPartition) -> PartitionLog:
        """Raises MissingTopicError. Call with the lock held."""
        self.check_running()
        log = self._logs.get(topic_partition)
        if log is None:
            raise MissingTopicError(f"there is no {topic_partition.topic}[{topic_partition.partition}]")
        return log

    def await_leader(self, topic: str, timeout_s: float) -> None:
        """Waits, as a client does, while partitions have no leader. Raises LeaderChangingError."""
        deadline_s = self.clock.monotonic_s() + timeout_s
        while not self.faults.has_leader(topic, self.clock.monotonic_s()):
            remaining_s = deadline_s - self.clock.monotonic_s()
            if remaining_s <= 0:
                raise LeaderChangingError(f"{topic} has had no leader for {timeout_s} s")
            self.clock.sleep(min(_LEADER_WAIT_S, remaining_s))

    def read(
        self, topic_partition: TopicPartition, position: int, isolation: Isolation, messages_max: int
    ) -> tuple[list[Message], int]:
        with self.lock:
            log = self.log(topic_partition)
            if not self.faults.has_leader(topic_partition.topic, self.clock.monotonic_s()):
                return [], position
            messages, following = log.read(position, isolation, messages_max)
            base = self.faults.unreadable_from(topic_partition, position)
            if base is None or following <= base:
                return messages, following
            return [message for message in messages if message.offset < base], max(base, position)

    def raise_unreadable(self, positions: Mapping[TopicPartition, int]) -> None:
        """Raises UnreadableBatchError for the first of these positions that lies in an unreadable batch."""
        for topic_partition, position in positions.items():
            base = self.faults.unreadable_from(topic_partition, position)
            if base is not None and base <= position:
                topic, partition = topic_partition
                raise UnreadableBatchError(
                    f"{topic}[{partition}] cannot be read at offset {base}: a fault", topic, partition, base
                )

    def apply_retention(self) -> None:
        """Deletes what topics with a time retention no longer keep, as the broker's cleaner would."""
        with self.lock:
            self.check_running()
            for topic_partition, log in self._logs.items():
                retention_ms = int(self._topics[topic_partition.topic].config.get("retention.ms", "-1"))
                if retention_ms >= 0:
                    log.expire_before(self.clock.now_ms() - retention_ms)

    # ------------------------------------------------------------ producing

    def produce(
        self, topic_partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Outside of any transaction."""
        return self._append(topic_partition, key, value, headers, -1, Visibility.COMMITTED)

    def produce_in_transaction(
        self,
        transactional_id: str,
        epoch: int,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> int:
        """Raises FencedError | AbortableError | MessageTooLargeError | MissingTopicError."""
        with self.lock:
            log = self.log(topic_partition)
            transaction = self._transactions[transactional_id]
            transaction.check_epoch(epoch)
            producer_id = transaction.producer_id
            # As the real broker: while the partition knows an open transaction of the producer, the
            # coordinator is not asked. A message may so slip in between a leaked end and its marker, and
            # shares its fate.
            if not log.has_open(producer_id):
                transaction.check_contains(topic_partition)
                transaction.check_in_sequence(topic_partition)
            return self._append(topic_partition, key, value, headers, producer_id, Visibility.OPEN)

    def _append(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        producer_id: int,
        visibility: Visibility,
    ) -> int:
        with self.lock:
            log = self.log(topic_partition)
            size = record_size(key, value, headers)
            config = self._topics[topic_partition.topic].config
            limit = int(config.get("max.message.bytes", _MAX_MESSAGE_BYTES_DEFAULT))
            if size > limit:
                raise MessageTooLargeError(
                    f"a message of {size} bytes to {topic_partition.topic}: max.message.bytes is {limit}"
                )
            record = StoredRecord(key, value, headers, self.clock.now_ms(), producer_id, visibility)
            return log.append(record)

    # ------------------------------------------------------------ transactions

    def init_producer(self, transactional_id: str, timeout_s: float) -> int:
        """A new epoch for the id; ends what an older producer left open. Returns the epoch."""
        with self.lock:
            self.check_running()
            transaction = self._transactions.get(transactional_id)
            if transaction is None:
                transaction = Transaction(transactional_id, len(self._transactions))
                self._transactions[transactional_id] = transaction
            if transaction.partitions or transaction.offsets:
                self._end(transaction, commit=False)
            self._write_markers_of(transaction)
            transaction.epoch += 1
            transaction.out_of_sequence.clear()
            transaction.timeout_s = timeout_s
            self._quiet_until_s = min(transaction.deadline_s, self._quiet_until_s)
            return transaction.epoch

    def add_partition(self, transactional_id: str, epoch: int, topic_partition: TopicPartition) -> None:
        """Registers a partition; opens the transaction when it is the first."""
        with self.lock:
            self.log(topic_partition)
            transaction = self._open(transactional_id, epoch)
            transaction.partitions.add(topic_partition)

    def add_offsets(
        self, transactional_id: str, epoch: int, group: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        with self.lock:
            self.check_running()
            transaction = self._open(transactional_id, epoch)
            transaction.offsets.update({(group, tp): offset for tp, offset in offsets.items()})

    def _open(self, transactional_id: str, epoch: int) -> Transaction:
        transaction = self._transactions[transactional_id]
        transaction.check_epoch(epoch)
        # The real broker answers CONCURRENT_TRANSACTIONS until the last markers are out, and the client
        # waits.
        self._write_markers_of(transaction)
        transaction.open(self.clock.monotonic_s())
        self._quiet_until_s = min(transaction.deadline_s, self._quiet_until_s)
        return transaction

    def end_transaction(self, transactional_id: str, epoch: int, commit: bool) -> None:
        """Raises FencedError | AbortableError (an end that contradicts the state)."""
        with self.lock:
            self.check_running()
            transaction = self._transactions[transactional_id]
            transaction.check_epoch(epoch)
            if transaction.must_end(commit):
                self._end(transaction, commit)

    def hold_end(self, transactional_id: str, epoch: int, commit: bool) -> None:
        """Keeps an end request on its way until `deliver_late_ends`."""
        with self.lock:
            self._late_ends.append(LateEnd(transactional_id, epoch, commit))

    def deliver_late_ends(self) -> int:
        """Lets held requests arrive, and returns how many had an effect. A newer epoch makes them
        powerless.
        """
        with self.lock:
            self.check_running()
            effective = 0
            late_ends, self._late_ends = self._late_ends, []
            for late in late_ends:
                transaction = self._transactions[late.transactional_id]
                if late.epoch == transaction.epoch and (transaction.partitions or transaction.offsets):
                    self._end(transaction, late.commit)
                    effective += 1
            return effective

    def hold_message(self, message: LateMessage) -> None:
        """Keeps a message on its way until `deliver_late_messages`."""
        with self.lock:
            self._late_messages.append(message)

    def deliver_late_messages(self) -> int:
        """Lets held messages arrive, and returns how many were stored: none whose transaction is over."""
        with self.lock:
            self.check_running()
            stored = 0
            late_messages, self._late_messages = self._late_messages, []
            for message in late_messages:
                if message.known:
                    self._refuse_copy(message)
                    continue
                try:
                    self.produce_in_transaction(*message[:-1])
                except KafkaError:
                    continue
                stored += 1
            return stored

    def _refuse_copy(self, copy: LateMessage) -> None:
        """A sequence number that was seen before is not stored again; the next message may pay for it."""
        transaction = self._transactions[copy.transactional_id]
        has_open = self.log(copy.topic_partition).has_open(transaction.producer_id)
        if copy.epoch == transaction.epoch and not has_open:
            transaction.out_of_sequence.add(copy.topic_partition)

    def _end(self, transaction: Transaction, commit: bool) -> None:
        partitions, offsets = transaction.close(commit)
        if commit:
            self._group_offsets.update(offsets)
        now_s = self.clock.monotonic_s()
        for topic_partition in sorted(partitions):
            due_s = now_s + self.faults.marker_delay_s()
            self._markers.append(PendingMarker(due_s, topic_partition, transaction.producer_id, commit))
            self._quiet_until_s = min(due_s, self._quiet_until_s)
        self._write_markers(now_s)

    def _write_markers_of(self, transaction: Transaction) -> None:
        self._write_markers(math.inf, transaction.producer_id)

    def _write_markers(self, due_s: float, producer_id: int | None = None) -> None:
        waiting: list[PendingMarker] = []
        for marker in self._markers:
            if marker.due_s <= due_s and producer_id in (None, marker.producer_id):
                log = self._logs[marker.topic_partition]
                log.end_transaction(marker.producer_id, marker.commit, self.clock.now_ms())
            else:
                waiting.append(marker)
        self._markers = waiting

    def committed_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        with self.lock:
            self.check_running()
            found = {tp: self._group_offsets.get((group, tp)) for tp in topic_partitions}
            return {tp: offset for tp, offset in found.items() if offset is not None}


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes of one message as the size limits count it."""
    header_bytes = sum(len(name) + len(content) for name, content in headers)
    return len(key or b"") + len(value or b"") + header_bytes + _RECORD_OVERHEAD_BYTES
