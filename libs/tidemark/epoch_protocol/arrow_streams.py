"""Tells, before an Arrow IPC stream is decoded, whether its buffers are compressed.

Our own batches are never compressed inside (Kafka compresses the messages). A compressed one could unpack to
any size, since a few kilobytes can name gigabytes, and Arrow has no limit for that. So we read the field that
says whether a batch is compressed (`RecordBatch.compression` in the format's Message.fbs) from the message's
metadata, a flatbuffer, and the caller refuses such a message.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

# Numbers of fields in the tables of Message.fbs: Message.header, RecordBatch.compression,
# DictionaryBatch.data.
_MESSAGE_HEADER: Final = 2
_RECORD_BATCH_COMPRESSION: Final = 3
_DICTIONARY_DATA: Final = 1
_DICTIONARY: Final = "dictionary"
_RECORD_BATCH: Final = "record batch"


def unpacks(value: bytes | pa.Buffer) -> bool:
    """Whether the stream's first record batch, or a dictionary before it, is compressed.

    Raises ArrowInvalid, StopIteration or struct.error when the value is no stream with a record batch.
    """
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(value))
    while True:
        message = reader.read_next_message()
        if message.type == _DICTIONARY and _is_compressed(memoryview(message.metadata), _DICTIONARY_DATA):
            return True
        if message.type == _RECORD_BATCH:
            return _is_compressed(memoryview(message.metadata))


def _is_compressed(metadata: memoryview, *inside: int) -> bool:
    """Whether the message's record batch is compressed.

    The record batch is the message's header itself, or lies below the header in the fields ``inside``.
    """
    (table,) = struct.unpack_from("<I", metadata, 0)
    for number in (_MESSAGE_HEADER, *inside):
        field = _field(metadata, table, number)
        if field is None:
            return False
        (away,) = struct.unpack_from("<I", metadata, field)
        table = field + away
    return _field(metadata, table, _RECORD_BATCH_COMPRESSION) is not None


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """The position of a flatbuffer table's field number ``number``; None when the table lacks the field.

    A table begins with the distance back to its vtable. The vtable holds 16-bit numbers: its own size in
    bytes, the table's size, then per field the distance from the table's begin (0: the field is absent).
    """
    (back,) = struct.unpack_from("<i", metadata, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", metadata, fields)
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, fields + at)
    return table + offset if offset else None
