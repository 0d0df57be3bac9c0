"""AVRO_DATA log blocks, as Spark writes them by default, decoded to Arrow (Hudi format notes 4.3).

Content, big-endian: int 3, int number of records, then per record int length and the Avro binary of one
row under the block's SCHEMA header. Dates and timestamps are decoded as bare numbers, which Arrow takes
as they are.
"""

from __future__ import annotations

import io
import json
import struct
from functools import lru_cache
from typing import Any, Final

import fastavro
import pyarrow as pa

from hudi_format.avro_types import field_from_avro
from hudi_format.errors import CorruptFileError

_HEADER: Final = struct.Struct(">ii")
_LENGTH_BYTES: Final = 4
_CONTENT_VERSIONS: Final = (1, 2, 3)


def decode_avro_rows(content: bytes | memoryview, schema_json: str, path: str) -> pa.Table:
    """All rows of one AVRO_DATA block, with the columns of its schema. Raises `CorruptFileError`,
    `SchemaError`.
    """
    arrow, avro = _schemas(schema_json)
    source = io.BytesIO(content)
    try:
        version, count = _HEADER.unpack(source.read(_HEADER.size))
        if version not in _CONTENT_VERSIONS:
            raise CorruptFileError(f"{path}: AVRO data block of content version {version}")
        rows = []
        for _ in range(count):
            source.seek(_LENGTH_BYTES, io.SEEK_CUR)
            rows.append(fastavro.schemaless_reader(source, avro, None))
    except (struct.error, EOFError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CorruptFileError(f"{path}: AVRO data block cannot be decoded: {error}") from error
    return pa.Table.from_pylist(rows, schema=arrow)


@lru_cache(maxsize=64)
def _schemas(schema_json: str) -> tuple[pa.Schema, Any]:
    avro = json.loads(schema_json)
    arrow = pa.schema([field_from_avro(field, str(field.get("name"))) for field in avro["fields"]])
    return arrow, fastavro.parse_schema(_without_time_types(avro))


def _without_time_types(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_time_types(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    plain = {key: _without_time_types(value) for key, value in avro.items() if key != "default"}
    if plain.get("logicalType") != "decimal":
        plain.pop("logicalType", None)
    return plain
