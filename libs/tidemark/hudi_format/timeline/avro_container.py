"""Encodes and decodes records of the timeline as Avro object container files, whatever the records mean.

Every non-empty file of the timeline is such a container with one record and codec null (FORMAT.md, section
3.2). The sync marker is derived from the content, so equal records give equal files: a step that is repeated
after a crash can compare the file that exists with the file that it would write.
"""

from __future__ import annotations

import hashlib
import io
import json
from functools import cache
from importlib import resources
from typing import Any, Final, TypeAlias

import fastavro

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.parsed_avro import parsed_container

AvroRecord: TypeAlias = dict[str, Any]
_SYNC_BYTES: Final = 16


@cache
def load_schema(name: str) -> Any:
    """The parsed schema in `resources/<name>.avsc`."""
    text = resources.files("tidemark.hudi_format").joinpath("resources", f"{name}.avsc").read_text("utf-8")
    return fastavro.parse_schema(json.loads(text))


@cache
def _header(schema_name: str) -> bytes:
    """The first bytes of a container file, without the sync marker that follows them."""
    empty = io.BytesIO()
    fastavro.writer(empty, load_schema(schema_name), [], codec="null", sync_marker=bytes(_SYNC_BYTES))
    return empty.getvalue()[:-_SYNC_BYTES]


def _long(value: int) -> bytes:
    """A number that is not negative, as an Avro long."""
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, "long", value)
    return encoded.getvalue()


def encode_container(schema_name: str, record: AvroRecord) -> bytes:
    """One record as an Avro container file. Raises `HudiFormatError` when it does not fit the schema."""
    schema = load_schema(schema_name)
    body = io.BytesIO()
    try:
        fastavro.schemaless_writer(body, schema, record, strict=True)
    except (ValueError, TypeError, KeyError) as error:
        raise HudiFormatError(f"the record does not fit the schema {schema_name}: {error}") from error
    content = body.getvalue()
    sync_marker = hashlib.md5(content, usedforsecurity=False).digest()
    block = _long(1) + _long(len(content)) + content
    return _header(schema_name) + sync_marker + block + sync_marker


def decode_container(data: bytes, path: str) -> AvroRecord:
    """The one record of an Avro container file, read with the schema that the file carries.

    Errors name `path`. Raises `CorruptFileError` when `data` is no container with exactly one record.
    """
    return parsed_container(data, path)
