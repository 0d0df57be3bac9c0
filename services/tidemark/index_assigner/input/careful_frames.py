"""The messages between the child process that reads a suspect lane (`careful_child`) and its parent
(`careful_lanes`), over pipes.

A frame is its length (four bytes, big endian), then MessagePack. The parent sends one `Setup`, then
`Task`s, one at a time. The child sends `Answer`s; DONE, UNREADABLE or FAILED is the last answer to a task.
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
    """Settings of Kafka consumers: ``ahead`` fetches few record batches at a time; ``alone`` fetches one, and
    the next one late.
    """

    ahead: dict[str, Any]
    alone: dict[str, Any]


class Setup(msgspec.Struct, frozen=True):
    """What a child needs before its first task.

    ``config``: path of the table's configuration file. ``memory_bytes``: the child's limit of memory.
    """

    settings: CarefulSettings
    config: str
    num_shards: int
    lanes: int
    memory_bytes: int


class Task(msgspec.Struct, frozen=True):
    """Read a partition from offset ``first`` on, up to its end or about ``bytes_max`` of keys and values.

    ``records_alone``: for so many records, fetch one batch at a time, fetch nothing while its records are
    decoded, and decode each record by itself.
    """

    topic: str
    partition: int
    first: int
    bytes_max: int
    records_alone: int = 0


class Kind(StrEnum):
    """What the child reports."""

    READING = "reading"
    """There is memory for an ordinary batch, and fetching begins. A child that dies before died of no
    record.
    """
    FETCHED = "fetched"
    """A batch was fetched alone, and the client is being closed. A child that dies now died of what its
    client
    fetched behind that batch."""
    DECODING = "decoding"
    """The record at ``offset`` was fetched alone, and is decoded next."""
    TAKEN = "taken"
    """``records`` were fetched and decoded."""
    DONE = "done"
    """The task's bytes were read, or the partition's end was reached; ``offset`` is where to go on."""
    UNREADABLE = "unreadable"
    """The client refuses the record batch that begins at ``offset``; ``text`` says why."""
    FAILED = "failed"
    """The task failed for a reason that no record led to (``text``); it may be tried again."""


class Answer(msgspec.Struct, frozen=True):
    """One report of the child. `Kind` says which of the fields it sets."""

    kind: Kind
    offset: int = 0
    text: str = ""
    records: list[tuple[Any, ...]] = []

    @classmethod
    def taken(cls, messages: Sequence[Message]) -> Answer:
        """A TAKEN answer with these messages as its records."""
        return cls(Kind.TAKEN, records=[tuple(message) for message in messages])

    def messages(self) -> list[Message]:
        """The records of a TAKEN answer as messages."""
        return [
            Message._make((*record[:5], tuple((name, value) for name, value in record[5]), *record[6:]))
            for record in self.records
        ]


def write_frame(stream: IO[bytes], frame: Setup | Task | Answer) -> None:
    """Writes the frame and flushes the stream."""
    content = msgspec.msgpack.encode(frame)
    # Length and content are written one after the other, because joining them would copy a large record
    # again.
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes], kind: type[_Frame]) -> _Frame | None:
    """Reads the next frame; None when the other side is gone, also in the middle of a frame.

    Raises msgspec.MsgspecError when the bytes are no frame of this kind.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    return msgspec.msgpack.decode(content, type=kind) if len(content) == length else None
