"""As much of Kafka's wire protocol as a proxy needs: what a request is, and what its answer says.

Frame: 4 bytes length; request: API key, version, correlation id, client id, [tags], body; answer: correlation
id, [tags], body. From some version of each API on ("flexible") lengths are varints, and tags follow each
structure. Source: https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class Api(IntEnum):
    """Kafka's API keys; those without a use here are not listed."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    DESCRIBE_CLUSTER = 60


_FLEXIBLE_FROM: Final[dict[int, int]] = {
    Api.PRODUCE: 9,
    Api.FETCH: 12,
    Api.METADATA: 9,
    Api.FIND_COORDINATOR: 3,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
    Api.DESCRIBE_CLUSTER: 0,
}
_TRANSACTIONAL: Final[dict[int, int]] = {
    Api.PRODUCE: 3,
    Api.INIT_PRODUCER_ID: 0,
    Api.ADD_PARTITIONS_TO_TXN: 0,
    Api.ADD_OFFSETS_TO_TXN: 0,
    Api.END_TXN: 0,
    Api.TXN_OFFSET_COMMIT: 0,
}
"""First version whose body starts with the transactional id."""
_BATCHED_FROM: Final = 4
"""AddPartitionsToTxn: from this version on its body starts with an array instead."""


@dataclass(frozen=True)
class Request:
    """`topic`: of a Produce request, its first. `commits`: of an EndTxn, whether it is a commit."""

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    transactional_id: str | None = None
    topic: str | None = None
    commits: bool | None = None
    frame: bytes = field(default=b"", repr=False)


class Cursor:
    """Reads a frame field by field."""

    def __init__(self, data: bytes, at: int, flexible: bool) -> None:
        self.data, self.at, self.flexible = data, at, flexible

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        length = self.varint() - 1 if self.flexible else self.number("h")
        return None if length < 0 else self._take(length).decode()

    def skip_bytes(self) -> None:
        self._take(max(self.varint() - 1 if self.flexible else self.number("i"), 0))

    def count(self) -> int:
        return max(self.varint() - 1 if self.flexible else self.number("i"), 0)

    def skip(self, count: int) -> None:
        self._take(count)

    def skip_tags(self) -> None:
        for _ in range(self.varint() if self.flexible else 0):
            self.varint()
            self._take(self.varint())

    def _take(self, length: int) -> bytes:
        if self.at + length > len(self.data):
            raise ValueError(f"a field of {length} bytes at {self.at} of a frame of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]


def read_frame(connection: socket.socket) -> bytes | None:
    """One whole frame with its length; None at the end of the stream."""
    head = _read_exactly(connection, 4)
    body = None if head is None else _read_exactly(connection, int(struct.unpack(">i", head)[0]))
    return None if head is None or body is None else head + body


def _read_exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def parse_request(frame: bytes) -> Request:
    cursor = Cursor(frame, 4, flexible=False)
    api, version, correlation_id = cursor.number("h"), cursor.number("h"), cursor.number("i")
    client_id = cursor.string()
    if version < _TRANSACTIONAL.get(api, 1 << 15):
        return Request(api, version, correlation_id, client_id, frame=frame)
    if api == Api.ADD_PARTITIONS_TO_TXN and version >= _BATCHED_FROM:
        return Request(api, version, correlation_id, client_id, frame=frame)
    cursor.flexible = is_flexible(api, version)
    cursor.skip_tags()
    transactional_id, topic, commits = cursor.string(), None, None
    if api == Api.PRODUCE and version < 13:
        cursor.skip(2 + 4)
        topic = cursor.string() if cursor.count() else None
    if api == Api.END_TXN:
        cursor.skip(8 + 2)
        commits = bool(cursor.number("b"))
    return Request(api, version, correlation_id, client_id, transactional_id, topic, commits, frame)


def is_flexible(api: int, version: int) -> bool:
    return api in _FLEXIBLE_FROM and version >= _FLEXIBLE_FROM[api]


def correlation_of(answer: bytes) -> int:
    return int(struct.unpack_from(">i", answer, 4)[0])


def body_of(api: int, version: int, answer: bytes) -> Cursor:
    """A cursor behind the header of the answer."""
    cursor = Cursor(answer, 8, is_flexible(api, version))
    cursor.skip_tags()
    return cursor


# ---------------------------------------------------------------- error codes


def error_codes(request: Request, answer: bytes) -> list[int]:
    """All error codes of an answer to one of the transaction requests, or to Produce."""
    cursor = body_of(request.api, request.version, answer)
    if request.api in (Api.END_TXN, Api.INIT_PRODUCER_ID, Api.ADD_OFFSETS_TO_TXN):
        cursor.skip(4)
        return [cursor.number("h")]
    if request.api == Api.PRODUCE:
        return walk_produced(cursor, request.version)
    if request.api == Api.TXN_OFFSET_COMMIT or request.api == Api.ADD_PARTITIONS_TO_TXN:
        cursor.skip(4)
        return _topic_errors(cursor)
    raise ValueError(f"no error codes are known of API {request.api}")


def _topic_errors(cursor: Cursor) -> list[int]:
    codes: list[int] = []
    for _ in range(cursor.count()):
        cursor.string()
        for _ in range(cursor.count()):
            cursor.skip(4)
            codes.append(cursor.number("h"))
            cursor.skip_tags()
        cursor.skip_tags()
    return codes


def walk_produced(cursor: Cursor, version: int) -> list[int]:
    """The error code of each partition; the cursor stands behind the last topic then."""
    codes: list[int] = []
    for _ in range(cursor.count()):
        cursor.skip(16) if version >= 13 else cursor.string()
        for _ in range(cursor.count()):
            cursor.skip(4)
            codes.append(cursor.number("h"))
            cursor.skip(8 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0))
            if version >= 8:
                for _ in range(cursor.count()):
                    cursor.skip(4)
                    cursor.string()
                    cursor.skip_tags()
                cursor.string()
            cursor.skip_tags()
        cursor.skip_tags()
    return codes
