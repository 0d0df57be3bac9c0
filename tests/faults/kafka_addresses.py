"""Rewrites the addresses of brokers in Kafka's answers, so that a client stays behind its proxy.

They stand in Metadata, FindCoordinator and DescribeCluster, and, once a leader has moved, in the tags of
Produce and Fetch answers (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tests.faults.kafka_wire import Api, Cursor, Request, body_of, walk_produced
from tests.faults.link import Address


class _Rewriter:
    """Copies an answer, with other addresses of brokers."""

    def __init__(self, cursor: Cursor, proxied: Callable[[Address], Address]) -> None:
        self.cursor = cursor
        self._proxied = proxied
        self._parts: list[bytes] = []
        self._copied = 0

    def address(self) -> None:
        """A host and a port; an empty host (no broker) stays."""
        cursor = self.cursor
        self._keep(cursor.at)
        host = cursor.string() or ""
        port = cursor.number("i")
        if not host:
            return
        to = self._proxied(Address(host, port))
        text = to.host.encode()
        length = varint(len(text) + 1) if cursor.flexible else struct.pack(">h", len(text))
        self._parts.append(length + text + struct.pack(">i", to.port))
        self._copied = cursor.at

    def tagged(self, tag: int, rewrite: Callable[[_Rewriter], None]) -> None:
        """The tags of the structure, with the content of one of them rewritten."""
        cursor = self.cursor
        for _ in range(cursor.varint()):
            is_it = cursor.varint() == tag
            self._keep(cursor.at)
            size = cursor.varint()
            content = cursor.data[cursor.at : cursor.at + size]
            cursor.at += size
            if is_it:
                inner = _Rewriter(Cursor(content, 0, flexible=True), self._proxied)
                rewrite(inner)
                content = inner.finish()
            self._parts.append(varint(len(content)) + content)
            self._copied = cursor.at

    def _keep(self, until: int) -> None:
        self._parts.append(self.cursor.data[self._copied : until])
        self._copied = until

    def finish(self) -> bytes:
        self._keep(len(self.cursor.data))
        return b"".join(self._parts)


def varint(value: int) -> bytes:
    """A number as the flexible format has it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def rewrite_addresses(request: Request, answer: bytes, proxied: Callable[[Address], Address]) -> bytes:
    """The answer with each broker's address replaced by the one that `proxied` gives for it."""
    rewrite = _REWRITES.get(request.api)
    if rewrite is None:
        return answer
    rewriter = _Rewriter(body_of(request.api, request.version, answer), proxied)
    rewrite(rewriter, request.version)
    frame = rewriter.finish()
    return struct.pack(">i", len(frame) - 4) + frame[4:]


def _metadata(rewriter: _Rewriter, version: int) -> None:
    rewriter.cursor.skip(4 if version >= 3 else 0)
    _brokers(rewriter, has_rack=version >= 1)


def _brokers(rewriter: _Rewriter, has_rack: bool = True) -> None:
    cursor = rewriter.cursor
    for _ in range(cursor.count()):
        cursor.skip(4)
        rewriter.address()
        if has_rack:
            cursor.string()
        cursor.skip_tags()


def _coordinator(rewriter: _Rewriter, version: int) -> None:
    cursor = rewriter.cursor
    cursor.skip(4 if version >= 1 else 0)
    if version < 4:
        cursor.skip(2)
        if version >= 1:
            cursor.string()
        cursor.skip(4)
        rewriter.address()
        return
    for _ in range(cursor.count()):
        cursor.string()
        cursor.skip(4)
        rewriter.address()
        cursor.skip(2)
        cursor.string()
        cursor.skip_tags()


def _described(rewriter: _Rewriter, version: int) -> None:
    cursor = rewriter.cursor
    cursor.skip(4 + 2)
    cursor.string()
    cursor.skip(1 if version >= 1 else 0)
    cursor.string()
    cursor.skip(4)
    for _ in range(cursor.count()):
        cursor.skip(4)
        rewriter.address()
        cursor.string()
        cursor.skip(1 if version >= 2 else 0)
        cursor.skip_tags()


def _produced(rewriter: _Rewriter, version: int) -> None:
    if version >= 10:
        walk_produced(rewriter.cursor, version)
        rewriter.cursor.skip(4)
        rewriter.tagged(0, _brokers)


def _fetched(rewriter: _Rewriter, version: int) -> None:
    if version < 16:
        return
    cursor = rewriter.cursor
    cursor.skip(4 + 2 + 4)
    for _ in range(cursor.count()):
        cursor.skip(16)
        for _ in range(cursor.count()):
            cursor.skip(4 + 2 + 8 + 8 + 8)
            for _ in range(cursor.count()):
                cursor.skip(8 + 8)
                cursor.skip_tags()
            cursor.skip(4)
            cursor.skip_bytes()
            cursor.skip_tags()
        cursor.skip_tags()
    rewriter.tagged(0, _brokers)


_REWRITES: Final[dict[int, Callable[[_Rewriter, int], None]]] = {
    Api.METADATA: _metadata,
    Api.FIND_COORDINATOR: _coordinator,
    Api.DESCRIBE_CLUSTER: _described,
    Api.PRODUCE: _produced,
    Api.FETCH: _fetched,
}
