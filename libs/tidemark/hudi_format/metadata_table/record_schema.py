"""The Avro schema of the metadata table's records, and decoding of records under another writer's schema
(METADATA_TABLE.md, section 3).

A schema that differs from ours in doc strings only, as Hudi's own does, gives the same binary layout, so the
fast decoders of this package read it. Under any other schema records are read by field name.
"""

from __future__ import annotations

import io
import json
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

import fastavro

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.parsed_avro import parsed_json, parsed_record, parsed_schema

RECORD_TYPE_ALL_PARTITIONS: Final = 1
RECORD_TYPE_FILES: Final = 2
RECORD_TYPE_COLUMN_STATS: Final = 3
RECORD_TYPE_RECORD_INDEX: Final = 5
RECORD_TYPE_SECONDARY_INDEX: Final = 7
META_FIELD_COUNT: Final = 5
_META_PREFIX: Final = "_hoodie_"


@cache
def metadata_record_schema() -> str:
    """The schema in log blocks and base files, as compact JSON: with meta fields, without doc strings."""
    return json.dumps(_record_schema(), separators=(",", ":"))


@cache
def commit_schema() -> str:
    """The schema in the metadata table's commit metadata: without the five meta fields."""
    schema = _record_schema()
    fields = [field for field in schema["fields"] if not field["name"].startswith(_META_PREFIX)]
    return json.dumps({**schema, "fields": fields}, separators=(",", ":"))


@lru_cache(maxsize=32)
def has_own_layout(schema_json: str) -> bool:
    """Whether records under this schema have the same binary layout as under ours."""
    try:
        return bool(_without_docs(parsed_json(schema_json, "", "")) == _without_docs(_record_schema()))
    except CorruptFileError:
        return False


def decode_record(value: bytes, schema_json: str, name: str) -> dict[str, Any]:
    """A record as field name -> value. `name` is the record's file, which errors name. Raises
    CorruptFileError.
    """
    schema = parsed_schema(schema_json or metadata_record_schema(), name)
    record = parsed_record(value, schema, name, f"a metadata record of {len(value)} bytes")
    if not isinstance(record, dict):
        raise CorruptFileError(f"{name}: a metadata record is no Avro record")
    return record


def encode_record(record: dict[str, Any]) -> bytes:
    """A record's value under our own schema. Fields that are left out are null."""
    body = io.BytesIO()
    own = parsed_schema(metadata_record_schema(), "metadata-record.avsc")
    fastavro.schemaless_writer(body, own.avro, record)
    return body.getvalue()


@cache
def _record_schema() -> dict[str, Any]:
    text = (
        resources.files("tidemark.hudi_format")
        .joinpath("resources", "metadata-record.avsc")
        .read_text("utf-8")
    )
    schema: dict[str, Any] = json.loads(text)
    return schema


def _without_docs(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_docs(value) for key, value in node.items() if key != "doc"}
    if isinstance(node, list):
        return [_without_docs(value) for value in node]
    return node
