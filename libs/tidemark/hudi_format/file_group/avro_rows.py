"""Decodes AVRO_DATA log blocks, which Spark writes by default, to Arrow (FORMAT.md, section 5.4).

Content, big-endian: int 3, int number of records, then per record int length and the Avro binary of one row
under the block's SCHEMA header. Dates and timestamps are decoded as plain numbers, which Arrow accepts for
these types.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import fastavro
import pyarrow as pa

from tidemark.hudi_format.avro_types import SchemaError, field_from_avro
from tidemark.hudi_format.errors import CorruptFileError, damage_in
from tidemark.hudi_format.parsed_avro import ParsedSchema, parsed_json, parsed_schema

_HEADER: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
_CONTENT_VERSIONS: Final = (1, 2, 3)
_CHUNK_ROWS: Final = 8192


def avro_row_chunks(content: bytes | memoryview, schema_json: str, path: str) -> Iterator[pa.Table]:
    """The rows of one AVRO_DATA block with the columns of its schema, some thousand at a time; at least one
    table. Decoded rows are Python objects at first, and all at once would take many times the block's memory.

    Raises `CorruptFileError`, `SchemaError`.
    """
    arrow, schema = _schemas(schema_json, path)
    what = "an AVRO data block"
    with damage_in(path, what):
        version, count = _HEADER.unpack_from(content)
        if version not in _CONTENT_VERSIONS:
            raise ValueError(f"content version {version}")
    rows, found = _rows(bytes(content), count, schema), 0
    while True:
        with damage_in(path, what):
            chunk = list(itertools.islice(rows, _CHUNK_ROWS))
        if not chunk and found:
            break
        found += len(chunk)
        try:
            table = pa.Table.from_pylist(chunk, schema=arrow)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{path}: the rows of {what} do not fit its schema: {error}") from error
        yield table
        if not chunk:
            break
    if found != count:
        raise CorruptFileError(f"{path}: {what} holds {found} rows, its header says {count}")


def _rows(content: bytes, count: int, schema: ParsedSchema) -> Iterator[Any]:
    """Yields up to `count` + 1 rows, so that the caller notices when there are more than `count`."""
    source, position, end = io.BytesIO(content), _HEADER.size, len(content)
    read, avro = fastavro.schemaless_reader, schema.avro
    for _ in range(max(count, 0) + 1):
        if position == end:
            return
        (length,) = _LENGTH.unpack_from(content, position)
        position += _LENGTH.size
        source.seek(position)
        row = read(source, avro, None)
        position += length
        if length < 0 or source.tell() != position or position > end:
            raise ValueError(f"the row of {length} bytes before byte {position} of {end} has another length")
        yield row


def _schemas(schema_json: str, path: str) -> tuple[pa.Schema, ParsedSchema]:
    try:
        return _parsed_schemas(schema_json)
    except CorruptFileError as error:
        raise CorruptFileError(f"{path}: {str(error).removeprefix(': ')}") from error
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error


@lru_cache(maxsize=64)
def _parsed_schemas(schema_json: str) -> tuple[pa.Schema, ParsedSchema]:
    what = "the schema of a data block"
    avro = parsed_json(schema_json, "", what)
    with damage_in("", what):
        arrow = pa.schema([field_from_avro(field, str(field.get("name"))) for field in avro["fields"]])
        plain = json.dumps(_without_time_types(avro))
    return arrow, parsed_schema(plain, "")


def _without_time_types(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_time_types(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    plain = {key: _without_time_types(value) for key, value in avro.items() if key != "default"}
    if plain.get("logicalType") != "decimal":
        plain.pop("logicalType", None)
    return plain
