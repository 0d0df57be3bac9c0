"""Asks brokers for their transactions, which no client of Python does and no jar of the embedded Kafka.

Each question is one request of Kafka's protocol, in its version 0, to one broker: ListTransactions (66) and
DescribeProducers (61). Source: https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeVar

_DESCRIBE_PRODUCERS: Final = 61
_LIST_TRANSACTIONS: Final = 66
_TIMEOUT_S: Final = 10.0
_NONE_OPEN: Final = -1
_CLIENT: Final = b"chaos"
_Item = TypeVar("_Item")


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
    answer = _ask(broker, _LIST_TRANSACTIONS, b"\1\1\0")
    _, error = answer.take(">ih")
    if error:
        raise ConnectionError(f"the broker answers with error {error}")
    answer.items(answer.text)

    def transaction() -> Transaction:
        identity, (producer,) = answer.text(), answer.take(">q")
        return answer.tagged(Transaction(identity, producer, answer.text()))

    return answer.items(transaction)


def open_producers(broker: str, lanes: Collection[tuple[str, int]]) -> list[OpenProducer]:
    """Who has an open transaction in those of the partitions (topic, number) that this broker leads.

    Raises OSError.
    """
    asked = [_text(topic) + b"\2" + struct.pack(">i", number) + b"\0" for topic, number in lanes]
    answer = _ask(broker, _DESCRIBE_PRODUCERS, _varint(len(asked) + 1) + b"".join(asked) + b"\0")
    answer.take(">i")
    found: list[OpenProducer] = []

    def producer(lane: str) -> None:
        identity, epoch, _, last_ms, _, first = answer.take(">qiiqiq")
        answer.tagged(None)
        if first != _NONE_OPEN:
            found.append(OpenProducer(lane, identity, epoch, last_ms, first))

    def partition(topic: str) -> None:
        number, _ = answer.take(">ih")
        answer.text()
        answer.items(lambda: producer(f"{topic}:{number}"))
        answer.tagged(None)

    def topic() -> None:
        name = answer.text()
        answer.items(lambda: partition(name))
        answer.tagged(None)

    answer.items(topic)
    return found


def _ask(broker: str, api: int, body: bytes) -> _Answer:
    host, _, port = broker.rpartition(":")
    head = struct.pack(">hhih", api, 0, 0, len(_CLIENT)) + _CLIENT + b"\0"
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", _read(stream.read, 4))
            answer = _Answer(_read(stream.read, size))
    answer.take(">i")
    return answer.tagged(answer)


def _read(read: Callable[[int], bytes], size: int) -> bytes:
    found = read(size)
    if len(found) < size:
        raise ConnectionError("the broker closed the connection")
    return found


class _Answer:
    """An answer in Kafka's flexible format, taken from the front; no field has tagged parts that count."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, form: str) -> tuple[int, ...]:
        fields = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return fields

    def text(self) -> str:
        """A string; "" for none."""
        size = self._varint() - 1
        self._at += max(size, 0)
        return self._content[self._at - size : self._at].decode() if size > 0 else ""

    def items(self, one: Callable[[], _Item]) -> list[_Item]:
        return [one() for _ in range(self._varint() - 1)]

    def tagged(self, before: _Item) -> _Item:
        """Passes over the tagged fields that end a structure; returns what was taken before."""
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self._at += size
        return before

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value


def _text(value: str) -> bytes:
    return _varint(len(value.encode()) + 1) + value.encode()


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
