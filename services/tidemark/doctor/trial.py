"""Tries out transactions on a topic of its own, which is deleted afterwards.

Committed records have to be read, aborted ones must not be. The topic's name starts with the table's name,
like those of Tidemark's own topics, so ACLs with that prefix apply to it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.doctor.checks import Finding, fails, ok, warning
from tidemark.doctor.places import SKEW_MS_MAX
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    KafkaClient,
    Message,
    TopicPartition,
    TopicSpec,
    TransactionalProducer,
)
from tidemark.stream_runtime.retry import Deadline

TRIAL_INFIX: Final = ".doctor-"
_DOUBTFUL_S: Final = 1.0
_READ_S: Final = 15.0
_POLL_S: Final = 0.2
_COMMITTED: Final = (b"first", b"second")
_ABORTED: Final = b"aborted"


def transactions(client: KafkaClient, table: str, clock: Clock, ids: IdSource) -> Iterator[Finding]:
    """Commits and aborts transactions, reads the topic, and compares the broker's clock. Only the
    transactional id stays behind: the broker removes it after a while.
    """
    trial = ids.uuid()[:8]
    topic = f"{table}{TRIAL_INFIX}{trial}"
    admin = client.admin()
    try:
        admin.create_topics([TopicSpec(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})])
        try:
            yield from _tried(client, TopicPartition(topic, 0), f"{table}-doctor-{trial}", clock)
        finally:
            admin.delete_topics([topic])
    finally:
        admin.close()


def _tried(client: KafkaClient, at: TopicPartition, transactional_id: str, clock: Clock) -> Iterator[Finding]:
    producer = client.producer(transactional_id)
    try:
        producer.init()
        # The first transaction looks for brokers and coordinator, so only the last one is timed.
        _send(producer, at, _COMMITTED[0])
        producer.commit()
        _send(producer, at, _ABORTED)
        producer.abort()
        before_ms, started_s = clock.now_ms(), clock.monotonic_s()
        _send(producer, at, _COMMITTED[1])
        producer.commit()
        took_s, after_ms = clock.monotonic_s() - started_s, clock.now_ms()
    finally:
        producer.close()
    messages = _read_all(client, at, clock)
    if [message.value for message in messages] != list(_COMMITTED):
        yield fails(
            f"readers see {len(messages)} messages of two committed and one aborted",
            "This broker does not isolate transactions: use Apache Kafka 3.6 or later",
        )
        return
    yield ok(f"transactions work; one took {took_s * 1_000:.0f} ms")
    if took_s > _DOUBTFUL_S:
        yield warning(
            f"one transaction took {took_s:.1f} s",
            "Tidemark makes many small transactions: look at the brokers' load and the network to them",
        )
    yield from _skew(messages[1].timestamp_ms, before_ms, after_ms)


def _send(producer: TransactionalProducer, at: TopicPartition, value: bytes) -> None:
    producer.begin()
    producer.produce(at, value)
    producer.flush()


def _read_all(client: KafkaClient, at: TopicPartition, clock: Clock) -> list[Message]:
    """The messages that a reader of committed ones sees up to the topic's end. It reads until its position
    has passed the aborted message and the transactions' control records as well.
    """
    admin = client.admin()
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    deadline = Deadline(clock, _READ_S)
    messages: list[Message] = []
    try:
        end = admin.end_offset(at, Isolation.READ_UNCOMMITTED)
        reader.assign({at: 0})
        while reader.position(at) < end:
            deadline.check(f"reading {at.topic}")
            messages += reader.poll(100, _POLL_S)
    finally:
        reader.close()
        admin.close()
    return messages


def _skew(stamped_ms: int, before_ms: int, after_ms: int) -> Iterator[Finding]:
    skew_ms = stamped_ms - min(max(stamped_ms, before_ms), after_ms)
    if abs(skew_ms) > SKEW_MS_MAX:
        yield warning(
            f"the broker's clock is {skew_ms / 1_000:+.1f} s off this machine's",
            "Set both by NTP: instants, tombstones and latencies depend on these clocks",
        )
    else:
        yield ok(f"the broker's clock agrees with this machine's (within {max(after_ms - before_ms, 1)} ms)")
