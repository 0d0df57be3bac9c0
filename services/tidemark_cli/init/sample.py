"""What a sample of records is: its format, its rows, and the columns they make.

Told from the bytes alone: Confluent's wire format by its header, Debezium by its envelope. Values that hold
no row (nulls, deletes, what cannot be read) are counted and passed over.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
import msgspec

from index_assigner.formats.avro_schema import AvroSchemaError, AvroType, plain_schema, read_avro_schema
from index_assigner.formats.wire_format import HEADER_BYTES, NOT_FRAMED, schema_ids
from stream_runtime.config.model import InputFormat
from stream_runtime.kafka.ports import Message
from stream_runtime.schema_registry.ports import AVRO, JSON, SchemaSource
from tidemark_cli.errors import CliError
from tidemark_cli.init.columns import Columns, Row, infer_columns
from tidemark_cli.init.writer_schema import columns_of, connect_type, image_of

POSITION_COLUMN: Final = "source_position"
_DELETE_NAMES: Final = frozenset({"_deleted", "deleted", "is_deleted", "isdeleted", "__deleted"})
_POSITIONS: Final = (("lsn", "source.lsn"), ("scn", "source.scn"), ("ts_ms", "source.ts_ms"))
_BINLOG: Final = frozenset({"file", "pos"})


@dataclass
class Sample:
    """`rows[i]` came with the Kafka key `keys[i]`. `passed_over`: records without a row."""

    messages: Sequence[Message]
    format: InputFormat = InputFormat.JSON
    framed: bool = False
    rows: list[Row] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    columns: Columns = field(default_factory=Columns)
    position: str | None = None
    delete_field: str | None = None
    passed_over: int = 0


def understand(messages: Sequence[Message], registry: SchemaSource | None) -> Sample:
    """Raises CliError when no record has a row, or a registry is needed and not given; RegistryErrors."""
    valued = [message for message in messages if message.value]
    sample = Sample(messages)
    ids = schema_ids([message.value or b"" for message in valued])
    sample.framed = bool(valued) and bool((ids != NOT_FRAMED).all())
    if sample.framed and registry is None:
        raise CliError(
            "the values begin with Confluent's wire format (00 and a schema id): name the registry that has "
            "the schemas, with --schema-registry URL"
        )
    kind = ""
    if sample.framed and registry is not None:
        kind = registry.fetch(int(ids[-1])).kind
        if kind not in (AVRO, JSON):
            raise CliError(
                f"the values have {kind} schemas: write the configuration by hand (docs/inputs.md, Protobuf)"
            )
    if kind == AVRO and registry is not None:
        _read_avro(sample, valued, [int(each) for each in ids], registry)
    else:
        _read_json(sample, valued)
    sample.passed_over = len(messages) - len(sample.rows)
    if not sample.rows:
        raise CliError(
            f"none of {len(messages)} records holds a row. JSON, Debezium's events and Confluent's Avro are "
            "understood (a Protobuf topic's configuration is written by hand: docs/inputs.md)"
        )
    return sample


def _read_json(sample: Sample, valued: Sequence[Message]) -> None:
    documents = []
    for message in valued:
        content = (message.value or b"")[HEADER_BYTES if sample.framed else 0 :]
        document = json_object(content)
        if document is not None:
            documents.append((document, _json_key(message.key)))
    events = [_payload(document) for document, _ in documents]
    if documents and all(_is_event(event) for event in events):
        sample.format = InputFormat.DEBEZIUM_JSON
        _take_events(sample, events, [key for _, key in documents])
        schema = _image_schema(documents[-1][0])
        sample.columns = columns_of(schema) if schema is not None else infer_columns(sample.rows)
        return
    sample.delete_field = _delete_field([document for document, _ in documents])
    for document, key in documents:
        if sample.delete_field is None or document.get(sample.delete_field) is not True:
            sample.rows.append({k: v for k, v in document.items() if k != sample.delete_field})
            sample.keys.append(key)
    sample.columns = infer_columns(sample.rows)


def _read_avro(sample: Sample, valued: Sequence[Message], ids: Sequence[int], registry: SchemaSource) -> None:
    """The newest record's schema makes the columns; every record is read by its own."""
    trees: dict[int, AvroType] = {}
    documents = []
    for message, schema_id in zip(valued, ids, strict=True):
        tree = _tree(schema_id, trees, registry)
        document = _avro_value((message.value or b"")[HEADER_BYTES:], tree)
        documents.append((document, _avro_key(message.key, trees, registry)))
    newest = trees[ids[-1]]
    image = image_of(newest)
    sample.format = InputFormat.AVRO if image is None else InputFormat.DEBEZIUM_AVRO
    if image is not None:
        _take_events(sample, [document for document, _ in documents], [key for _, key in documents])
    else:
        sample.rows = [document for document, _ in documents]
        sample.keys = [key for _, key in documents]
    sample.columns = columns_of(image or newest)


def _take_events(sample: Sample, events: Sequence[Any], keys: Sequence[Any]) -> None:
    for event, key in zip(events, keys, strict=True):
        if isinstance(event.get("after"), dict):
            sample.rows.append(event["after"])
            sample.keys.append(key)
    source = events[-1].get("source")
    source = source if isinstance(source, dict) else {}
    if set(source) >= _BINLOG:
        sample.position = "source.binlog"
    else:
        known = (setting for name, setting in _POSITIONS if source.get(name) is not None)
        sample.position = next(known, None)


def _tree(schema_id: int, trees: dict[int, AvroType], registry: SchemaSource) -> AvroType:
    if schema_id not in trees:
        stored = registry.fetch(schema_id)
        try:
            trees[schema_id] = read_avro_schema(stored.text, stored.references)
        except AvroSchemaError as error:
            raise CliError(f"schema {schema_id} of the registry: {error}") from None
    return trees[schema_id]


def _avro_value(content: bytes, tree: AvroType) -> Any:
    try:
        return fastavro.schemaless_reader(io.BytesIO(content), plain_schema(tree), None)
    except Exception as error:
        raise CliError(f"a value is not of the schema that it names: {error}") from None


def _avro_key(key: bytes | None, trees: dict[int, AvroType], registry: SchemaSource) -> Any:
    if not key:
        return None
    schema_id = int(schema_ids([key])[0])
    if schema_id == NOT_FRAMED:
        return _json_key(key)
    return _avro_value(key[HEADER_BYTES:], _tree(schema_id, trees, registry))


def json_object(content: bytes) -> dict[str, Any] | None:
    """None for what is no JSON object."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _json_key(key: bytes | None) -> Any:
    """The JSON of the key fields, or the key as text."""
    if not key:
        return None
    document = json_object(key)
    if document is None:
        return key.decode("utf-8", "replace")
    return _payload(document)


def _payload(document: dict[str, Any]) -> Any:
    """Without the schema that Kafka Connect may send along."""
    return document["payload"] if set(document) == {"schema", "payload"} else document


def _is_event(event: Any) -> bool:
    return isinstance(event, dict) and "op" in event and "source" in event and "after" in event


def _image_schema(document: dict[str, Any]) -> AvroType | None:
    return image_of(connect_type(document["schema"])) if set(document) == {"schema", "payload"} else None


def _delete_field(documents: Sequence[dict[str, Any]]) -> str | None:
    for document in documents:
        for name, value in document.items():
            if name.lower() in _DELETE_NAMES and isinstance(value, bool):
                return name
    return None
