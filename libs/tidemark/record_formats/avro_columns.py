"""Avro's schema resolution: how values of a writer's type become a column of the table.

The conversion of each field is chosen once per schema, and then applied to whole columns. Promotions are
Avro's (int to long, float and double; long to float and double; float to double; string to bytes and back).
Timestamps and decimals are converted by the writer's logical type. A type that cannot be resolved fails
when its schema is seen first, with an error that names the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.record_formats.arrow_columns import Convert, to_arrow
from tidemark.record_formats.avro_schema import AvroType
from tidemark.record_formats.logical_types import (
    INSTANTS,
    LogicalType,
    decimal_texts,
    decimals,
    instants,
    whole_decimals,
)
from tidemark.record_formats.nested_columns import list_column, missing, offsets, struct_column
from tidemark.record_formats.refusals import DeadLetterReason

_WHOLE: Final = ("int", "long")
_NUMBERS: Final[Mapping[pa.DataType, tuple[str, ...]]] = {
    pa.int32(): ("int",),
    pa.int64(): ("int", "long"),
    pa.float32(): ("int", "long", "float"),
    pa.float64(): ("int", "long", "float", "double"),
}
_TYPE_OF: Final[Mapping[str, type]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "string": str,
    "enum": str,
    "record": dict,
    "map": dict,
    "array": list,
}


class UnresolvedError(Exception):
    """A writer's type cannot be read as a column's type; the text names the field."""

    def __init__(
        self, path: str, problem: str, reason: DeadLetterReason = DeadLetterReason.INCOMPATIBLE_SCHEMA
    ) -> None:
        super().__init__(f"field {path}: {problem}")
        self.reason = reason


def converter(avro: AvroType, arrow: pa.DataType, path: str, strict: bool) -> Convert:
    """Returns the function that converts values of the Avro type to an array of type ``arrow``.

    ``path``: the field's name for errors. ``strict``: nested fields that the column lacks are an error.
    Raises UnresolvedError.
    """
    if avro.kind == "union":
        return _union(avro, arrow, path, strict)
    if avro.kind == "null":
        return lambda values: pa.nulls(len(values), arrow)
    if pa.types.is_struct(arrow) and avro.kind == "record":
        return _struct(avro, arrow, path, strict)
    if pa.types.is_list(arrow) and avro.kind == "array" and avro.item is not None:
        items = _element(avro.item, arrow.value_field, f"{path}[]", strict)
        return partial(list_column, items, arrow)
    if pa.types.is_map(arrow) and avro.kind == "map" and avro.item is not None:
        return partial(_maps, _element(avro.item, arrow.item_field, f"{path}[]", strict), arrow)
    scalar = _scalar(avro, arrow)
    if scalar is None:
        raise UnresolvedError(path, f"the writer has {avro.shown}, the column is {arrow}")
    return scalar


def _union(avro: AvroType, arrow: pa.DataType, path: str, strict: bool) -> Convert:
    """The converter of a union, which chooses a branch by the Python type of the value.

    Branches with the same Python type are served if it does not matter which one a value is of (`_alike`).
    """
    branches = [branch for branch in avro.branches if branch.kind != "null"]
    if len(branches) == 1:
        return converter(branches[0], arrow, path, strict)
    by_type: dict[type, Convert] = {}
    seen: dict[type, AvroType] = {}
    for branch in branches:
        kind = _TYPE_OF[branch.kind]
        if kind in seen and not _alike(seen[kind], branch):
            raise UnresolvedError(path, f"the writer has {avro.shown}, whose values cannot be told apart")
        seen[kind] = branch
        try:
            by_type[kind] = converter(branch, arrow, path, strict)
        except UnresolvedError:
            continue
    if branches and not by_type:
        raise UnresolvedError(path, f"the writer has {avro.shown}, the column is {arrow}")
    return partial(_by_type, by_type, arrow)


def _alike(first: AvroType, second: AvroType) -> bool:
    """Whether it does not matter to which of two branches a value belongs: plain numbers, and plain text."""
    plain = first.logical_type is second.logical_type is LogicalType.PLAIN
    return plain and _TYPE_OF[first.kind] in (int, float, str)


def _by_type(by_type: Mapping[type, Convert], arrow: pa.DataType, values: Sequence[Any]) -> pa.Array:
    # Each branch converts a column that has null where a value is of another branch; then the first value
    # that is not null is taken: [1, "a"] becomes [1, null] and [null, "a"], which are coalesced.
    parts = [pa.nulls(len(values), arrow)]
    known = {type(None), *by_type}
    for value in values:
        if type(value) not in known:
            raise TypeError(f"{type(value).__name__} is not served here")
    for kind, convert in by_type.items():
        parts.append(convert([value if type(value) is kind else None for value in values]))
    return pc.coalesce(*parts)


def _scalar(avro: AvroType, arrow: pa.DataType) -> Convert | None:
    kind, logical_type = avro.kind, avro.logical_type
    if arrow in _NUMBERS:
        return _number(kind, arrow) if kind in _NUMBERS[arrow] else None
    if pa.types.is_boolean(arrow):
        return partial(pa.array, type=arrow) if kind == "boolean" else None
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        if logical_type is LogicalType.DECIMAL:
            return None
        return _text_or_bytes(kind, arrow)
    if pa.types.is_decimal128(arrow):
        if kind == "string":
            return partial(decimal_texts, arrow=arrow)
        if kind in ("bytes", "fixed") and logical_type is LogicalType.DECIMAL and avro.scale is not None:
            return partial(decimals, scale=avro.scale, arrow=arrow)
        plain = kind in _WHOLE and logical_type is LogicalType.PLAIN
        return partial(whole_decimals, arrow=arrow) if plain else None
    if kind == "string" and (pa.types.is_timestamp(arrow) or pa.types.is_date32(arrow)):
        return partial(to_arrow, arrow=arrow)
    if pa.types.is_timestamp(arrow):
        served = kind in _WHOLE and logical_type in (LogicalType.PLAIN, *INSTANTS)
        return partial(instants, logical_type=logical_type, arrow=arrow) if served else None
    if pa.types.is_date32(arrow):
        served = kind == "int" and logical_type in (LogicalType.PLAIN, LogicalType.DATE)
        return (lambda values: pa.array(values, pa.int32()).view(arrow)) if served else None
    return None


def _number(kind: str, arrow: pa.DataType) -> Convert:
    if kind in _WHOLE and pa.types.is_floating(arrow):
        # Avro's promotion to float or double gives the nearest number, so inexact results are no error.
        return lambda values: pa.array(values, pa.int64()).cast(arrow, safe=False)
    return partial(pa.array, type=arrow)


def _text_or_bytes(kind: str, arrow: pa.DataType) -> Convert | None:
    if pa.types.is_string(arrow):
        if kind in ("string", "enum"):
            return partial(pa.array, type=arrow)
        return (lambda values: pa.array(values, pa.binary()).cast(arrow)) if kind == "bytes" else None
    if kind in ("bytes", "fixed"):
        return partial(pa.array, type=arrow)
    return (lambda values: pa.array(values, pa.string()).cast(arrow)) if kind == "string" else None


def _element(avro: AvroType, field: pa.Field, path: str, strict: bool) -> Convert:
    convert = converter(avro, field.type, path, strict)
    return convert if field.nullable else partial(_required, convert, path)


def fields_beyond(avro: AvroType, columns: Iterable[pa.Field], path: str = "") -> Iterator[str]:
    """Yields the fields of a writer's record that have no column, nested ones with their path
    (`customer.zip`).
    """
    known = {column.name: column.type for column in columns}
    for name, written in (avro.fields or {}).items():
        shown = f"{path}.{name}" if path else name
        if name in known:
            yield from _beyond_value(written, known[name], shown)
        else:
            yield shown


def _beyond_value(avro: AvroType, arrow: pa.DataType, path: str) -> Iterator[str]:
    if avro.kind == "union":
        for branch in avro.branches:
            yield from _beyond_value(branch, arrow, path)
    elif avro.kind == "record" and pa.types.is_struct(arrow):
        yield from fields_beyond(avro, [arrow.field(i) for i in range(arrow.num_fields)], path)
    elif avro.item is not None and avro.kind == "array" and pa.types.is_list(arrow):
        yield from _beyond_value(avro.item, arrow.value_type, f"{path}[]")
    elif avro.item is not None and avro.kind == "map" and pa.types.is_map(arrow):
        yield from _beyond_value(avro.item, arrow.item_type, f"{path}[]")


def _required(convert: Convert, path: str, values: Sequence[Any]) -> pa.Array:
    array = convert(values)
    if array.null_count:
        raise ValueError(f"{path} must not be null")
    return array


def _struct(avro: AvroType, arrow: pa.StructType, path: str, strict: bool) -> Convert:
    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    written = avro.fields or {}
    if strict:
        for name in written:
            if arrow.get_field_index(name) < 0:
                raise UnresolvedError(
                    f"{path}.{name}", "the table's schema lacks it", DeadLetterReason.UNKNOWN_FIELD
                )
    children: list[tuple[pa.Field, Convert | None]] = []
    for field in fields:
        if field.name in written:
            child = converter(written[field.name], field.type, f"{path}.{field.name}", strict)
            children.append((field, child))
        elif field.nullable:
            children.append((field, None))
        else:
            raise UnresolvedError(
                f"{path}.{field.name}", "the writer lacks it, and it must not be null or missing"
            )
    return partial(_structs, children)


def _structs(children: Sequence[tuple[pa.Field, Convert | None]], values: Sequence[Any]) -> pa.Array:
    arrays = [
        pa.nulls(len(values), field.type)
        if convert is None
        else convert([None if value is None else value[field.name] for value in values])
        for field, convert in children
    ]
    return struct_column([field for field, _ in children], arrays, values)


def _maps(items: Convert, arrow: pa.MapType, values: Sequence[Any]) -> pa.Array:
    keys = pa.array(list(chain.from_iterable(value for value in values if value)), arrow.key_type)
    flat = items(list(chain.from_iterable(value.values() for value in values if value)))
    return pa.MapArray.from_arrays(offsets(values), keys, flat, type=arrow, mask=missing(values))
