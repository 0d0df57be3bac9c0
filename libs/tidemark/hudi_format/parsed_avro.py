"""Reads Avro that others wrote (schemas, single records, container files) within bounds.

No other module of the library hands foreign Avro to a decoder. Everything that is wrong with it becomes a
`CorruptFileError` with the file's name, and the size of the input bounds the work:

- A schema is at most `SCHEMA_BYTES_MAX` long and `JSON_DEPTH_MAX` deep. It never refers to itself (a record
  nested a million times in a few megabytes would crash the process). It has at most `NODES_MAX` values per
  record (forty nested records of two fields each are 2^40 nulls in no bytes at all).
- An item of an array or map takes at least one byte: otherwise a few bytes could name 10^8 empty items.
- A container holds as many records as the caller expects. Its codec is null or deflate, and the inflated size
  is limited.
- A record ends where its bytes end, and has no negative index (`avro_indexes`).
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from tidemark.hudi_format.avro_indexes import without_negative_indexes
from tidemark.hudi_format.errors import CorruptFileError, damage_in

SCHEMA_BYTES_MAX: Final = 4 << 20
JSON_DEPTH_MAX: Final = 200
NODES_MAX: Final = 100_000
# How many bytes a compressed container may inflate to.
INFLATED_BYTES_MAX: Final = 256 << 20
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_META_ENTRIES_MAX: Final = 64
_BLOCKS_MAX: Final = 1_000
_VARINT_BITS_MAX: Final = 63
_OPENING, _CLOSING = "{[", "}]"


@dataclass(frozen=True)
class ParsedSchema:
    """A schema for fastavro. `is_empty`: a record of it may take no bytes."""

    avro: Any
    is_empty: bool


def parsed_json(text: str | bytes, path: str, what: str) -> Any:
    """Parses JSON of bounded size and depth; errors name `path` and `what`. Raises `CorruptFileError`."""
    if len(text) > SCHEMA_BYTES_MAX:
        raise CorruptFileError(f"{path}: {what} has {len(text)} bytes, at most {SCHEMA_BYTES_MAX} are read")
    with damage_in(path, what):
        parsed = json.loads(text)
    _check_depth(parsed, path, what)
    return parsed


def parsed_schema(schema_json: str, path: str) -> ParsedSchema:
    """Parses the schema that a file carries. Raises `CorruptFileError` with the file's name."""
    schema = _parsed(schema_json)
    if isinstance(schema, str):
        raise CorruptFileError(f"{path}: {schema}")
    return schema


def parsed_record(data: bytes | memoryview, schema: ParsedSchema, path: str, what: str = "a record") -> Any:
    """Decodes the one value that takes all bytes of `data`. Raises `CorruptFileError`."""
    source = io.BytesIO(data)
    with damage_in(path, what):
        record = fastavro.schemaless_reader(source, schema.avro, None)
    if source.tell() != len(data):
        raise CorruptFileError(f"{path}: {what} ends at byte {source.tell()} of {len(data)}")
    return record


def parsed_container(data: bytes, path: str) -> dict[str, Any]:
    """Decodes the one record of an Avro container file, by the schema that the file carries.

    Raises `CorruptFileError` when `data` is no container with exactly one record.
    """
    what = f"an Avro container file of {len(data)} bytes"
    with damage_in(path, what):
        if not data.startswith(_MAGIC):
            raise ValueError("it does not begin with the magic of one")
        meta, position = _read_meta(data, len(_MAGIC))
        count, body = _read_blocks(data, position)
    if count != 1:
        raise CorruptFileError(f"{path} holds {count} Avro records, one was expected")
    codec = meta.get("avro.codec", b"null").decode("ascii", "replace")
    if codec == "deflate":
        body = _inflated(body, path)
    elif codec != "null":
        raise CorruptFileError(f"{path}: codec {codec!r}; null and deflate are read")
    with damage_in(path, what):
        schema = meta["avro.schema"].decode()
    record = parsed_record(body, parsed_schema(schema, path), path, what)
    if not isinstance(record, dict):
        raise CorruptFileError(f"{path} holds no Avro record but a {type(record).__name__}")
    return record


@lru_cache(maxsize=64)
def _parsed(schema_json: str) -> ParsedSchema | str:
    """The parsed schema, or a text that says what is wrong with it."""
    try:
        avro = parsed_json(schema_json, "", "the schema of its records")
        walk = _Walk()
        nodes, least = walk.measure(avro, "")
        if nodes > NODES_MAX:
            return f"a record of its schema has more than {NODES_MAX} values"
        with damage_in("", "the schema of its records"):
            return ParsedSchema(without_negative_indexes(fastavro.parse_schema(avro)), not least)
    except CorruptFileError as error:
        return str(error).removeprefix(": ")
    except (SchemaParseException, UnknownType) as error:
        return f"the schema of its records is not readable: {error}"


def _check_depth(parsed: Any, path: str, what: str) -> None:
    level: list[Any] = [parsed]
    for _ in range(JSON_DEPTH_MAX):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise CorruptFileError(f"{path}: {what} is nested more than {JSON_DEPTH_MAX} levels deep")


@dataclass
class _Walk:
    """Measures a schema: how many values one record has, and how many bytes it takes at least.

    `known`: named type -> (values, least bytes), and None while the type is being measured.
    """

    known: dict[str, tuple[int, int] | None] = field(default_factory=dict)

    def measure(self, avro: Any, namespace: str) -> tuple[int, int]:
        """(values, least bytes) of one value. An item of a collection counts once, because the number of
        items is in the data.
        """
        if isinstance(avro, list):
            branches = [self.measure(branch, namespace) for branch in avro]
            return sum(nodes for nodes, _ in branches) + 1, 1
        if isinstance(avro, str):
            return self._named(avro, namespace)
        if not isinstance(avro, dict):
            raise CorruptFileError(f"its schema holds {avro!r} in place of a type")
        kind = avro.get("type")
        if kind in ("record", "error"):
            return self._record(avro, namespace)
        if kind == "array":
            return self._items(avro.get("items"), namespace)
        if kind == "map":
            nodes, _ = self.measure(avro.get("values"), namespace)
            return nodes + 1, 1
        if kind in ("fixed", "enum"):
            size = avro.get("size", 0) if kind == "fixed" else 1
            if not isinstance(size, int) or size < 0:
                raise CorruptFileError(f"its schema holds a fixed type of size {size!r}")
            self.known[_full_name(avro, namespace)] = (1, size)
            return 1, size
        return self.measure(kind, namespace)

    def _named(self, name: str, namespace: str) -> tuple[int, int]:
        if name in _PRIMITIVE_BYTES:
            return 1, _PRIMITIVE_BYTES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self.known:
                measured = self.known[candidate]
                if measured is None:
                    raise CorruptFileError(f"its schema has record {candidate} inside itself")
                return measured
        raise CorruptFileError(f"its schema names the unknown type {name!r}")

    def _record(self, avro: Mapping[str, Any], namespace: str) -> tuple[int, int]:
        full, fields = _full_name(avro, namespace), avro.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise CorruptFileError(f"record {full} of its schema has no fields")
        self.known[full] = None
        inner = full.rpartition(".")[0]
        measured = [self.measure(entry.get("type"), inner) for entry in fields]
        nodes = 1 + sum(values for values, _ in measured)
        if nodes > NODES_MAX:
            raise CorruptFileError(f"a record of its schema has more than {NODES_MAX} values")
        self.known[full] = size = nodes, sum(least for _, least in measured)
        return size

    def _items(self, items: Any, namespace: str) -> tuple[int, int]:
        nodes, least = self.measure(items, namespace)
        if not least:
            raise CorruptFileError("its schema holds an array whose items take no bytes")
        return nodes + 1, 1


_PRIMITIVE_BYTES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}


def _full_name(avro: Mapping[str, Any], namespace: str) -> str:
    name = avro.get("name")
    if not isinstance(name, str) or not name:
        raise CorruptFileError("its schema has a type without a name")
    space = avro.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _read_meta(data: bytes, position: int) -> tuple[dict[str, bytes], int]:
    meta: dict[str, bytes] = {}
    while True:
        count, position = read_varint(data, position)
        if count == 0:
            return meta, position
        if count < 0:  # Avro: the block's size in bytes follows a negative count
            count = -count
            _, position = read_varint(data, position)
        if len(meta) + count > _META_ENTRIES_MAX:
            raise ValueError(f"a header of more than {_META_ENTRIES_MAX} entries")
        for _ in range(count):
            key, position = _read_bytes(data, position)
            meta[key.decode()], position = _read_bytes(data, position)


def _read_blocks(data: bytes, position: int) -> tuple[int, bytes]:
    """The number of records in all blocks, and the bytes of all blocks in their order."""
    sync = data[position : position + _SYNC_BYTES]
    position += _SYNC_BYTES
    records, parts = 0, list[bytes]()
    while position < len(data):
        if len(parts) >= _BLOCKS_MAX:
            raise ValueError(f"more than {_BLOCKS_MAX} blocks")
        count, position = read_varint(data, position)
        if count < 0:
            raise ValueError(f"a block of {count} records")
        part, position = _read_bytes(data, position)
        if data[position : position + _SYNC_BYTES] != sync or len(sync) < _SYNC_BYTES:
            raise ValueError(f"no sync marker at byte {position}")
        position += _SYNC_BYTES
        records += count
        parts.append(part)
    return records, b"".join(parts)


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    length, position = read_varint(data, position)
    if not 0 <= length <= len(data) - position:
        raise ValueError(f"{length} bytes at byte {position} of {len(data)}")
    return data[position : position + length], position + length


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """An Avro int or long and the position after it. Raises IndexError at the end of `data`, ValueError
    beyond 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise ValueError(f"a varint longer than 64 bits before byte {position}")
    if value >> 64:
        raise ValueError(f"a varint above 64 bits before byte {position}")
    return (value >> 1) ^ -(value & 1), position


def _inflated(body: bytes, path: str) -> bytes:
    inflater = zlib.decompressobj(-15)
    with damage_in(path, "its deflated block"):
        inflated = inflater.decompress(body, INFLATED_BYTES_MAX + 1)
    # Some writers leave checksum bytes behind the stream.
    if len(inflated) > INFLATED_BYTES_MAX or not inflater.eof:
        raise CorruptFileError(
            f"{path}: its deflated block is not one whole stream of at most {INFLATED_BYTES_MAX} bytes"
        )
    return inflated
