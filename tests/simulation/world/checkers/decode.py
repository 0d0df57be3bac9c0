"""Small decoders of what lies in files and messages: Avro containers, log blocks, HFiles, Arrow batches."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

_LOG_MAGIC: Final = b"#HUDI#"
_DATA_BLOCK: Final = b"DATABLK*"
_HEADER_BYTES: Final = 33
_SCHEMA_HEADER: Final = 2
DELETE, HFILE, PARQUET = 1, 4, 5


class Block(NamedTuple):
    """A block of a log file."""

    kind: int
    schema: str
    content: bytes


class Deleted(NamedTuple):
    """A record of a delete block; ``ordering`` None: whatever is there is deleted."""

    key: str
    ordering: int | None


def avro_document(data: bytes) -> dict[str, Any]:
    """The one record of an Avro container without compression; {} for an empty file."""
    if not data:
        return {}
    if data[:4] != b"Obj\x01":
        raise ValueError("no Avro container")
    header, at = {}, 4
    while True:
        count, at = _items(data, at)
        if count == 0:
            break
        for _ in range(count):
            name, at = _bytes(data, at)
            header[name], at = _bytes(data, at)
    if header.get(b"avro.codec", b"null") != b"null":
        raise ValueError(f"an Avro container with the codec {header[b'avro.codec']!r}")
    sync, at = data[at : at + 16], at + 16
    records, at = _long(data, at)
    body, at = _bytes(data, at)
    if records != 1 or data[at:] != sync:
        raise ValueError("an Avro container that does not hold one record")
    schema = _parsed(header[b"avro.schema"].decode())
    return dict(fastavro.schemaless_reader(io.BytesIO(body), schema, None))  # type: ignore[arg-type]


def log_blocks(data: bytes) -> Iterator[Block]:
    """The blocks of a log file's bytes."""
    at = 0
    while at < len(data):
        if data[at : at + 6] != _LOG_MAGIC:
            raise ValueError(f"no log block at offset {at}")
        (size,) = struct.unpack_from(">q", data, at + 6)
        kind, count = struct.unpack_from(">ii", data, at + 18)
        here, schema = at + 26, ""
        for _ in range(count):
            name, length = struct.unpack_from(">ii", data, here)
            if name == _SCHEMA_HEADER:
                schema = data[here + 8 : here + 8 + length].decode()
            here += 8 + length
        (length,) = struct.unpack_from(">q", data, here)
        yield Block(kind, schema, data[here + 8 : here + 8 + length])
        at += 14 + size


def hfile_entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Keys and values of an HFile, block after block from its start."""
    at = 0
    while data[at : at + 8] == _DATA_BLOCK:
        on_disk, _, _, _, _, with_header = struct.unpack_from(">iiqBii", data, at + 8)
        payload = data[at + _HEADER_BYTES : at + with_header]
        if payload[:2] == b"\x1f\x8b":
            payload = zlib.decompress(payload, 31)
        here = 0
        while here < len(payload):
            key_part, value_length, key_length = struct.unpack_from(">iih", payload, here)
            start = here + 8 + key_part
            key = payload[here + 10 : here + 10 + key_length].decode()
            yield key, payload[start : start + value_length]
            here = start + value_length + 1
        at += _HEADER_BYTES + on_disk


def deletes(content: bytes) -> Iterator[Deleted]:
    """The records of a DELETE block's content."""
    at = 8
    while True:
        count, at = _items(content, at)
        if count == 0:
            return
        for _ in range(count):
            key, at = _optional_text(content, at)
            _, at = _optional_text(content, at)
            branch, at = _long(content, at)
            value = None
            if branch:
                value, at = _long(content, at)
            # INT 0 is Hudi's mark of a delete that holds in any case.
            yield Deleted(key or "", None if (branch, value) == (2, 0) else value)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _items(data: bytes, at: int) -> tuple[int, int]:
    """How many items the next block of an array or map has; behind a negative count its size stands."""
    count, at = _long(data, at)
    return (count, at) if count >= 0 else (-count, _long(data, at)[1])


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    return data[at : at + length], at + length


def _optional_text(data: bytes, at: int) -> tuple[str | None, int]:
    branch, at = _long(data, at)
    if branch == 0:
        return None, at
    length, at = _long(data, at)
    return data[at : at + length].decode(), at + length


@lru_cache(maxsize=16)
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


@lru_cache(maxsize=4096)
def index_place(value: bytes, schema: str) -> tuple[str, str]:
    """(partition path, file id) of a record index value."""
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), _parsed(schema), None)
    found = record["recordIndexMetadata"]
    if found["fileIdEncoding"] != 0:
        return found["partitionName"], found["fileId"]
    mask = 2**64 - 1
    number = (found["fileIdHighBits"] & mask) << 64 | found["fileIdLowBits"] & mask
    return found["partitionName"], f"{uuid.UUID(int=number)}-{found['fileIndex']}"


@lru_cache(maxsize=4096)
def listed_files(value: bytes, schema: str) -> dict[str, tuple[int, bool]]:
    """File name -> (size, whether it is deleted) of a `files` record. Not to be changed."""
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), _parsed(schema), None)
    entries = record["filesystemMetadata"] or {}
    return {name: (entry["size"], entry["isDeleted"]) for name, entry in entries.items()}


def parquet_columns(data: bytes, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of these columns, row by row; None of a column that the file does not have."""
    file = pq.ParquetFile(pa.BufferReader(data))
    there = file.schema_arrow.names
    found = file.read([name for name in names if name in there], use_threads=False)
    nothing = [None] * found.num_rows
    return list(zip(*(found.column(n).to_pylist() if n in there else nothing for n in names), strict=True))


@lru_cache(maxsize=4096)
def batch_rows(value: bytes) -> list[dict[str, Any]]:
    """The rows of an Arrow IPC stream with one record batch. Not to be changed: equal bytes give the same
    list.
    """
    with pa.ipc.open_stream(pa.py_buffer(value)) as reader:
        rows: list[dict[str, Any]] = reader.read_next_batch().to_pylist()
    return rows
