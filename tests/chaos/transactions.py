"""Asks brokers for their transactions, which no client of Python does and no jar of the embedded Kafka.

Each question is one request of Kafka's protocol, in its version 0, to one broker: ListTransactions (66) and
DescribeProducers (61). Source: https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from tests.faults.kafka_addresses import varint
from tests.faults.kafka_wire import Cursor, read_frame

_DESCRIBE_PRODUCERS: Final = 61
_LIST_TRANSACTIONS: Final = 66
_TIMEOUT_S: Final = 10.0
_NONE_OPEN: Final = -1
_CLIENT: Final = b"chaos"


class Transaction(NamedTuple):
    """What the broker that coordinates a transactional id says of it; `state` as `Ongoing`, `Empty`."""

    identity: str
    producer: int
    state: str


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition, which begins there at offset `first`.

    `last_ms`: when its last message came (Unix epoch).
    """

    lane: str
    producer: int
    epoch: int
    last_ms: int
    first: int


def list_transactions(broker: str) -> list[Transaction]:
    """All transactional ids that this broker (host:port) coordinates.

    Raises OSError, also while the broker loads them after its start.
    """
    with _answer(broker, _LIST_TRANSACTIONS, b"\1\1\0") as answer:
        answer.skip(4)
        if error := answer.number("h"):
            raise ConnectionError(f"the broker answers with error {error}")
        for _ in range(answer.count()):
            answer.string()
        return [_transaction(answer) for _ in range(answer.count())]


def _transaction(answer: Cursor) -> Transaction:
    found = Transaction(answer.string() or "", answer.number("q"), answer.string() or "")
    answer.skip_tags()
    return found


def open_producers(broker: str, lanes: Collection[tuple[str, int]]) -> list[OpenProducer]:
    """Who has an open transaction in those of the partitions (topic, number) that this broker leads.

    Raises OSError.
    """
    asked = [_text(topic) + b"\2" + struct.pack(">i", number) + b"\0" for topic, number in lanes]
    with _answer(broker, _DESCRIBE_PRODUCERS, varint(len(asked) + 1) + b"".join(asked) + b"\0") as answer:
        answer.skip(4)
        return [found for _ in range(answer.count()) for found in _of_topic(answer)]


def _of_topic(answer: Cursor) -> list[OpenProducer]:
    topic = answer.string()
    found: list[OpenProducer] = []
    for _ in range(answer.count()):
        lane = f"{topic}:{answer.number('i')}"
        answer.skip(2)
        answer.string()
        producers = [_producer(answer, lane) for _ in range(answer.count())]
        found += [each for each in producers if each.first != _NONE_OPEN]
        answer.skip_tags()
    answer.skip_tags()
    return found


def _producer(answer: Cursor, lane: str) -> OpenProducer:
    identity, epoch = answer.number("q"), answer.number("i")
    answer.skip(4)
    last_ms = answer.number("q")
    answer.skip(4)
    found = OpenProducer(lane, identity, epoch, last_ms, answer.number("q"))
    answer.skip_tags()
    return found


@contextmanager
def _answer(broker: str, api: int, body: bytes) -> Iterator[Cursor]:
    """Behind the header of the answer. What is no such answer, too, raises a ConnectionError."""
    try:
        cursor = Cursor(_asked(broker, api, body), 8, flexible=True)
        cursor.skip_tags()
        yield cursor
    except (ValueError, IndexError, struct.error) as error:
        raise ConnectionError(f"the answer is not of the form that was asked for: {error}") from error


def _asked(broker: str, api: int, body: bytes) -> bytes:
    host, _, port = broker.rpartition(":")
    head = struct.pack(">hhih", api, 0, 0, len(_CLIENT)) + _CLIENT + b"\0"
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        frame = read_frame(connection)
    if frame is None:
        raise ConnectionError("the broker closed the connection")
    return frame


def _text(value: str) -> bytes:
    return varint(len(value.encode()) + 1) + value.encode()
