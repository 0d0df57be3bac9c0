"""Metadata of a cluster whose only broker is fenced by its controller: no brokers, no leaders.

A broker is fenced from its registration, at each start, until it has caught up; and when its heartbeats come
late, as on a busy machine.
"""

from __future__ import annotations

import struct
from typing import Final

from tests.faults.kafka_wire import Api, Cursor, Request, body_of, is_flexible

_LEADER_NOT_AVAILABLE: Final = 5
_NO_LEADER: Final = -1
_EMPTY: Final = b"\1"
_TOPIC_IDS_FROM: Final = 10


def hide_brokers(request: Request, answer: bytes) -> bytes:
    """The answer without brokers, if it is one to Metadata; any other as it is."""
    if request.api != Api.METADATA:
        return answer
    assert is_flexible(request.api, request.version), f"Metadata {request.version} has another format"
    cursor = body_of(request.api, request.version, answer)
    cursor.skip(4)
    parts = [answer[: cursor.at], _EMPTY]
    for _ in range(cursor.count()):
        cursor.skip(4)
        cursor.string()
        cursor.skip(4)
        cursor.string()
        cursor.skip_tags()
    begin = cursor.at
    cursor.string()
    cursor.skip(4)
    topics = cursor.count()
    parts.append(answer[begin : cursor.at])
    for _ in range(topics):
        parts += _topic(cursor, request.version)
    frame = b"".join([*parts, answer[cursor.at :]])
    return struct.pack(">i", len(frame) - 4) + frame[4:]


def _topic(cursor: Cursor, version: int) -> list[bytes]:
    begin = cursor.at
    cursor.skip(2)
    cursor.string()
    cursor.skip((16 if version >= _TOPIC_IDS_FROM else 0) + 1)
    partitions = cursor.count()
    parts = [cursor.data[begin : cursor.at]]
    for _ in range(partitions):
        parts.append(_partition(cursor))
    begin = cursor.at
    cursor.skip(4)
    cursor.skip_tags()
    return [*parts, cursor.data[begin : cursor.at]]


def _partition(cursor: Cursor) -> bytes:
    cursor.skip(2)
    number = cursor.data[cursor.at : cursor.at + 4]
    cursor.skip(4 + 4)
    begin = cursor.at
    cursor.skip(4)
    for _ in ("replicas", "in sync", "offline"):
        cursor.skip(4 * cursor.count())
    cursor.skip_tags()
    head = struct.pack(">h", _LEADER_NOT_AVAILABLE) + number + struct.pack(">i", _NO_LEADER)
    return head + cursor.data[begin : cursor.at]
