"""The port `PlainProducer` (idempotent, without transactions) on a real broker."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.translate import client_error, translate
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaUnavailableError
from tidemark.stream_runtime.kafka.ports import Headers

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
