"""What a careful reader (`careful_child`) and its parent (`careful_lanes`) say to each other, over pipes.

Frames: four bytes of length, big endian, then MessagePack. The parent sends one `Setup`, then one `Task`
after the other; the child sends `Answer`s, the last one of a task is not READING, FETCHED,
DECODING or TAKEN.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import IO, Any, Final, TypeVar

import msgspec

from tidemark.stream_runtime.kafka.ports import Message

_LENGTH: Final = struct.Struct(">I")
_Frame = TypeVar("_Frame")


class CarefulSettings(msgspec.Struct, frozen=True):
    """Of consumers: ``ahead`` fetches few record batches at a time, ``alone`` one, and the next one late."""

    ahead: dict[str, Any]
    alone: dict[str, Any]


class Setup(msgspec.Struct, frozen=True):
    """``config``: the table's file. ``memory_bytes``: what the child may take."""

    settings: CarefulSettings
    config: str
    num_shards: int
    lanes: int
    memory_bytes: int


class Task(msgspec.Struct, frozen=True):
    """Read a partition from ``first`` on, about ``bytes_max`` of keys and values or to its end.

    ``records_alone``: for so many records one batch is fetched at a time, and nothing while its records are
    decoded, each by itself.
    """

    topic: str
    partition: int
    first: int
    bytes_max: int
    records_alone: int = 0


class Kind(StrEnum):
    """What an answer says."""

    READING = "reading"
    """There is room for an ordinary batch, and fetching begins: who dies before that died of no record."""
    FETCHED = "fetched"
    """A batch was fetched alone; the client ends. Who dies now died of what the client fetched behind it."""
    DECODING = "decoding"
    """The record at ``offset`` was fetched alone, and is decoded next."""
    TAKEN = "taken"
    """``records`` were fetched and decoded."""
    DONE = "done"
    """Enough, or the end; ``offset`` is where to go on."""
    UNREADABLE = "unreadable"
    """The client refuses the batch that begins at ``offset``; ``text`` says why."""
    FAILED = "failed"
    """Nothing that has to do with a record, as ``text`` says; it may be tried again."""


class Answer(msgspec.Struct, frozen=True):
    """See `Kind`."""

    kind: Kind
    offset: int = 0
    text: str = ""
    records: list[tuple[Any, ...]] = []

    @classmethod
    def taken(cls, messages: Sequence[Message]) -> Answer:
        """The messages as records."""
        return cls(Kind.TAKEN, records=[tuple(message) for message in messages])

    def messages(self) -> list[Message]:
        """The records as messages."""
        return [
            Message._make((*record[:5], tuple((name, value) for name, value in record[5]), *record[6:]))
            for record in self.records
        ]


def write_frame(stream: IO[bytes], frame: Setup | Task | Answer) -> None:
    """Sends it at once."""
    content = msgspec.msgpack.encode(frame)
    # Apart: a large record is copied often enough.
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes], kind: type[_Frame]) -> _Frame | None:
    """The next one; None when the other side is gone, in the middle of a frame or not."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    return msgspec.msgpack.decode(content, type=kind) if len(content) == length else None
