"""The port `TransactionalProducer` on librdkafka, whose transaction protocol has no epoch per transaction.

This module keeps four rules, each of which was seen to matter:

- A delivery callback only appends to a list.
- A `SystemError` from `flush` is a fatal error that librdkafka reported in a callback.
- A commit or abort that timed out has an unknown outcome, and the producer is spent.
- A message that the broker found too large, a lost connection, and a slow or failed commit or abort make the
  producer doubtful.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.translate import client_error, translate
from tidemark.stream_runtime.kafka.errors import (
    AbortableError,
    FencedError,
    KafkaConfigError,
    KafkaError,
    KafkaUnavailableError,
    MessageTooLargeError,
    OutcomeUnknownError,
    ProducerFatalError,
)
from tidemark.stream_runtime.kafka.ports import Delivery, Headers, Isolation, TopicPartition
from tidemark.stream_runtime.kafka.producer_state import SLOW_END_S, ProducerLifecycle, ProducerState
from tidemark.stream_runtime.retry import Deadline

_logger = logging.getLogger("tidemark.kafka")
_QUEUE_FULL_WAIT_S: Final = 0.05
_QUEUE_FULL_WAITS_MAX: Final = 600

_REASON_S: Final = 1.0
# What librdkafka reports for messages that it gives up because the transaction has failed.
_PURGED: Final = frozenset({ClientError._PURGE_QUEUE, ClientError._PURGE_INFLIGHT})

_Report = tuple[Delivery, Any, int]


class ConfluentTransactionalProducer:
    """Implements `TransactionalProducer`."""

    def __init__(self, settings: ClientSettings, transactional_id: str, clock: Clock) -> None:
        self._settings = settings
        self._transactional_id = transactional_id
        self._clock = clock
        self._log = ConnectionLog(transactional_id)
        self._lifecycle = ProducerLifecycle(transactional_id)
        self._doubtful = False
        self._losses_at_begin = 0
        self._reports: list[_Report] = []
        self._group_metadata: dict[str, Any] = {}
        try:
            self._producer: Any = Producer(
                settings.transactional_producer(transactional_id), logger=self._log
            )
        except KafkaException as error:
            raise KafkaConfigError(f"kafka section: {client_error(error).str()}") from None

    @property
    def transactional_id(self) -> str:
        return self._transactional_id

    @property
    def doubtful(self) -> bool:
        return self._doubtful or self._lifecycle.state in (ProducerState.SPENT, ProducerState.CLOSED)

    def init(self, timeout_s: float = 30.0) -> None:
        self._lifecycle.require("init", ProducerState.UNINITIALISED)
        deadline = Deadline(self._clock, timeout_s)
        self._connect(timeout_s / 2)
        try:
            self._producer.init_transactions(deadline.remaining_s)
        except KafkaException as error:
            translated = translate(client_error(error), f"init of {self._transactional_id}")
            fatal = isinstance(translated, FencedError | ProducerFatalError | KafkaConfigError)
            raise self._lifecycle.fail(translated, fatal) from None
        self._lifecycle.to(ProducerState.READY)

    def _connect(self, timeout_s: float) -> None:
        """Waits for the cluster's metadata before `init_transactions`.

        Without metadata librdkafka often knows no broker that it could ask for the transaction coordinator,
        and tries again 0.5 s later: `init` took 0.51 s about every other time, and 0.03 s with metadata.
        Metadata of a single topic is not enough.
        """
        try:
            self._producer.list_topics(timeout=timeout_s)
        except KafkaException as error:
            _logger.info("no metadata before init: %s", client_error(error).str())

    def begin(self) -> None:
        self._lifecycle.require("begin", ProducerState.READY)
        self._producer.poll(0)
        self._losses_at_begin = self._log.losses
        self._reports = []
        self._call("begin", lambda: self._producer.begin_transaction())
        self._lifecycle.to(ProducerState.OPEN)

    def produce(
        self,
        topic_partition: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> Delivery:
        self._lifecycle.require("produce", ProducerState.OPEN)
        delivery = Delivery(topic_partition)
        reports = self._reports

        def report(error: Any, message: Any) -> None:
            # Nothing but append: an exception here, or reading the error, would hide a fatal error from
            # flush().
            reports.append((delivery, error, -1 if message is None else message.offset()))

        for _ in range(_QUEUE_FULL_WAITS_MAX):
            try:
                self._producer.produce(
                    topic_partition.topic,
                    value,
                    key,
                    topic_partition.partition,
                    headers=list(headers),
                    on_delivery=report,
                )
                return delivery
            except BufferError:
                self._producer.poll(_QUEUE_FULL_WAIT_S)
            except KafkaException as error:
                refused = client_error(error)
                translated = translate(refused, f"message to {topic_partition.topic}")
                if isinstance(translated, MessageTooLargeError):
                    raise translated from None
                if refused.code() == ClientError._STATE:
                    # The transaction has failed since the last message.
                    translated = self._error_of_transaction() or translated
                raise self._fail(translated) from None
        raise self._fail(
            KafkaUnavailableError("the producer's queue stays full: the broker acknowledges no message")
        )

    def flush(self, timeout_s: float = 30.0) -> None:
        self._lifecycle.require("flush", ProducerState.OPEN)
        try:
            left = self._producer.flush(timeout_s)
        except SystemError:
            raise self._hidden_fatal_error() from None
        except KafkaException as error:
            raise self._fail(translate(client_error(error), f"flush of {self._transactional_id}")) from None
        is_purged = any(error is not None and error.code() in _PURGED for _, error, _ in self._reports)
        worst = self._settle()
        if worst is None and left:
            worst = KafkaUnavailableError(f"{left} messages were not acknowledged in {timeout_s} s")
        if is_purged:
            worst = self._error_of_transaction() or worst
        if worst is not None:
            raise self._fail(worst)

    def _error_of_transaction(self) -> KafkaError | None:
        """Why the transaction has failed, which reports of messages that were never sent do not say. Such a
        transaction has to be aborted, and each call but that one answers with the reason at once. None if it
        is another.
        """
        try:
            self._producer.commit_transaction(_REASON_S)
        except KafkaException as error:
            translated = translate(client_error(error), f"flush of {self._transactional_id}")
            return translated if isinstance(translated, KafkaConfigError) else None
        except SystemError:
            return None
        return self._unknown("flush", "its messages were not sent, and it can be committed")

    def _settle(self) -> KafkaError | None:
        """Puts every report into its delivery; returns the first error, or FencedError if there is one."""
        reports = list(self._reports)
        self._reports.clear()
        worst: KafkaError | None = None
        for delivery, error, offset in reports:
            if error is not None:
                delivery.error = translate(error, f"message to {delivery.topic_partition.topic}")
                if worst is None or isinstance(delivery.error, FencedError):
                    worst = delivery.error
            elif offset >= 0:
                delivery.acknowledged_offset = offset
        return worst

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: str, timeout_s: float = 10.0
    ) -> None:
        self._lifecycle.require("send_offsets", ProducerState.OPEN)
        positions = [ClientTopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        if not positions:
            return
        metadata = self._metadata_of(group)
        self._call(
            "send_offsets", lambda: self._producer.send_offsets_to_transaction(positions, metadata, timeout_s)
        )

    def _metadata_of(self, group: str) -> Any:
        """Metadata of a consumer group without a member, which the broker accepts from every producer. So it
        fences nobody; the transactional id does.
        """
        if group not in self._group_metadata:
            settings = self._settings.partition_reader(Isolation.READ_COMMITTED, group)
            consumer = Consumer(settings, logger=ConnectionLog(f"group {group}"))
            self._group_metadata[group] = consumer.consumer_group_metadata()
            consumer.close()
        return self._group_metadata[group]

    def commit(self, timeout_s: float = 10.0) -> None:
        self._lifecycle.require("commit", ProducerState.OPEN)
        self._end("commit", timeout_s)

    def abort(self, timeout_s: float = 10.0) -> None:
        self._lifecycle.require("abort", ProducerState.OPEN, ProducerState.ABORTABLE)
        self._end("abort", timeout_s)

    def _end(self, verb: str, timeout_s: float) -> None:
        started_s = self._clock.monotonic_s()
        end = self._producer.commit_transaction if verb == "commit" else self._producer.abort_transaction
        try:
            end(timeout_s)
            self._producer.poll(0)
        except SystemError:
            raise self._unknown(verb, "fatal error while delivery reports were served") from None
        except KafkaException as error:
            raise self._end_error(verb, error) from None
        slow = self._clock.monotonic_s() - started_s > SLOW_END_S
        if slow or self._log.losses > self._losses_at_begin:
            self._doubtful = True
        self._settle()
        self._lifecycle.to(ProducerState.READY)

    def _end_error(self, verb: str, exception: Any) -> KafkaError:
        error = client_error(exception)
        translated = translate(error, f"{verb} of {self._transactional_id}")
        if isinstance(translated, FencedError):
            return self._fail(translated)
        if verb == "commit" and error.txn_requires_abort():
            return self._fail(AbortableError(str(translated)))
        return self._unknown(verb, str(translated))

    def _unknown(self, verb: str, why: str) -> KafkaError:
        error = OutcomeUnknownError(
            f"{verb} of {self._transactional_id} has no known outcome ({why}): "
            "make a new producer, then read the ledger's end"
        )
        return self._lifecycle.fail(error, fatal=True)

    def _hidden_fatal_error(self) -> KafkaError:
        """The fatal error behind a SystemError of flush(). The next call of the client reports it."""
        try:
            self._producer.abort_transaction(1.0)
        except KafkaException as error:
            translated = translate(client_error(error), f"flush of {self._transactional_id}")
            if isinstance(translated, FencedError):
                return self._fail(translated)
        except SystemError:
            pass
        return self._fail(
            ProducerFatalError(f"flush of {self._transactional_id}: the Kafka client had a fatal error")
        )

    def _call(self, name: str, call: Any) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._fail(translate(client_error(error), f"{name} of {self._transactional_id}")) from None

    def _fail(self, error: KafkaError) -> KafkaError:
        """Notes the error in the producer's state and returns the one to raise. A message that is too large
        and a time-out make the producer doubtful; a time-out becomes an AbortableError.
        """
        if isinstance(error, MessageTooLargeError | KafkaUnavailableError):
            self._doubtful = True
        if isinstance(error, KafkaUnavailableError):
            error = AbortableError(str(error))
        return self._lifecycle.fail(error, fatal=isinstance(error, FencedError | ProducerFatalError))

    def close(self) -> None:
        """Drops the client. librdkafka's own close would try to end an open transaction; dropping it does
        not. The next producer's `init()` ends it.
        """
        self._lifecycle.to(ProducerState.CLOSED)
        self._producer = None
