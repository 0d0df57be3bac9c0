"""Errors of Kafka clients, one class for each thing that the caller must do.

They follow the behaviour of Kafka 4.4.0 and librdkafka 2.16 that docs/kafka-behaviour.md describes.
"""

from __future__ import annotations

from typing import Final

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class KafkaError(StreamRuntimeError):
    """Base of all broker errors."""

    kind = ErrorKind.RETRYABLE


class FencedError(KafkaError):
    """The producer is fenced: a newer producer has its transactional id, or the broker ended the transaction
    after its time-out.

    The producer can do nothing any more. Ask the coordinator whether the lease still holds: if so, the
    broker's time-out was the cause, and a new producer helps.
    """

    kind = ErrorKind.FENCED


class AbortableError(KafkaError):
    """The open transaction cannot be committed. Call `abort()`, replace the producer if it is `doubtful`, and
    claim the lanes anew.
    """

    kind = ErrorKind.RETRYABLE


class ProducerFatalError(KafkaError):
    """librdkafka reports a fatal error other than fencing. The transaction will not be committed. Make a new
    producer.
    """

    kind = ErrorKind.RETRYABLE


class OutcomeUnknownError(KafkaError):
    """It is not known whether the transaction was committed.

    Make a new producer with the same transactional id and call `init()`, which ends the transaction if it is
    open. Then read the ledger to its end: the transaction's entry is there if it was committed.
    """

    kind = ErrorKind.CONFLICT


class KafkaUnavailableError(KafkaError):
    """The broker did not answer in time; the same call may succeed later."""

    kind = ErrorKind.RETRYABLE


class LeaderChangingError(KafkaUnavailableError):
    """A partition has no leader now, or a broker that was started again knows only former leaders. Both end
    within seconds.
    """


class OffsetOutOfRangeError(KafkaError):
    """The offset was deleted or does not exist. The reader stays at its position: it never jumps."""

    kind = ErrorKind.CORRUPT


class UnreadableBatchError(KafkaError):
    """The client cannot read a record batch of the broker: its compression is broken, it unpacks to more than
    the client takes, or its checksum is wrong.

    The reader stays before the batch, and may fail again at the next poll; its other partitions go on.
    ``base_offset`` is the offset at which the batch begins, -1 if it is not known. It tells two unreadable
    batches apart.
    """

    kind = ErrorKind.CORRUPT

    def __init__(self, text: str, topic: str, partition: int, base_offset: int) -> None:
        super().__init__(text)
        self.topic, self.partition, self.base_offset = topic, partition, base_offset


class MissingTopicError(KafkaError):
    """A topic or partition that should exist does not."""

    kind = ErrorKind.INVALID


class MessageTooLargeError(AbortableError):
    """A message is larger than the producer's or the topic's limit. Abort, replace the producer, and send
    smaller messages.
    """

    kind = ErrorKind.INVALID


class KafkaConfigError(KafkaError):
    """The broker or librdkafka refuses a setting. The text names the setting and what to change."""

    kind = ErrorKind.INVALID


REFUSED: Final = (KafkaConfigError, MissingTopicError)
"""What Kafka refuses until something outside of Tidemark changes: a right, a login, a topic.

At a start that is a mistake to tell at once. Of a process that has worked before, it may pass by itself:
somebody sets the ACLs of a user anew, an authorizer does not answer, a broker that starts knows no topic for
a moment.
"""
