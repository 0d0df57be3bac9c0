"""Columns of a Protobuf message type, and rows of its messages. The descriptor has every type, so none is
guessed.

Rows are made by the converters that the assigners use, so a record that becomes a row here becomes one there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tidemark.console.errors import WRONG_USE, CliError
from tidemark.hudi_format.schema import TableSchema
from tidemark.init.columns import DATE, TIMESTAMP_MICROS, Avro, Columns, Row, nested_fields
from tidemark.init.draft import record_schema
from tidemark.record_formats.columns import ColumnReader, fill_columns
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.protobuf_columns import (
    DATE_MESSAGE,
    TIMESTAMP_MESSAGE,
    WRAPPERS,
    converter,
    is_map,
    values_of,
)
from tidemark.record_formats.protobuf_message import message_class, message_names

_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "long",
    FieldDescriptor.CPPTYPE_UINT32: "long",
    FieldDescriptor.CPPTYPE_UINT64: "long",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_ENUM: "string",
    FieldDescriptor.CPPTYPE_STRING: "string",
}
_SHOWN_MAX: Final = 20
_HOW: Final = "protoc --include_imports --descriptor_set_out=orders.desc orders.proto"


def chosen_message(descriptor: Path | None, name: str | None) -> type[Message]:
    """The class of the message of that name; without a name that of the descriptor's only message. Raises
    CliError.
    """
    if descriptor is None:
        raise CliError(f"Protobuf needs a descriptor: --descriptor FILE, made by {_HOW}", WRONG_USE)
    if not descriptor.is_file():
        raise CliError(f"--descriptor: there is no file {descriptor}; make it with {_HOW}", WRONG_USE)
    try:
        if name is None:
            name = _only(descriptor, message_names(descriptor))
        return message_class(descriptor, name)
    except SetupError as error:
        text = str(error).replace("input.protobuf.message", "--message")
        raise CliError(text.replace("input.protobuf.descriptor", "--descriptor"), WRONG_USE) from None


def _only(descriptor: Path, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    there = ", ".join(names[:_SHOWN_MAX]) + (", …" if len(names) > _SHOWN_MAX else "")
    raise CliError(f"{descriptor} has {there or 'no message'}: say which with --message", WRONG_USE)


def message_columns(described: Any) -> Columns:
    """The columns of a message type; a field that cannot be a column has a note."""
    columns = Columns()
    for field in described.fields:
        name, note = str(field.name), ""
        avro = _column(name, field, (described.full_name,))
        if avro is None:
            note = f"left out: {_shown(field)} cannot be a column"
        elif field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
            note = "unsigned: a record with more than 2^63 - 1 becomes a dead letter"
        columns.add(name, avro, note)
    return columns


def message_rows(message: type[Message], columns: Columns, contents: Sequence[bytes]) -> list[Row | None]:
    """One row per content, in the same order; None for bytes that are no such message, or a message with a
    value that does not fit its column.
    """
    read: list[Message] = []
    kept: list[int] = []
    for at, content in enumerate(contents):
        try:
            read.append(message.FromString(content))
        except DecodeError:
            continue
        kept.append(at)
    schema = TableSchema.from_avro(json.dumps(record_schema("sample", columns, ()))).arrow
    fields = message.DESCRIPTOR.fields_by_name
    readers = []
    for column in schema:
        field = fields[column.name]
        readers.append(ColumnReader(values_of(field), converter(field, column.type, column.name)))
    # Rows and messages differ in number: with contents [message, garbage, message] `kept` is [0, 2], and the
    # rows that are filled name these positions.
    positions = np.asarray(kept, np.int64)
    filled = fill_columns(schema, readers, read, positions, np.zeros(len(read), np.bool_))
    rows: list[Row | None] = [None] * len(contents)
    for position, row in zip(filled.positions.tolist(), filled.rows.to_pylist(), strict=True):
        rows[position] = row
    return rows


def _column(name: str, field: Any, within: tuple[str, ...]) -> Avro | None:
    if is_map(field):
        entry = field.message_type.fields_by_name
        if entry["key"].cpp_type != FieldDescriptor.CPPTYPE_STRING:
            return None
        value = _single(name, entry["value"], within)
        return None if value is None else {"type": "map", "values": ["null", value]}
    single = _single(name, field, within)
    if single is None or not field.is_repeated:
        return single
    return {"type": "array", "items": ["null", single]}


def _single(name: str, field: Any, within: tuple[str, ...]) -> Avro | None:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "bytes"
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return _SCALARS[field.cpp_type]
    described = field.message_type
    full_name = described.full_name
    if full_name in WRAPPERS:
        return _single(name, described.fields_by_name["value"], within)
    if full_name == TIMESTAMP_MESSAGE:
        return dict(TIMESTAMP_MICROS)
    if full_name == DATE_MESSAGE:
        return dict(DATE)
    if full_name in within:
        return None
    inner = {str(part.name): part for part in described.fields}
    fields = nested_fields(
        {key: _column(f"{name}_{key}", part, (*within, full_name)) for key, part in inner.items()}
    )
    return {"type": "record", "name": name, "fields": fields} if fields else None


def _shown(field: Any) -> str:
    """What to call the field's type in a note: the message's name."""
    return str(field.message_type.full_name) if field.message_type is not None else "its name"
