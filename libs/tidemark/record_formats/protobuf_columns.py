"""Chooses how the values of each Protobuf field become a column of the table, once per message type.

============================ ==============================================================================
integers                     int (32 bits), long; above 2^63 - 1 a record is refused
float, double, bool, bytes   the same; float also as double
string                       string; date, timestamp and decimal as text
enum                         string (its name), int, long
google.protobuf.Timestamp    timestamp; fractions finer than the column's unit are cut
google.protobuf.*Value       as the value, null where it is not set
google.type.Date             date
message, repeated, map       nested record, array, map with string keys
============================ ==============================================================================

A field with presence is null where it is not set. A proto3 field without ``optional`` has no presence, and
is never null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from tidemark.record_formats.arrow_columns import Convert, to_arrow
from tidemark.record_formats.logical_types import LogicalType, decimal_texts, instants, whole_decimals
from tidemark.record_formats.nested_columns import list_column, missing, offsets, struct_column

TIMESTAMP_MESSAGE: Final = "google.protobuf.Timestamp"
DATE_MESSAGE: Final = "google.type.Date"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_WHOLE: Final = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)
_NUMBERS: Final[Mapping[pa.DataType, tuple[int, ...]]] = {
    pa.int32(): (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_ENUM),
    pa.int64(): (*_WHOLE, FieldDescriptor.CPPTYPE_ENUM),
    pa.float32(): (FieldDescriptor.CPPTYPE_FLOAT,),
    pa.float64(): (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE),
    pa.bool_(): (FieldDescriptor.CPPTYPE_BOOL,),
}


class ProtobufFieldError(Exception):
    """A field cannot fill its column; the text names both."""


# `Any`, because each implementation of the parser has its own class of descriptors, other than the type
# stubs'.
def values_of(field: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """Returns a function that takes messages and returns the field's values.

    A value is None where the field is not set, or the message itself is None.
    """
    name = field.name
    if field.has_presence:
        return lambda messages: [
            getattr(m, name) if m is not None and m.HasField(name) else None for m in messages
        ]
    getter = attrgetter(name)
    return lambda messages: [None if m is None else getter(m) for m in messages]


def converter(field: Any, arrow: pa.DataType, path: str) -> Convert:
    """Returns the function that converts the field's values to an array of type ``arrow``.

    ``path``: the field's name for errors. Raises ProtobufFieldError when the field cannot fill such a column.
    """
    if is_map(field):
        return _map(field, arrow, path)
    if field.is_repeated:
        if not pa.types.is_list(arrow):
            raise _misfit(field, arrow, path)
        return partial(list_column, _element(field, arrow.value_field, f"{path}[]"), arrow)
    return _single(field, arrow, path)


def _single(field: Any, arrow: pa.DataType, path: str) -> Convert:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message(field, arrow, path)
    scalar = _scalar(field, arrow)
    if scalar is None:
        raise _misfit(field, arrow, path)
    return scalar


def _scalar(field: Any, arrow: pa.DataType) -> Convert | None:
    kind = field.cpp_type
    is_text = kind == FieldDescriptor.CPPTYPE_STRING and field.type != FieldDescriptor.TYPE_BYTES
    if arrow in _NUMBERS:
        return partial(pa.array, type=arrow) if kind in _NUMBERS[arrow] else None
    if pa.types.is_string(arrow) and kind == FieldDescriptor.CPPTYPE_ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return partial(_enum_names, names)
    if pa.types.is_string(arrow):
        return partial(pa.array, type=arrow) if is_text else None
    if pa.types.is_binary(arrow):
        return partial(pa.array, type=arrow) if field.type == FieldDescriptor.TYPE_BYTES else None
    if pa.types.is_decimal128(arrow):
        if is_text:
            return partial(decimal_texts, arrow=arrow)
        return partial(whole_decimals, arrow=arrow) if kind in _WHOLE else None
    if pa.types.is_timestamp(arrow) or pa.types.is_date32(arrow):
        days = pa.types.is_date32(arrow) and kind == FieldDescriptor.CPPTYPE_INT32
        ticks = pa.types.is_timestamp(arrow) and kind == FieldDescriptor.CPPTYPE_INT64
        return partial(to_arrow, arrow=arrow) if is_text or days or ticks else None
    return None


def _message(field: Any, arrow: pa.DataType, path: str) -> Convert:
    described = field.message_type
    name = described.full_name
    if name in WRAPPERS:
        inner = _single(described.fields_by_name["value"], arrow, path)
        return lambda values: inner([None if v is None else v.value for v in values])
    if name == TIMESTAMP_MESSAGE and pa.types.is_timestamp(arrow):
        return partial(_timestamps, arrow)
    if name == DATE_MESSAGE and pa.types.is_date32(arrow):
        return lambda values: pa.array(
            [None if v is None else date(v.year, v.month, v.day) for v in values], arrow
        )
    if not pa.types.is_struct(arrow):
        raise _misfit(field, arrow, path)
    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    return partial(_structs, [_member(described, member, path) for member in fields])


def _member(
    described: Any, field: pa.Field, path: str
) -> tuple[pa.Field, Callable[[Sequence[Any]], list[Any]] | None, Convert]:
    described_field = described.fields_by_name.get(field.name)
    if described_field is not None:
        return (
            field,
            values_of(described_field),
            converter(described_field, field.type, f"{path}.{field.name}"),
        )
    if not field.nullable:
        raise ProtobufFieldError(f"{path}.{field.name}: message {described.full_name} has no such field")
    return field, None, lambda values: pa.nulls(len(values), field.type)


def _structs(members: Sequence[tuple[pa.Field, Any, Convert]], values: Sequence[Any]) -> pa.Array:
    arrays = [convert(values if taken is None else taken(values)) for _, taken, convert in members]
    return struct_column([field for field, _, _ in members], arrays, values)


def _element(field: Any, wanted: pa.Field, path: str) -> Convert:
    return _single(field, wanted.type, path)


def _map(field: Any, arrow: pa.DataType, path: str) -> Convert:
    entry = field.message_type.fields_by_name
    if not pa.types.is_map(arrow) or entry["key"].cpp_type != FieldDescriptor.CPPTYPE_STRING:
        raise _misfit(field, arrow, path)
    return partial(_maps, _element(entry["value"], arrow.item_field, f"{path}[]"), arrow)


def _maps(items: Convert, arrow: pa.MapType, values: Sequence[Any]) -> pa.Array:
    # All maps become one column of keys and one of items, with offsets: {"a": 1, "b": 2} and {"c": 3} give
    # the keys a, b, c, the items 1, 2, 3, and the offsets [0, 2, 3].
    pairs = [list(value.items()) if value else [] for value in values]
    keys = pa.array([key for entries in pairs for key, _ in entries], arrow.key_type)
    flat = items([item for entries in pairs for _, item in entries])
    return pa.MapArray.from_arrays(offsets(pairs), keys, flat, type=arrow, mask=missing(values))


def _timestamps(arrow: pa.TimestampType, values: Sequence[Any]) -> pa.Array:
    micros = [None if v is None else v.seconds * 1_000_000 + v.nanos // 1_000 for v in values]
    return instants(micros, LogicalType.MICROS, arrow)


def _enum_names(names: Mapping[int, str], values: Sequence[Any]) -> pa.Array:
    """The names of an enum's numbers. Raises ValueError for a number that the descriptor does not name."""
    try:
        return pa.array([None if value is None else names[value] for value in values], pa.string())
    except KeyError as error:
        raise ValueError(f"the enum has no value {error}") from None


def is_map(field: Any) -> bool:
    """Whether the field is a `map<…>`."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _misfit(field: Any, arrow: pa.DataType, path: str) -> ProtobufFieldError:
    kind = field.message_type.full_name if field.message_type is not None else _kind_name(field)
    return ProtobufFieldError(f"{path}: the message has {kind}, the column is {arrow}")


def _kind_name(field: Any) -> str:
    names = {value: name for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
    return names.get(field.type, "TYPE_?").removeprefix("TYPE_").lower()
