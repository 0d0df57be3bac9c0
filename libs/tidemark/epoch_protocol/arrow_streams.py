"""Looks into an Arrow IPC stream before it is decoded: whether it would unpack to more than it is.

Our batches are never compressed inside (Kafka compresses the messages). One that is could unpack to any size:
a few kilobytes name gigabytes. Arrow has no limit for that, so such a message is told by the header that says
so (`RecordBatch.compression`, Message.fbs of the format) and refused.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

# Positions of fields in the tables of Message.fbs.
_MESSAGE_HEADER: Final = 2
_RECORD_BATCH_COMPRESSION: Final = 3
_DICTIONARY_DATA: Final = 1
_DICTIONARY: Final = "dictionary"
_RECORD_BATCH: Final = "record batch"


def unpacks(value: bytes | pa.Buffer) -> bool:
    """Whether the stream's first record batch, or what comes before it, is compressed.

    Raises ArrowInvalid, StopIteration, struct.error for what is no stream with a record batch.
    """
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(value))
    while True:
        message = reader.read_next_message()
        if message.type == _DICTIONARY and _is_compressed(memoryview(message.metadata), _DICTIONARY_DATA):
            return True
        if message.type == _RECORD_BATCH:
            return _is_compressed(memoryview(message.metadata))


def _is_compressed(metadata: memoryview, *inside: int) -> bool:
    """Of the record batch that is the message's header, or lies in these fields of it."""
    (table,) = struct.unpack_from("<I", metadata, 0)
    for number in (_MESSAGE_HEADER, *inside):
        field = _field(metadata, table, number)
        if field is None:
            return False
        (away,) = struct.unpack_from("<I", metadata, field)
        table = field + away
    return _field(metadata, table, _RECORD_BATCH_COMPRESSION) is not None


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Where a flatbuffer table's field lies; None when it has none."""
    (back,) = struct.unpack_from("<i", metadata, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", metadata, fields)
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, fields + at)
    return table + offset if offset else None
