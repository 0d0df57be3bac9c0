"""`input.format: debezium-json`: change events as Kafka Connect's JSON converter writes them.

An event has its schema with it (``{"schema": …, "payload": …}``) or not. With a schema, numbers and bytes
are read by the logical types that it names (`logical_types`). Without one they are read as in JSON records: a
time is in the column's unit, a decimal is text or a number.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.key_text import keys_from_text
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.record_formats.change_events import ChangeEffects
from tidemark.record_formats.decode_json import JsonDecoder, JsonReading, json_refusal
from tidemark.record_formats.decoder import (
    DecodedRecords,
    Int64Array,
    joined,
    key_columns,
    key_is_missing,
    nothing_decoded,
    widened,
)
from tidemark.record_formats.json_memory import JsonMemory
from tidemark.record_formats.logical_types import (
    INSTANTS,
    LogicalType,
    decimals,
    instants,
    logical_type_of,
    scale_in,
)
from tidemark.record_formats.plain_json import FramedJson, bare
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.record_formats.source_position import EnvelopeOrdering, SourcePosition
from tidemark.record_formats.wire_types import LONG
from tidemark.stream_runtime.kafka.ports import Message

_SCHEMAS_MAX: Final = 256
_PLAIN_BYTES_MAX: Final = 1 << 10
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_Raw = msgspec.Raw | msgspec.UnsetType
_decode_plain: Final = msgspec.json.Decoder().decode


class _Images(NamedTuple):
    """Decoders of the row before an event (only what identifies it) and of the row after it."""

    before: JsonDecoder
    after: JsonDecoder


class DebeziumJson:
    """The `RecordDecoder` of `debezium-json`."""

    tombstones_follow_deletes = True

    def __init__(
        self,
        schema: TableSchema,
        generator: KeyGenerator,
        unknown: UnknownFields,
        ordering: EnvelopeOrdering | None,
        framed: FramedJson | None = None,
        deletes_name_partitions: bool = False,
    ) -> None:
        """``deletes_name_partitions``: the partition of a delete is read, too, and not its key alone."""
        self._schema = schema
        self._columns = pa.schema([column.with_nullable(True) for column in schema.arrow])
        self._generator = generator
        self._unknown = unknown
        self._ordering = ordering
        self._framed = framed
        self._envelope = msgspec.json.Decoder(_envelope_type(ordering.position if ordering else None)).decode
        self._deletes_name_partitions = deletes_name_partitions
        before = key_columns(generator, schema.arrow, with_partition=deletes_name_partitions)
        keys = TableSchema.from_arrow(schema.table_name, before)
        self._keys_schema = keys
        self._plain = _Images(
            JsonDecoder(keys, None, UnknownFields.IGNORE), JsonDecoder(schema, None, unknown)
        )
        self._memory = JsonMemory(self._columns)
        self._by_schema: OrderedDict[bytes, _Images] = OrderedDict()

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        changes = ChangeEffects(self._ordering, self._deletes_name_partitions)
        contents: Sequence[Any] = (
            [messages[i].value or b"" for i in positions] if self._framed is None else ()
        )
        if self._framed is not None:
            contents, positions = self._framed.contents(messages, positions, changes.refused)
        rows: dict[int, tuple[JsonDecoder, list[Any], list[int]]] = {}
        last: tuple[bytes, _Images] = (b"", self._plain)
        decode: Any = self._envelope
        for content, position in zip(contents, positions.tolist(), strict=True):
            try:
                event = outer = decode(content)
                if outer.payload is not msgspec.UNSET:
                    if not _is_there(outer.payload):
                        changes.delete_by_kafka_key(position)
                        continue
                    event = decode(outer.payload)
            except _UNREADABLE as error:
                changes.refuse(position, *json_refusal(error))
                continue
            taken = self._take(changes, event, position)
            if taken is None:
                continue
            written = b"" if outer.schema is msgspec.UNSET else bytes(outer.schema)
            if written != last[0]:
                last = written, self._images_of(written)
            reader: JsonDecoder = getattr(last[1], taken)
            group = rows.setdefault(id(reader), (reader, [], []))
            group[1].append(getattr(event, taken))
            group[2].append(position)
        parts = [
            widened(decoder.decode(images, np.asarray(at, np.int64)), self._columns)
            for decoder, images, at in rows.values()
        ]
        decoded = joined(parts, self._columns) if parts else nothing_decoded(self._columns, [])
        return changes.finish(decoded)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        learnt = max((decoder.learnt_inner for decoder in self._decoders()), default=0)
        return self._memory.of(bare(values, self._framed), most, learnt)

    def _decoders(self) -> Iterator[JsonDecoder]:
        for images in (self._plain, *self._by_schema.values()):
            yield images.after

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        return keys_from_text(keys, self._generator)

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        return key_is_missing(name)

    def _take(self, changes: ChangeEffects, event: Any, position: int) -> str | None:
        taken = changes.takes(position, _plain(event.op), _is_there(event.before), _is_there(event.after))
        if self._ordering is not None:
            holder = event.source if self._ordering.position.in_source else event
            names = self._ordering.position.fields
            changes.stands_at(position, [_plain(getattr(holder, name, msgspec.UNSET)) for name in names])
        return taken

    def _images_of(self, written: bytes) -> _Images:
        """The decoders for rows of one schema, given the schema's text in the envelope."""
        if not written or written == b"null":
            return self._plain
        # Schemas are large and few, so decoders are kept by the digest of the text.
        digest = hashlib.blake2b(written, digest_size=16).digest()
        known = self._by_schema.get(digest)
        if known is None:
            known = self._by_schema[digest] = self._made_for(_readings(written, self._columns))
            while len(self._by_schema) > _SCHEMAS_MAX:
                self._by_schema.popitem(last=False)
        self._by_schema.move_to_end(digest)
        return known

    def _made_for(self, readings: dict[str, JsonReading]) -> _Images:
        if not readings:
            return self._plain
        of_keys = {
            name: reading for name, reading in readings.items() if name in self._keys_schema.arrow.names
        }
        return _Images(
            JsonDecoder(self._keys_schema, None, UnknownFields.IGNORE, of_keys),
            JsonDecoder(self._schema, None, self._unknown, readings),
        )


def _envelope_type(position: SourcePosition | None) -> type[msgspec.Struct]:
    """The type of both the wrapper with its schema and the envelope itself.

    Rows stay raw bytes until their schema is known.
    """
    fields: list[Any] = [
        *((name, _Raw, msgspec.UNSET) for name in ("op", "schema", "payload", "before", "after")),
    ]
    if position is not None:
        taken: list[Any] = [(name, _Raw, msgspec.UNSET) for name in position.fields]
        if position.in_source:
            source = msgspec.defstruct("Source", taken, gc=False)
            fields.append(("source", source | None, None))
        else:
            fields += taken
    return msgspec.defstruct("Envelope", fields, gc=False)


def _plain(raw: Any) -> Any:
    """A scalar of the envelope; None where there is none.

    A value larger than any valid scalar is not decoded: an array in its place could take hundreds of times
    its bytes.
    """
    if raw is msgspec.UNSET or len(raw) > _PLAIN_BYTES_MAX:
        return None
    try:
        return _decode_plain(raw)
    except _UNREADABLE:
        return None


def _is_there(image: Any) -> bool:
    return image is not msgspec.UNSET and bytes(memoryview(image)[:5]) != b"null"


def _readings(written: bytes, columns: pa.Schema) -> dict[str, JsonReading]:
    """How to read the columns that are not written as in JSON records; {} for a schema that
    cannot be used.
    """
    try:
        envelope = msgspec.json.decode(written)
        images = {image.get("field"): image for image in envelope["fields"]}
        fields = (images.get("after") or images["before"])["fields"]
        named = {field["field"]: field for field in fields}
    except (*_UNREADABLE, KeyError, TypeError, AttributeError):
        return {}
    readings = {}
    for column in columns:
        reading = _reading(named.get(column.name), column.type)
        if reading is not None:
            readings[column.name] = reading
    return readings


def _reading(written: Any, arrow: pa.DataType) -> JsonReading | None:
    if not isinstance(written, dict):
        return None
    logical_type = logical_type_of(written.get("name"))
    if pa.types.is_timestamp(arrow) and logical_type in INSTANTS:
        return JsonReading(LONG, partial(instants, logical_type=logical_type, arrow=arrow))
    if pa.types.is_decimal128(arrow) and logical_type is LogicalType.DECIMAL:
        parameters = written.get("parameters")
        scale = scale_in(parameters.get("scale")) if isinstance(parameters, dict) else None
        if scale is not None:
            return JsonReading(bytes, partial(decimals, scale=scale, arrow=arrow))
    return None
