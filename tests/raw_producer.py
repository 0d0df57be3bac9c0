"""A Kafka producer that writes its own record batches, so that it can write what no client library would.

Frame, request and record batch (format 2) are built here, byte by byte; pyarrow compresses. Plain TCP only.
Source: https://kafka.apache.org/documentation/#recordbatch and https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Final

import numpy as np
import pyarrow as pa

_PRODUCE: Final = 0
_PRODUCE_VERSION: Final = 8
"""The last one without varints in the request's frame (KIP-482)."""
_TIMEOUT_S: Final = 60.0
_MAGIC: Final = 2
_LZ4_BLOCK: Final = 65_536
_LOG_APPEND_TIME: Final = 1 << 3
_CLIENT: Final = b"raw-producer"


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True)
class RawRecord:
    """Header names are bytes: Kafka itself does not ask for UTF-8."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class RefusedBatchError(Exception):
    """The broker refused the batch; the text has Kafka's error code."""


def varint(number: int) -> bytes:
    """Zigzag, as in records."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(offset: int, each: RawRecord, later_ms: int = 0) -> bytes:
    """One record of a batch; `offset` and `later_ms` count from the batch's first record."""
    body = b"\0" + varint(later_ms) + varint(offset) + _sized(each.key) + _sized(each.value)
    body += varint(len(each.headers))
    for name, value in each.headers:
        body += _sized(name) + _sized(value)
    return varint(len(body)) + body


def compressed(codec: Codec, content: bytes) -> bytes:
    """As Kafka's clients frame it."""
    if codec is Codec.NONE:
        return content
    if codec is Codec.GZIP:
        return gzip.compress(content, 6)
    if codec is Codec.LZ4:
        return _lz4_frame(content)
    name = {Codec.SNAPPY: "snappy", Codec.ZSTD: "zstd"}[codec]
    made: bytes = pa.compress(content, codec=name, asbytes=True)
    return made


def _lz4_frame(content: bytes) -> bytes:
    """Independent blocks, the only ones that Kafka's broker takes; Arrow's own frames link theirs."""
    parts = [b"\x04\x22\x4d\x18\x60\x40\x82"]
    for first in range(0, len(content), _LZ4_BLOCK):
        plain = content[first : first + _LZ4_BLOCK]
        small: bytes = pa.compress(plain, codec="lz4_raw", asbytes=True)
        if len(small) < len(plain):
            parts += [struct.pack("<I", len(small)), small]
        else:
            parts += [struct.pack("<I", len(plain) | 1 << 31), plain]
    return b"".join(parts) + struct.pack("<I", 0)


def batch(
    records: Sequence[RawRecord],
    codec: Codec = Codec.NONE,
    timestamp_ms: int = 1_700_000_000_000,
    content: bytes | None = None,
    later_ms: Sequence[int] = (),
    says_append_time: bool = False,
) -> bytes:
    """A record batch. `content`: compressed bytes to use in place of the records' own. `later_ms`: how much
    later than `timestamp_ms` each record is, where they differ. `says_append_time`: with the attribute that
    is the broker's to set, where the topic has `message.timestamp.type=LogAppendTime`.
    """
    deltas = later_ms or [0] * len(records)
    if content is None:
        parts = (
            record(at, each, delta) for at, (each, delta) in enumerate(zip(records, deltas, strict=True))
        )
        content = compressed(codec, b"".join(parts))
    last = len(records) - 1
    newest = min(max(timestamp_ms + max(deltas, default=0), -(2**63)), 2**63 - 1)
    attributes = codec | (_LOG_APPEND_TIME if says_append_time else 0)
    tail = struct.pack(">hiqqqhii", attributes, last, timestamp_ms, newest, -1, -1, -1, len(records))
    tail += content
    head = struct.pack(">ibI", -1, _MAGIC, crc32c(tail))
    return struct.pack(">qi", 0, len(head) + len(tail)) + head + tail


def crc32c(content: bytes) -> int:
    """Castagnoli's."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(0x82F63B78), values >> 1)
    return [int(each) for each in values]


_TABLE: Final = _table()


class RawProducer:
    """One connection to one broker, which must lead the partitions that are written to."""

    def __init__(self, bootstrap_server: str) -> None:
        host, port = bootstrap_server.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        self._calls = 0

    def send(self, topic: str, partition: int, content: bytes) -> int:
        """Appends a batch (see `batch`); returns its first offset. Raises RefusedBatchError."""
        self._calls += 1
        name = topic.encode()
        body = struct.pack(">hhi", -1, -1, 30_000)  # no transaction, acks=all, timeout
        body += struct.pack(">ih", 1, len(name)) + name
        body += struct.pack(">iii", 1, partition, len(content)) + content
        head = struct.pack(">hhih", _PRODUCE, _PRODUCE_VERSION, self._calls, len(_CLIENT)) + _CLIENT
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        # correlation id, one topic with its name, one partition: index, error, base offset, …
        at = 4 + 4 + 2 + len(name) + 4
        _, error, offset = struct.unpack_from(">ihq", answer, at)
        if error:
            raise RefusedBatchError(
                f"{topic}[{partition}]: Kafka's error {error}: {answer[at + 14 :][:200]!r}"
            )
        return int(offset)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            found = self._socket.recv(size - len(parts))
            if not found:
                raise ConnectionError("the broker closed the connection")
            parts += found
        return bytes(parts)
