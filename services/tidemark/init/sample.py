"""Understands a sample of records: finds their format, their rows, and the columns of the rows.

The bytes tell the format: Confluent's wire format by its header, Debezium by its envelope. Only Protobuf has
to be named by the user, with its descriptor. Records without a row (null values, deletes, unreadable ones)
are counted and left out.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
import msgspec
from google.protobuf.message import Message as ProtobufMessage

from tidemark.config.model import InputFormat
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.hudi_format.avro_indexes import without_negative_indexes
from tidemark.init.columns import Columns, Row, tried_columns
from tidemark.init.protobuf_sample import message_columns, message_rows
from tidemark.init.writer_schema import columns_of, connect_type, image_of
from tidemark.record_formats.avro_schema import AvroSchemaError, AvroType, plain_schema, read_avro_schema
from tidemark.record_formats.decode_protobuf import index_bytes
from tidemark.record_formats.protobuf_message import message_indexes
from tidemark.record_formats.wire_format import HEADER_BYTES, NOT_FRAMED, schema_ids
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.schema_registry.ports import (
    AVRO,
    JSON,
    SchemaSource,
    StoredSchema,
    UnknownSchemaError,
)

POSITION_COLUMN: Final = "source_position"
_DELETE_NAMES: Final = frozenset({"_deleted", "deleted", "is_deleted", "isdeleted", "__deleted"})
_POSITIONS: Final = (("lsn", "source.lsn"), ("scn", "source.scn"), ("ts_ms", "source.ts_ms"))
_BINLOG: Final = frozenset({"file", "pos"})


@dataclass
class Sample:
    """A sample of records as it was understood. `rows[i]` came with the Kafka key `keys[i]`. `framed`: values
    begin with Confluent's header. `position`: where change events have their source's position.
    `deletes`: what deletes by the delete field hold, and `before` of deletes among change events; often the
    record key alone. `passed_over`: the number of
    records without a row.
    """

    messages: Sequence[Message]
    format: InputFormat = InputFormat.JSON
    framed: bool = False
    rows: list[Row] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    deletes: list[Row] = field(default_factory=list)
    columns: Columns = field(default_factory=Columns)
    position: str | None = None
    delete_field: str | None = None
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What the user says about the records. `format` None: find it from the records. `message` is given with
    PROTOBUF only. `delete_field` None: a boolean field with a usual name, if there is one; "": no field.
    """

    format: InputFormat | None = None
    message: type[ProtobufMessage] | None = None
    delete_field: str | None = None


def understand(messages: Sequence[Message], registry: SchemaSource | None, said: Said) -> Sample:
    """The sample of these messages. Raises CliError when no record has a row, when the records do not have
    the format that the user named, or when a registry is needed and not given; RegistryErrors.
    """
    valued = [message for message in messages if message.value]
    sample = Sample(messages)
    ids = schema_ids([message.value or b"" for message in valued])
    # The majority decides, so that a few broken records do not.
    sample.framed = 2 * int((ids != NOT_FRAMED).sum()) > len(valued)
    if said.message is not None:
        _read_protobuf(sample, valued, ids, said.message)
    elif not sample.framed:
        _read_json(sample, valued, said.format)
    elif registry is None:
        raise CliError(
            "the values begin with Confluent's wire format (00 and a schema id): name the registry that has "
            "the schemas, with --schema-registry URL, or for Protobuf its --descriptor FILE"
        )
    else:
        framed = [(record, int(id_)) for record, id_ in zip(valued, ids, strict=True) if id_ != NOT_FRAMED]
        _read_registered(sample, framed, _AskedOnce(registry), said.format)
    with_deletes = sample.rows
    _set_deletes_apart(sample, said.delete_field)
    if sample.format is InputFormat.JSON:
        # Deletes make no rows, but their fields have to fit the columns as well, or they become dead letters.
        sample.columns = tried_columns([_without(row, sample.delete_field) for row in with_deletes])
    sample.passed_over = len(messages) - len(sample.rows)
    if not sample.rows:
        raise CliError(
            f"none of {len(messages)} records holds a row. JSON, Debezium's events and Confluent's Avro are "
            "recognised; Protobuf needs --descriptor FILE and --message NAME"
        )
    sample.columns.refuse_none()
    if said.format not in (None, sample.format):
        raise CliError(f"--format {said.format.value}: the records look like {sample.format.value}")
    return sample


def _read_registered(
    sample: Sample,
    framed: Sequence[tuple[Message, int]],
    registry: _AskedOnce,
    wanted: InputFormat | None,
) -> None:
    """Reads framed values by their kind of schema: that of the newest record whose schema the registry
    has.
    """
    kinds: dict[int, str] = {}
    for _, schema_id in reversed(framed):
        if schema_id not in kinds:
            kinds[schema_id] = _kind(schema_id, registry)
        if kinds[schema_id]:
            break
    kind = next(filter(None, kinds.values()), None)
    if kind == AVRO:
        _read_avro(sample, framed, registry, wanted)
    elif kind == JSON:
        _read_json(sample, [message for message, _ in framed], wanted)
    elif kind is None:
        raise CliError(
            "the registry has none of the schemas that the values name: is it this topic's registry?"
        )
    else:
        raise CliError(
            f"the values have {kind} schemas: give the messages' --descriptor FILE and --message NAME "
            "(docs/inputs.md, Protobuf)"
        )


class _AskedOnce:
    """Asks a registry for each schema id only once, also for ids that it does not have: many records name the
    same few ids.
    """

    def __init__(self, registry: SchemaSource) -> None:
        self._registry = registry
        self._found: dict[int, StoredSchema | UnknownSchemaError] = {}

    def fetch(self, schema_id: int) -> StoredSchema:
        if schema_id not in self._found:
            try:
                self._found[schema_id] = self._registry.fetch(schema_id)
            except UnknownSchemaError as error:
                self._found[schema_id] = error
        answer = self._found[schema_id]
        if isinstance(answer, UnknownSchemaError):
            raise answer
        return answer


def _kind(schema_id: int, registry: _AskedOnce) -> str:
    """The kind of the schema; "" for an id that the registry does not have, as a broken record may name."""
    try:
        return registry.fetch(schema_id).kind
    except UnknownSchemaError:
        return ""


def _read_json(sample: Sample, valued: Sequence[Message], wanted: InputFormat | None) -> None:
    documents = []
    for message in valued:
        content = (message.value or b"")[HEADER_BYTES if sample.framed else 0 :]
        document = json_object(content)
        if document is not None:
            documents.append((document, _json_key(message.key)))
    events = [_payload(document) for document, _ in documents]
    if documents and wanted is not InputFormat.JSON and _most_are_events(events):
        sample.format = InputFormat.DEBEZIUM_JSON
        _take_events(sample, events, [key for _, key in documents])
        schema = _image_schema(documents[-1][0])
        sample.columns = columns_of(schema) if schema is not None else tried_columns(sample.rows)
        return
    sample.rows = [document for document, _ in documents]
    sample.keys = [key for _, key in documents]


def _read_avro(
    sample: Sample, framed: Sequence[tuple[Message, int]], registry: _AskedOnce, wanted: InputFormat | None
) -> None:
    """Reads every record by its own schema; the columns are those of the newest readable record's schema."""
    trees: dict[int, AvroType] = {}
    documents = []
    newest: AvroType | None = None
    why: Exception | None = None
    for message, schema_id in framed:
        try:
            tree = _tree(schema_id, trees, registry)
            document = _avro_value((message.value or b"")[HEADER_BYTES:], tree)
        except (CliError, UnknownSchemaError) as error:
            why = error
            continue
        newest = tree
        documents.append((document, _avro_key(message.key, trees, registry)))
    if newest is None:
        raise CliError(f"no value can be read by the schema that it names: {why}")
    image = image_of(newest) if wanted is not InputFormat.AVRO else None
    sample.format = InputFormat.AVRO if image is None else InputFormat.DEBEZIUM_AVRO
    if image is not None:
        _take_events(sample, [document for document, _ in documents], [key for _, key in documents])
    else:
        sample.rows = [document for document, _ in documents]
        sample.keys = [key for _, key in documents]
    sample.columns = columns_of(image or newest)


def _read_protobuf(
    sample: Sample, valued: Sequence[Message], ids: Iterable[int], message: type[ProtobufMessage]
) -> None:
    """Reads messages with or without Confluent's header. The two cannot be confused: the header begins with a
    zero byte, and no message does.
    """
    prefixes = index_bytes(message_indexes(message.DESCRIPTOR)) if sample.framed else [b""]
    start = HEADER_BYTES if sample.framed else 0
    taken, contents = [], []
    for record, schema_id in zip(valued, ids, strict=True):
        value = record.value or b""
        prefix = next((text for text in prefixes if value.startswith(text, start)), None)
        if prefix is not None and (schema_id != NOT_FRAMED) == sample.framed:
            taken.append(record)
            contents.append(value[start + len(prefix) :])
    sample.format = InputFormat.PROTOBUF
    sample.columns = message_columns(message.DESCRIPTOR)
    sample.columns.refuse_none()
    for record, row in zip(taken, message_rows(message, sample.columns, contents), strict=True):
        if row is not None:
            sample.rows.append(row)
            sample.keys.append(_json_key(record.key))


def _set_deletes_apart(sample: Sample, wanted: str | None) -> None:
    """Removes the delete field from the columns, and the deletes from the rows."""
    if sample.format.is_debezium:
        if wanted:
            raise CliError("--delete-field: change events have `op` to mark deletes", WRONG_USE)
        return
    name = _delete_field(sample.rows) if wanted is None else wanted
    if not name:
        return
    if not any(_is_flag(row.get(name)) for row in sample.rows):
        raise CliError(f"--delete-field: no record of the sample has true or false in {name}", WRONG_USE)
    sample.delete_field = name
    pairs, sample.rows, sample.keys = list(zip(sample.rows, sample.keys, strict=True)), [], []
    for row, key in pairs:
        if row.get(name) in (True, "true"):
            sample.deletes.append(_without(row, name))
        else:
            sample.rows.append(_without(row, name))
            sample.keys.append(key)
    sample.columns.types.pop(name, None)
    sample.columns.notes.pop(name, None)


def _take_events(sample: Sample, events: Sequence[Any], keys: Sequence[Any]) -> None:
    pairs = [(event, key) for event, key in zip(events, keys, strict=True) if _is_event(event)]
    for event, key in pairs:
        if isinstance(event.get("after"), dict):
            sample.rows.append(event["after"])
            sample.keys.append(key)
        elif event.get("op") == "d" and isinstance(event.get("before"), dict):
            sample.deletes.append(event["before"])
    source = pairs[-1][0].get("source") if pairs else None
    source = source if isinstance(source, dict) else {}
    if set(source) >= _BINLOG:
        sample.position = "source.binlog"
    else:
        known = (setting for name, setting in _POSITIONS if source.get(name) is not None)
        sample.position = next(known, None)


def _tree(schema_id: int, trees: dict[int, AvroType], registry: _AskedOnce) -> AvroType:
    if schema_id not in trees:
        stored = registry.fetch(schema_id)
        try:
            trees[schema_id] = read_avro_schema(stored.text, stored.references)
        except AvroSchemaError as error:
            raise CliError(f"schema {schema_id} of the registry: {error}") from None
    return trees[schema_id]


def _avro_value(content: bytes, tree: AvroType) -> Any:
    try:
        schema = without_negative_indexes(fastavro.parse_schema(plain_schema(tree)))
        return fastavro.schemaless_reader(io.BytesIO(content), schema, None)
    except Exception as error:
        raise CliError(f"a value is not of the schema that it names: {error}") from None


def _avro_key(key: bytes | None, trees: dict[int, AvroType], registry: _AskedOnce) -> Any:
    if not key:
        return None
    schema_id = int(schema_ids([key])[0])
    if schema_id == NOT_FRAMED:
        return _json_key(key)
    return _avro_value(key[HEADER_BYTES:], _tree(schema_id, trees, registry))


def json_object(content: bytes) -> dict[str, Any] | None:
    """The JSON object in the bytes; None when they are none."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _json_key(key: bytes | None) -> Any:
    """The key's JSON object, else the key as text; None for an empty key."""
    if not key:
        return None
    document = json_object(key)
    if document is None:
        return key.decode("utf-8", "replace")
    return _payload(document)


def _payload(document: dict[str, Any]) -> Any:
    """The value itself, without the schema that Kafka Connect may send along with it."""
    return document["payload"] if set(document) == {"schema", "payload"} else document


def _most_are_events(documents: Sequence[Any]) -> bool:
    return 2 * sum(map(_is_event, documents)) > len(documents)


def _is_event(event: Any) -> bool:
    return isinstance(event, dict) and "op" in event and "source" in event and "after" in event


def _image_schema(document: dict[str, Any]) -> AvroType | None:
    return image_of(connect_type(document["schema"])) if set(document) == {"schema", "payload"} else None


def _without(row: Row, name: str | None) -> Row:
    return {field: value for field, value in row.items() if field != name}


def _delete_field(documents: Sequence[Row]) -> str | None:
    """A field with a usual name whose values are only true, false and null; None if there is none."""
    values_of: dict[str, list[Any]] = {}
    for document in documents:
        for name, value in document.items():
            if value is not None and name.lower() in _DELETE_NAMES:
                values_of.setdefault(name, []).append(value)
    return next((name for name, values in values_of.items() if all(map(_is_flag, values))), None)


def _is_flag(value: Any) -> bool:
    """Whether the value is true or false, also as text: Debezium's flattened events have `__deleted` as
    text.
    """
    return isinstance(value, bool) or value in ("true", "false")
