"""What can go wrong between us and a broker, by what the caller must do.

Sources: Kafka's behaviour as observed with Kafka 4.4.0 and librdkafka 2.16 (ARCHITECTURE.md, "What
counts").
"""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class KafkaError(StreamRuntimeError):
    """Base of all broker errors."""

    kind = ErrorKind.RETRYABLE


class FencedError(KafkaError):
    """This producer's epoch is over: a newer producer took the transactional id, or the broker timed the
    transaction out.

    The producer is dead. Ask the coordinator whether the lease still stands before giving up for good.
    """

    kind = ErrorKind.FENCED


class AbortableError(KafkaError):
    """The open transaction cannot commit: call `abort()`, replace the producer when `doubtful`, and claim
    anew.
    """

    kind = ErrorKind.RETRYABLE


class ProducerFatalError(KafkaError):
    """The producer is dead, though nobody took its id; the transaction will not commit. Make a new
    producer.
    """

    kind = ErrorKind.RETRYABLE


class OutcomeUnknownError(KafkaError):
    """Whether the transaction committed is not known; it may have.

    Make a new producer with the same transactional id, call `init()`, then read the ledger's end: it tells.
    """

    kind = ErrorKind.CONFLICT


class KafkaUnavailableError(KafkaError):
    """The broker did not answer in time; the same call may succeed later."""

    kind = ErrorKind.RETRYABLE


class LeaderChangingError(KafkaUnavailableError):
    """A partition's leader is being elected, or a broker that started knows older leaders only: it passes."""


class OffsetOutOfRangeError(KafkaError):
    """The wanted offset was deleted or does not exist; the reader was not moved anywhere else."""

    kind = ErrorKind.CORRUPT


class UnreadableBatchError(KafkaError):
    """The broker handed out a record batch that the client cannot read: its compression is broken or unpacks
    to more than the client takes, or its checksum does not fit. The reader stays where it was, its other
    partitions go on; asked again it may fail again.

    ``base_offset``: where the batch begins, by which it is told from the next one; -1: not known.
    """

    kind = ErrorKind.CORRUPT

    def __init__(self, text: str, topic: str, partition: int, base_offset: int) -> None:
        super().__init__(text)
        self.topic, self.partition, self.base_offset = topic, partition, base_offset


class MissingTopicError(KafkaError):
    """A topic or partition that should exist does not."""

    kind = ErrorKind.INVALID


class MessageTooLargeError(AbortableError):
    """A message exceeds the producer's or the topic's limit. Abort, replace the producer, send smaller
    messages.
    """

    kind = ErrorKind.INVALID


class KafkaConfigError(KafkaError):
    """The broker, or librdkafka, refuses a setting; the message names it and says what to change."""

    kind = ErrorKind.INVALID
