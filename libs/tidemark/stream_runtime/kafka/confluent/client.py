"""The ports `KafkaClient` and `PlainProducer` (idempotent, without transactions) on a real cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from tidemark.config.model import TableConfigFile
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.kafka.confluent.admin import ConfluentAdmin
from tidemark.stream_runtime.kafka.confluent.batch_header import BatchOffsets, batch_offsets
from tidemark.stream_runtime.kafka.confluent.batch_probe import BatchProbe, last_of_batch
from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog
from tidemark.stream_runtime.kafka.confluent.consumer import ConfluentPartitionReader
from tidemark.stream_runtime.kafka.confluent.inspection import ClusterInspection
from tidemark.stream_runtime.kafka.confluent.range_reader import ConfluentRangeReader
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.transactional_producer import ConfluentTransactionalProducer
from tidemark.stream_runtime.kafka.confluent.translate import client_error, translate
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaUnavailableError
from tidemark.stream_runtime.kafka.ports import Headers, Isolation, TopicPartition

_READER_GROUP: Final = "tidemark-reader"
_PROBE_GROUP: Final = "tidemark-probe"


class ConfluentKafkaClient:
    """Makes Kafka clients with the settings of one cluster. It has no connection itself, so it may be
    pickled. The clients that it makes do not survive a fork.
    """

    def __init__(
        self,
        section: Mapping[str, str],
        clock: Clock | None = None,
        message_bytes_max: int = 16 << 20,
        transaction_timeout_ms: int = 10_000,
    ) -> None:
        """`section` is the section `kafka:` of the configuration, with the addresses of real brokers. Raises
        KafkaConfigError.
        """
        self._settings = ClientSettings(dict(section), message_bytes_max, transaction_timeout_ms)
        self._clock = clock or SystemClock()

    @classmethod
    def from_config(
        cls, config: TableConfigFile, bootstrap_servers: str | None = None, clock: Clock | None = None
    ) -> ConfluentKafkaClient:
        """The client for a table's configuration. `bootstrap_servers` replaces the configured ones, for an
        embedded broker whose address is known only once it runs.
        """
        kafka = (
            config.kafka
            if bootstrap_servers is None
            else config.kafka.with_bootstrap_servers(bootstrap_servers)
        )
        limits = config.limits
        return cls(kafka.settings, clock, limits.message_bytes, limits.transaction_timeout_ms)

    def producer(self, transactional_id: str) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(self._settings, transactional_id, self._clock)

    def plain_producer(self) -> ConfluentPlainProducer:
        return ConfluentPlainProducer(self._settings)

    def partition_reader(
        self,
        isolation: Isolation = Isolation.READ_COMMITTED,
        group: str | None = None,
        follows: bool = False,
    ) -> ConfluentPartitionReader:
        return ConfluentPartitionReader(
            self._settings, isolation, group or _READER_GROUP, self._clock, follows
        )

    def range_reader(self) -> ConfluentRangeReader:
        return ConfluentRangeReader(self._settings, self._clock)

    def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._settings, self._clock)

    def last_of_batch(self, topic_partition: TopicPartition, offset: int) -> int:
        admin = self.admin()
        settings = self._settings.one_batch_reader(_PROBE_GROUP)

        def header(at: int) -> BatchOffsets:
            return batch_offsets(settings, admin.leader(topic_partition), topic_partition, at)

        try:
            end = admin.end_offset(topic_partition, Isolation.READ_UNCOMMITTED)
            with BatchProbe(settings, topic_partition) as probe:
                return last_of_batch(probe.ask, offset, end, header)
        finally:
            admin.close()

    def careful_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """librdkafka settings for consumers of committed records in a child process: for one that fetches few
        record batches at a time, and for one that fetches a single batch.
        """
        few = self._settings.few_batches_reader(_READER_GROUP)
        return few, self._settings.one_batch_reader(_READER_GROUP, Isolation.READ_COMMITTED)

    def inspection(self) -> ClusterInspection:
        """A client that reads facts about the cluster, for `tidemark doctor`."""
        return ClusterInspection(self._settings)


_BATCH_MESSAGES: Final = 10_000
_QUEUE_FULL_WAIT_S: Final = 0.05
_QUEUE_FULL_WAITS_MAX: Final = 1_200


class ConfluentPlainProducer:
    """Implements `PlainProducer`. Raises KafkaUnavailableError if its queue stays full for a minute."""

    def __init__(self, settings: ClientSettings) -> None:
        self._failure: Any = None
        self._log = ConnectionLog("plain producer")
        try:
            self._producer: Any = Producer(settings.plain_producer(), logger=self._log)
        except KafkaException as error:
            raise KafkaConfigError(f"kafka section: {client_error(error).str()}") from None

    def _report(self, error: Any, _message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: Headers = (),
    ) -> None:
        for _ in range(_QUEUE_FULL_WAITS_MAX):
            try:
                self._producer.produce(
                    topic, value, key, partition, headers=list(headers), on_delivery=self._report
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(_QUEUE_FULL_WAIT_S)
            except KafkaException as error:
                raise translate(client_error(error), f"message to {topic}") from None
        raise self._queue_stays_full(topic)

    def produce_batch(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1
    ) -> int:
        count = 0
        iterator = iter(records)
        while batch := [{"key": key, "value": value} for key, value in islice(iterator, _BATCH_MESSAGES)]:
            self._queue_batch(topic, batch, partition)
            count += len(batch)
        return count

    def _queue_batch(self, topic: str, batch: list[dict[str, Any]], partition: int) -> None:
        """Queues all messages. librdkafka queues as many as it has room for and marks the others with
        `_error`; these are queued again after a short wait.
        """
        for _ in range(_QUEUE_FULL_WAITS_MAX):
            queued = self._producer.produce_batch(topic, batch, partition, self._report)
            self._producer.poll(0)
            if queued == len(batch):
                return
            batch = [self._without_error(topic, message) for message in batch if "_error" in message]
            self._producer.poll(_QUEUE_FULL_WAIT_S)
        raise self._queue_stays_full(topic)

    @staticmethod
    def _queue_stays_full(topic: str) -> KafkaUnavailableError:
        return KafkaUnavailableError(
            f"the producer's queue stays full: the broker acknowledges no message to {topic}"
        )

    def _without_error(self, topic: str, message: dict[str, Any]) -> dict[str, Any]:
        error = message.pop("_error")
        if error.name() != "_QUEUE_FULL":
            raise translate(error, f"message to {topic}")
        return message

    def flush(self, timeout_s: float = 30.0) -> None:
        left = self._producer.flush(timeout_s)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise translate(failure, "message of a plain producer")
        if left:
            raise KafkaUnavailableError(f"{left} messages were not acknowledged in {timeout_s} s")

    def close(self) -> None:
        """Drops the client and its connection; messages that were not flushed are lost."""
        self._producer = None
