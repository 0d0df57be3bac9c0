"""What a recording's archive says of itself: the index cache and the topics, written down one record a line.

The recipe writes it with the code that made the recording; tests read the same again with today's code. The
layout of these lines is this module's own and tied to no stored format.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import rocks_layout as layout
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.runs.entries import EXACT, HAS_ORDERING
from tidemark.stream_runtime.kafka.model import Message

_READ_S = 60.0
_MEMORY = 8 << 20
_SHARDS_MAX = 1 << 15


def cache_content(folder: Path, identity: str) -> dict[str, list[list[Any]]]:
    """Everything in one assigner's RocksDB, decoded: sorted rows by kind of record."""
    rocks = RocksTier(folder, identity, _MEMORY)
    try:
        places = {
            int.from_bytes(key[2:], "big"): value.decode().split("\0")
            for key, value in _below(rocks, layout.LOCATION_PREFIX)
        }
        return {
            "entries": _entries(rocks, places),
            "tombstones": _tombstones(rocks, places),
            "foreign deletes": [
                [
                    *_shard_and_key(key[2:]),
                    *_place(places, int(layout.unpack([value], layout.FOREIGN_DELETE)[1]["location"][0])),
                ]
                for key, value in _below(rocks, layout.FOREIGN_PREFIX)
            ],
            "shards": [
                [int.from_bytes(key[2:], "big"), json.loads(value)]
                for key, value in _below(rocks, layout.STATE_PREFIX)
            ],
            "covered blocks": [
                [int.from_bytes(key[2:], "big"), value.hex()]
                for key, value in _below(rocks, layout.COVERAGE_PREFIX)
            ],
            "positions": [
                [int.from_bytes(key[2:], "big"), int.from_bytes(value, "big")]
                for key, value in _below(rocks, layout.POSITION_PREFIX)
            ],
        }
    finally:
        rocks.close()


def topic_lines(bootstrap_servers: str, topics: list[str]) -> Iterator[str]:
    """Every committed message that the topics still hold: a JSON object each, by partition in order."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "recording",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(timeout=_READ_S).topics
        for topic in topics:
            for partition in sorted(known[topic].partitions):
                yield from _lines(consumer, topic, partition)
    finally:
        consumer.close()


def read_lines(file: Path) -> Iterator[Message]:
    """The messages of a file of `topic_lines`."""
    with file.open() as lines:
        for line in lines:
            fields = json.loads(line)
            yield Message(
                fields["topic"],
                fields["partition"],
                fields["offset"],
                _bytes(fields["key"]),
                _bytes(fields["value"]),
                tuple((name, _bytes(value) or b"") for name, value in fields["headers"]),
                fields["timestamp_ms"],
            )


def _lines(consumer: Consumer, topic: str, partition: int) -> Iterator[str]:
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_READ_S)
    consumer.assign([TopicPartition(topic, partition, first)])
    while first < end:
        message = consumer.poll(_READ_S)
        assert message is not None, f"{topic}-{partition}: nothing came after offset {first} of {end}"
        if message.error():
            # The end of what is committed: behind it may lie what was aborted.
            assert message.error().name() == "_PARTITION_EOF", message.error()
            assert message.offset() == end, f"{topic}-{partition}: open transaction at {message.offset()}"
            return
        kind, timestamp = message.timestamp()
        offset, headers = message.offset(), cast(list[tuple[str, bytes]], message.headers() or [])
        assert offset is not None
        first = offset + 1
        yield json.dumps(
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "timestamp_ms": -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                "key": _text(_content(message.key())),
                "headers": [[name, _text(value)] for name, value in headers],
                "value": _text(_content(message.value())),
            }
        )


def _content(value: str | bytes | None) -> bytes | None:
    """The client hands out bytes; its types say more."""
    return value.encode() if isinstance(value, str) else value


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _below(rocks: RocksTier, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return rocks.items_between(prefix, prefix[:-1] + bytes([prefix[-1] + 1]))


def _shard_and_key(content: bytes) -> list[Any]:
    return [int.from_bytes(content[:2], "big"), content[2:].decode()]


def _place(places: dict[int, list[str]], number: int) -> list[str | None]:
    return [None, None] if number < 0 else list(places[number])


def _entries(rocks: RocksTier, places: dict[int, list[str]]) -> list[list[Any]]:
    found = rocks.items_between(b"", layout.shard_bytes(ShardId(_SHARDS_MAX)))
    rows = layout.unpack([value for _, value in found], layout.ENTRY)[1]
    return [
        [
            *_shard_and_key(key),
            *_place(places, int(row["location"])),
            int(row["ordering"]) if row["flags"] & HAS_ORDERING else None,
            bool(row["flags"] & EXACT),
            int(row["generation"]),
        ]
        for (key, _), row in zip(found, rows, strict=True)
    ]


def _tombstones(rocks: RocksTier, places: dict[int, list[str]]) -> list[list[Any]]:
    found = _below(rocks, layout.TOMBSTONE_PREFIX)
    rows = layout.unpack([value for _, value in found], layout.TOMBSTONE)[1]
    return [
        [
            *_shard_and_key(key[2:]),
            *_place(places, int(row["location"])),
            int(row["ordering"]),
            int(row["expires_ms"]),
        ]
        for (key, _), row in zip(found, rows, strict=True)
    ]
