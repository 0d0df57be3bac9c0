"""`input.format: protobuf`: messages of one type, plain or in Confluent's wire format.

A descriptor file describes the type. A newer field that the file lacks is dropped, or its record refused
(`input.unknown_fields`). Protobuf's own parser reads the messages; it limits nesting to 100 levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.key_text import keys_from_text
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator
from tidemark.record_formats.columns import ColumnReader, fill_columns
from tidemark.record_formats.decoder import BoolArray, DecodedRecords, Int64Array, RowTarget, key_is_missing
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.protobuf_columns import ProtobufFieldError, converter, values_of
from tidemark.record_formats.protobuf_memory import ProtobufMemory
from tidemark.record_formats.protobuf_message import message_indexes
from tidemark.record_formats.protobuf_unknown import FieldsBeyond
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.record_formats.wire_format import HEADER_BYTES, NOT_FRAMED, schema_ids, why_not_framed
from tidemark.stream_runtime.kafka.ports import Message as Record


class ProtobufDecoder:
    """The `RecordDecoder` of `protobuf`. ``confluent``: values have the wire format. Their schema ids are
    not looked up, since the descriptor file describes the type.
    """

    tombstones_follow_deletes = False

    def __init__(
        self, message: type[Message], target: RowTarget, generator: KeyGenerator, confluent: bool
    ) -> None:
        """Raises SetupError when a field of the message cannot fill its column."""
        self._message = message
        self._target = target
        self._generator = generator
        described = message.DESCRIPTOR
        self._indexes = index_bytes(message_indexes(described)) if confluent else None
        try:
            self._readers = [_reader(message, field) for field in target.columns]
            self._flags = _delete_flags(message, target.delete_field)
            aside = (target.delete_field,) if target.delete_field is not None else ()
            self._beyond = FieldsBeyond.of(described, target.columns, aside)
            reads_unknown = target.unknown is not UnknownFields.IGNORE
            self._memory = ProtobufMemory(described, target.columns, reads_unknown)
        except ProtobufFieldError as error:
            raise SetupError(f"input.protobuf.message {described.full_name}: field {error}") from None

    def decode(self, messages: Sequence[Record], positions: Int64Array) -> DecodedRecords:
        refused: list[Refusal] = []
        read: list[Any] = []
        kept: list[int] = []
        for content, position in self._contents(messages, positions, refused):
            try:
                record = self._message.FromString(content)
            except DecodeError as error:
                detail = f"no message {self._message.DESCRIPTOR.full_name}: {error}"
                refused.append(Refusal(position, DeadLetterReason.NOT_PROTOBUF, detail[:300]))
                continue
            unknown = self._unknown(record) if self._target.forbid_unknown else None
            if unknown is not None:
                detail = f"field {unknown}, which the table's schema lacks"
                refused.append(Refusal(position, DeadLetterReason.UNKNOWN_FIELD, detail))
                continue
            read.append(record)
            kept.append(position)
        at: Int64Array = np.asarray(kept, np.int64)
        decoded = fill_columns(self._target.columns, self._readers, read, at, self._deletes(read))
        dropped = self._beyond.found(read, at) if self._target.unknown is UnknownFields.DROP else {}
        return replace(decoded, refused=refused + decoded.refused, dropped=dropped)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        return self._memory.of([self._content(value) or b"" for value in values], most)

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        return keys_from_text(keys, self._generator)

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        return key_is_missing(name)

    def _contents(
        self, messages: Sequence[Record], positions: Int64Array, refused: list[Refusal]
    ) -> list[tuple[bytes, int]]:
        values = [messages[i].value or b"" for i in positions]
        if self._indexes is None:
            return list(zip(values, positions.tolist(), strict=True))
        contents = []
        for value, position, schema_id in zip(values, positions.tolist(), schema_ids(values), strict=True):
            if schema_id == NOT_FRAMED:
                refused.append(Refusal(position, DeadLetterReason.NOT_FRAMED, why_not_framed(value)))
                continue
            content = self._content(value)
            if content is None:
                detail = (
                    f"the value is not of message {self._message.DESCRIPTOR.full_name}, says its index "
                    f"({value[HEADER_BYTES : HEADER_BYTES + 4].hex()} …)"
                )
                refused.append(Refusal(position, DeadLetterReason.INCOMPATIBLE_SCHEMA, detail))
                continue
            contents.append((content, position))
        return contents

    def _content(self, value: bytes) -> bytes | None:
        """The message without its header; None where the header names another message type."""
        if self._indexes is None:
            return value
        start = next((i for i in self._indexes if value.startswith(i, HEADER_BYTES)), None)
        return None if start is None else value[HEADER_BYTES + len(start) :]

    def _deletes(self, records: Sequence[Any]) -> BoolArray:
        if self._flags is None:
            return np.zeros(len(records), np.bool_)
        return np.fromiter((flag is True for flag in self._flags(records)), np.bool_, len(records))

    def _unknown(self, record: Any) -> str | None:
        known = {*self._target.columns.names, self._target.delete_field}
        for field, _ in record.ListFields():
            if field.name not in known:
                return str(field.name)
        unknown: Any = UnknownFieldSet(record)
        return f"number {unknown[0].field_number}" if len(unknown) else None


def _reader(message: type[Message], field: pa.Field) -> ColumnReader:
    described = message.DESCRIPTOR.fields_by_name.get(field.name)
    if described is None:
        return ColumnReader(lambda records: range(len(records)), partial(_nulls, field.type))
    return ColumnReader(values_of(described), converter(described, field.type, field.name))


def _nulls(arrow: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.nulls(len(values), arrow)


def _delete_flags(message: type[Message], name: str | None) -> Callable[[Sequence[Any]], list[Any]] | None:
    described = message.DESCRIPTOR.fields_by_name.get(name) if name is not None else None
    if described is None:
        return None
    convert, taken = converter(described, pa.bool_(), described.name), values_of(described)
    return lambda records: convert(taken(records)).to_pylist() if records else []


def index_bytes(indexes: Sequence[int]) -> list[bytes]:
    """The encodings of the message's indexes that may be in front of it, in Confluent's wire format.

    Their number, then each index, as zigzag varints; the indexes [0] may also be written as one zero byte.
    """
    written = b"".join(_varint(number << 1) for number in (len(indexes), *indexes))
    return [b"\x00", written] if list(indexes) == [0] else [written]


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
