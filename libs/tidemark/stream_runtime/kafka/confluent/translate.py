"""Translates librdkafka's errors into ours, which are grouped by what the caller must do."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError as ClientError

from tidemark.stream_runtime.kafka.errors import (
    AbortableError,
    FencedError,
    KafkaConfigError,
    KafkaError,
    KafkaUnavailableError,
    LeaderChangingError,
    MessageTooLargeError,
    MissingTopicError,
    OffsetOutOfRangeError,
    ProducerFatalError,
    UnreadableBatchError,
)

_FENCED: Final = frozenset(
    {
        ClientError._FENCED,
        ClientError.INVALID_PRODUCER_EPOCH,
        ClientError.PRODUCER_FENCED,
    }
)
_MISSING: Final = frozenset(
    {
        ClientError.UNKNOWN_TOPIC_OR_PART,
        ClientError._UNKNOWN_TOPIC,
        ClientError._UNKNOWN_PARTITION,
    }
)
_OUT_OF_RANGE: Final = frozenset({ClientError.OFFSET_OUT_OF_RANGE, ClientError._AUTO_OFFSET_RESET})
_REFUSED_SETTING: Final = frozenset(
    {
        ClientError._INVALID_ARG,
        ClientError.INVALID_CONFIG,
        ClientError.INVALID_PARTITIONS,
        ClientError.INVALID_TRANSACTION_TIMEOUT,
        ClientError.POLICY_VIOLATION,
    }
)
UNKNOWN_USER: Final = frozenset(
    {ClientError._AUTHENTICATION, ClientError.SASL_AUTHENTICATION_FAILED, ClientError._SSL}
)
_NOT_ALLOWED: Final = frozenset(
    {
        ClientError.CLUSTER_AUTHORIZATION_FAILED,
        ClientError.GROUP_AUTHORIZATION_FAILED,
        ClientError.TOPIC_AUTHORIZATION_FAILED,
        ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# These were seen for a second or two after a broker was started again.
_LEADER_CHANGING: Final = frozenset(
    {
        ClientError.FENCED_LEADER_EPOCH,
        ClientError.LEADER_NOT_AVAILABLE,
        ClientError.NOT_LEADER_FOR_PARTITION,
        ClientError.OFFSET_NOT_AVAILABLE,
        ClientError.UNKNOWN_LEADER_EPOCH,
        # "No leaders found": a topic that was just made is not in the client's metadata yet.
        ClientError._NOENT,
    }
)
_UNREADABLE: Final = frozenset(
    {
        ClientError._BAD_COMPRESSION,
        ClientError._BAD_MSG,
        ClientError._UNDERFLOW,
        ClientError.INVALID_MSG,
        ClientError.INVALID_MSG_SIZE,
    }
)
# Errors of a single connection; the text has the reason.
UNREACHED: Final = frozenset({ClientError._RESOLVE, ClientError._TRANSPORT})
UNAVAILABLE: Final = frozenset(
    {
        ClientError._ALL_BROKERS_DOWN,
        ClientError._MSG_TIMED_OUT,
        ClientError._RESOLVE,
        ClientError._TIMED_OUT,
        ClientError._TIMED_OUT_QUEUE,
        ClientError._TRANSPORT,
        # Fewer brokers than replicas. One that has just started, or whose heartbeats come late, does not
        # count for a while ("all brokers are currently fenced").
        ClientError.INVALID_REPLICATION_FACTOR,
        ClientError.REQUEST_TIMED_OUT,
    }
)


def translate(error: ClientError, doing: str) -> KafkaError:
    """Our error for one of librdkafka's. `doing` begins the text: the operation, and the topic or id."""
    code = error.code()
    text = f"{doing}: {error.name()}: {error.str()}"
    if code in _FENCED:
        return FencedError(text)
    if code in _NOT_ALLOWED:
        # Also where it ends the transaction or the producer: either is replaced after any error.
        return KafkaConfigError(
            f"{text}: this user lacks an ACL: docs/security.md lists those that each service needs"
        )
    if error.fatal():
        return ProducerFatalError(text)
    if code == ClientError.MSG_SIZE_TOO_LARGE:
        return MessageTooLargeError(
            f"{text}: the topic takes less than limits.message_bytes. Start the coordinator anew, which sets "
            "the topic's max.message.bytes (where it may not, its log says so), or lower limits.message_bytes"
        )
    if code in _MISSING:
        return MissingTopicError(f"{text}: create the topics before the first transaction")
    if error.txn_requires_abort():
        return AbortableError(text)
    if code in _OUT_OF_RANGE:
        return OffsetOutOfRangeError(text)
    if code in UNKNOWN_USER:
        return KafkaConfigError(
            f"{text}: check kafka.security.protocol, sasl.mechanism, sasl.username, sasl.password and ssl.* "
            "against the broker's"
        )
    if code in _REFUSED_SETTING:
        return KafkaConfigError(
            f"{text}: see the kafka section of the configuration and the broker's settings"
        )
    if code in _LEADER_CHANGING:
        return LeaderChangingError(text)
    if code in UNAVAILABLE or error.retriable():
        return KafkaUnavailableError(text)
    return KafkaError(text)


def translate_read(event: Any, error: ClientError) -> KafkaError:
    """Our error for one that a consumer returned as an event of a partition."""
    topic, partition = event.topic(), event.partition()
    if error.code() in _UNREADABLE and topic is not None:
        base = event.offset()
        text = f"{topic}[{partition}] cannot be read at offset {base}: {error.name()}: {error.str()}"
        return UnreadableBatchError(text, topic, partition, -1 if base is None or base < 0 else base)
    return translate(error, f"reading {topic}[{partition}]")


def client_error(exception: Any) -> ClientError:
    """The `confluent_kafka.KafkaError` inside a `KafkaException`."""
    error: ClientError = exception.args[0]
    return error
