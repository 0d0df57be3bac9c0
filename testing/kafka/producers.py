"""The client side of producing to the in-memory broker, with the habits of librdkafka that matter.

A partition is registered with the coordinator once per transaction, by the client's own memory of it: after
an end that leaked in from an earlier transaction the client does not register it again, and the broker
refuses the message.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from testing.kafka.broker import MemoryBroker, record_size
from testing.kafka.faults import ClientRequest, EndFault, MessageFault, RequestFault
from testing.kafka.under_way import LateMessage
from tidemark.stream_runtime.kafka.errors import (
    AbortableError,
    FencedError,
    KafkaError,
    KafkaUnavailableError,
    MessageTooLargeError,
    MissingTopicError,
    OutcomeUnknownError,
    ProducerFatalError,
)
from tidemark.stream_runtime.kafka.ports import Delivery, Headers, TopicPartition
from tidemark.stream_runtime.kafka.producer_state import SLOW_END_S, ProducerLifecycle, ProducerState

_NOTICED: Final = frozenset({EndFault.DUPLICATED_LATE})
_ANSWERLESS: Final = frozenset({EndFault.LOST_ANSWER, EndFault.LOST_REQUEST, EndFault.LATE_REQUEST})
_UNACKNOWLEDGED: Final = frozenset(
    {MessageFault.LOST_REQUEST, MessageFault.LOST_ANSWER, MessageFault.LATE_REQUEST}
)


class MemoryTransactionalProducer:
    def __init__(
        self, broker: MemoryBroker, transactional_id: str, timeout_s: float, message_bytes_max: int
    ) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._timeout_s = timeout_s
        self._message_bytes_max = message_bytes_max
        self._lifecycle = ProducerLifecycle(transactional_id)
        self._epoch = -1
        self._doubtful = False
        self._registered: set[TopicPartition] = set()
        self._has_offsets = False
        self._noticed = False
        self._unsettled = False
        self._queue: list[tuple[Delivery, bytes | None, bytes | None, Headers]] = []

    @property
    def transactional_id(self) -> str:
        return self._transactional_id

    @property
    def doubtful(self) -> bool:
        return self._doubtful or self._lifecycle.state in (ProducerState.SPENT, ProducerState.CLOSED)

    def init(self, timeout_s: float = 30.0) -> None:
        self._lifecycle.require("init", ProducerState.UNINITIALISED)
        self._request(ClientRequest.INIT, timeout_s, self._take_id)
        self._lifecycle.to(ProducerState.READY)

    def _take_id(self) -> None:
        self._epoch = self._broker.init_producer(self._transactional_id, self._timeout_s)

    def _request(self, request: ClientRequest, timeout_s: float, call: Callable[[], None]) -> None:
        """One request to the coordinator, with the fault that was ordered for it."""
        fault = self._broker.faults.take_request(self._transactional_id, request)
        if fault is RequestFault.UNANSWERED:
            self._broker.clock.sleep(timeout_s)
            raise KafkaUnavailableError(
                f"{request.value} of {self._transactional_id} got no answer in {timeout_s} s"
            )
        call()
        if fault is RequestFault.REPEATED:
            self._noticed = True
            call()

    def begin(self) -> None:
        self._lifecycle.require("begin", ProducerState.READY)
        self._registered = set()
        self._has_offsets = False
        self._noticed = self._unsettled = False
        self._queue = []
        self._lifecycle.to(ProducerState.OPEN)

    def produce(
        self,
        topic_partition: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> Delivery:
        self._lifecycle.require("produce", ProducerState.OPEN)
        if record_size(key, value, headers) > self._message_bytes_max:
            raise MessageTooLargeError(
                f"a message of {record_size(key, value, headers)} bytes to {topic_partition.topic}: "
                f"message.max.bytes is {self._message_bytes_max}"
            )
        delivery = Delivery(topic_partition)
        self._queue.append((delivery, key, value, headers))
        return delivery

    def flush(self, timeout_s: float = 30.0) -> None:
        self._lifecycle.require("flush", ProducerState.OPEN)
        queue, self._queue = self._queue, []
        worst: KafkaError | None = None
        for delivery, key, value, headers in queue:
            if isinstance(worst, FencedError):
                delivery.error = worst
                continue
            try:
                self._deliver(delivery, key, value, headers, timeout_s)
            except KafkaError as error:
                delivery.error = error
                worst = error
        if worst is not None:
            raise self._fail(worst)

    def _deliver(
        self, delivery: Delivery, key: bytes | None, value: bytes | None, headers: Headers, timeout_s: float
    ) -> None:
        broker, topic_partition = self._broker, delivery.topic_partition
        topic = topic_partition.topic
        broker.await_leader(topic, timeout_s)
        if topic_partition not in self._registered:
            self._request(
                ClientRequest.ADD_PARTITIONS,
                timeout_s,
                lambda: broker.add_partition(self._transactional_id, self._epoch, topic_partition),
            )
            self._registered.add(topic_partition)
        message = (self._transactional_id, self._epoch, topic_partition, key, value, headers)
        fault = broker.faults.take_message(topic)
        if fault in (MessageFault.LATE_REQUEST, MessageFault.DUPLICATED_LATE):
            broker.hold_message(LateMessage(*message, known=fault is MessageFault.DUPLICATED_LATE))
        if fault not in (MessageFault.LOST_REQUEST, MessageFault.LATE_REQUEST):
            offset = broker.produce_in_transaction(*message)
        if fault in _UNACKNOWLEDGED:
            self._unsettled = True
            broker.clock.sleep(timeout_s)
            raise KafkaUnavailableError(f"a message to {topic} was not acknowledged in time")
        self._noticed = self._noticed or fault is MessageFault.REPEATED
        delivery.acknowledged_offset = offset

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: str, timeout_s: float = 10.0
    ) -> None:
        self._lifecycle.require("send_offsets", ProducerState.OPEN)
        broker = self._broker
        try:
            self._request(
                ClientRequest.ADD_OFFSETS,
                timeout_s,
                lambda: broker.add_offsets(self._transactional_id, self._epoch, group, offsets),
            )
        except KafkaError as error:
            raise self._fail(error) from None
        self._has_offsets = True

    def commit(self, timeout_s: float = 10.0) -> None:
        self._lifecycle.require("commit", ProducerState.OPEN)
        if self._queue:
            self.flush(timeout_s)
        self._end(commit=True, timeout_s=timeout_s)

    def abort(self, timeout_s: float = 10.0) -> None:
        self._lifecycle.require("abort", ProducerState.OPEN, ProducerState.ABORTABLE)
        self._queue = []
        self._end(commit=False, timeout_s=timeout_s)

    def _end(self, commit: bool, timeout_s: float) -> None:
        if not self._registered and not self._has_offsets:
            self._doubtful = self._doubtful or self._noticed
            self._lifecycle.to(ProducerState.READY)
            return
        broker = self._broker
        fault = broker.faults.take_end(self._transactional_id)
        started_s = broker.clock.monotonic_s()
        if fault in (
            EndFault.DUPLICATED_LATE,
            EndFault.DUPLICATED_LATE_UNNOTICED,
            EndFault.LATE_REQUEST,
        ):
            broker.hold_end(self._transactional_id, self._epoch, commit)
        if fault is EndFault.SLOW:
            broker.clock.sleep(SLOW_END_S * 1.5)
        try:
            if fault not in (EndFault.LOST_REQUEST, EndFault.LATE_REQUEST):
                broker.end_transaction(self._transactional_id, self._epoch, commit)
                if self._unsettled:
                    # librdkafka takes a new epoch after an abort that left messages without an answer.
                    self._take_id()
        except KafkaUnavailableError:
            fault = EndFault.LOST_REQUEST
        except KafkaError as error:
            raise self._fail(error, fatal=not commit) from None
        if fault in _ANSWERLESS:
            broker.clock.sleep(timeout_s)
            verb = "commit" if commit else "abort"
            raise self._fail(
                OutcomeUnknownError(f"{verb} of {self._transactional_id} got no answer in {timeout_s} s"),
                fatal=True,
            )
        slow = broker.clock.monotonic_s() - started_s > SLOW_END_S
        self._doubtful = self._doubtful or slow or self._noticed or fault in _NOTICED
        self._lifecycle.to(ProducerState.READY)

    def close(self) -> None:
        self._lifecycle.to(ProducerState.CLOSED)

    def _fail(self, error: KafkaError, fatal: bool = False) -> KafkaError:
        """What the real client makes of an error: a kind the port promises, and doubt."""
        if isinstance(error, MessageTooLargeError | KafkaUnavailableError):
            # Measured: after a refused size the next transaction of this producer fails as well; and a
            # message that timed out may still arrive.
            self._doubtful = True
        if isinstance(error, KafkaUnavailableError):
            error = AbortableError(str(error))
        elif isinstance(error, MissingTopicError):
            error = MissingTopicError(f"{error}: create the topics before the first transaction")
        fatal = fatal or isinstance(error, FencedError | ProducerFatalError)
        return self._lifecycle.fail(error, fatal)


class MemoryPlainProducer:
    def __init__(self, broker: MemoryBroker, message_bytes_max: int) -> None:
        self._broker = broker
        self._message_bytes_max = message_bytes_max
        self._failure: KafkaError | None = None

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: Headers = (),
    ) -> None:
        if record_size(key, value, headers) > self._message_bytes_max:
            raise MessageTooLargeError(
                f"a message of {record_size(key, value, headers)} bytes to {topic}: "
                f"message.max.bytes is {self._message_bytes_max}"
            )
        try:
            if partition < 0:
                partition = self._choose_partition(topic, key)
            self._broker.produce(TopicPartition(topic, partition), key, value, headers)
        except KafkaError as error:
            self._failure = self._failure or error

    def _choose_partition(self, topic: str, key: bytes | None) -> int:
        """librdkafka's default partitioner, consistent_random: CRC32 of the key; any for an empty one."""
        spec = self._broker.topic(topic)
        if spec is None:
            raise MissingTopicError(f"there is no topic {topic}")
        return zlib.crc32(key) % spec.partitions if key else self._broker.random.randrange(spec.partitions)

    def produce_batch(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1
    ) -> int:
        count = 0
        for key, value in records:
            self.produce(topic, value, key, partition)
            count += 1
        return count

    def flush(self, timeout_s: float = 30.0) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        return None
