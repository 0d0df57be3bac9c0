"""Finds fields of Protobuf messages that the table's schema lacks.

Fields of the descriptor are found by name, fields that the descriptor lacks by number. A field counts where
it is set; a proto3 field without ``optional`` where it is not zero. Nested messages of all records are
checked together, field by field, each with the position of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from tidemark.record_formats.decoder import DROPPED_MAX, MORE_FIELDS, BoolArray, Int64Array
from tidemark.record_formats.nested_columns import at_once
from tidemark.record_formats.protobuf_columns import DATE_MESSAGE, TIMESTAMP_MESSAGE, WRAPPERS, is_map

_Inner = Callable[[Sequence[Any]], Iterator[tuple[list[Any], Int64Array]]]
"""Messages -> the messages in one of their fields, and per inner message the position of its outer one; in
parts, none of which is empty."""


@dataclass(frozen=True)
class FieldsBeyond:
    """The fields of one message type that have no column.

    ``lacking``: a field's name as shown, and a function that says which messages have it. ``inner``: the
    same for message types in its fields.
    """

    path: str
    lacking: Sequence[tuple[str, Callable[[Sequence[Any]], BoolArray]]]
    inner: Sequence[tuple[_Inner, FieldsBeyond]]

    @classmethod
    def of(
        cls, described: Any, columns: Iterable[pa.Field], aside: Collection[str] = (), path: str = ""
    ) -> FieldsBeyond:
        """Compares a descriptor with the columns.

        ``aside``: fields without a column that are read for another purpose (the delete field).
        """
        known = {column.name: column.type for column in columns}
        lacking, inner = [], []
        for field in described.fields:
            shown = f"{path}.{field.name}" if path else field.name
            if field.name in known:
                inner += _inner(field, known[field.name], shown)
            elif field.name not in aside:
                lacking.append((shown, _presence(field)))
        return cls(path, lacking, inner)

    def found(self, messages: Sequence[Any], positions: Int64Array) -> dict[str, Int64Array]:
        """Returns field name as shown -> positions of the records that have the field, ascending."""
        names: dict[str, list[Int64Array]] = {}
        self._collect(messages, positions, names)
        return {name: np.unique(np.concatenate(at)) for name, at in names.items()}

    def _collect(
        self, messages: Sequence[Any], positions: Int64Array, names: dict[str, list[Int64Array]]
    ) -> None:
        if not messages:
            return
        for shown, present in self.lacking:
            has = present(messages)
            if has.any():
                _add(names, shown, positions[has])
        for at, message in enumerate(messages):
            for number in _numbers(message):
                name = f"number {number}"
                _add(names, f"{self.path}.{name}" if self.path else name, positions[at : at + 1])
        for taken, beyond in self.inner:
            for below, owners in taken(messages):
                beyond._collect(below, positions[owners], names)


def _numbers(message: Any) -> Collection[int]:
    """Most messages have no unknown fields, and two calls into C find that out. A set of them takes many
    times the memory and the time of its fields: it is made once, and gone when the next one is made.
    """
    unknown: Any = UnknownFieldSet(message)
    return {field.field_number for field in unknown} if len(unknown) else ()


def _add(names: dict[str, list[Int64Array]], name: str, positions: Int64Array) -> None:
    kept = name if name in names or len(names) < DROPPED_MAX else MORE_FIELDS
    names.setdefault(kept, []).append(positions)


# `Any`, because each implementation of the parser has its own class of descriptors, other than the type
# stubs'.
def _presence(field: Any) -> Callable[[Sequence[Any]], BoolArray]:
    name = field.name
    if field.has_presence:
        return lambda messages: np.fromiter((m.HasField(name) for m in messages), np.bool_, len(messages))
    return lambda messages: np.fromiter((bool(getattr(m, name)) for m in messages), np.bool_, len(messages))


def _inner(field: Any, arrow: pa.DataType, path: str) -> list[tuple[_Inner, FieldsBeyond]]:
    """How to reach the messages in the field and what to check in them, if its column has fields itself."""
    name = field.name
    if is_map(field):
        value = field.message_type.fields_by_name["value"]
        if pa.types.is_map(arrow) and _is_plain(value, arrow.item_type):
            below = FieldsBeyond.of(value.message_type, _members(arrow.item_type), (), f"{path}[]")
            return [(lambda messages: _each([getattr(m, name).values() for m in messages]), below)]
    elif field.is_repeated:
        if pa.types.is_list(arrow) and _is_plain(field, arrow.value_type):
            below = FieldsBeyond.of(field.message_type, _members(arrow.value_type), (), f"{path}[]")
            return [(lambda messages: _each([getattr(m, name) for m in messages]), below)]
    elif _is_plain(field, arrow):
        below = FieldsBeyond.of(field.message_type, _members(arrow), (), path)
        return [
            (
                lambda messages: _each([[getattr(m, name)] if m.HasField(name) else [] for m in messages]),
                below,
            )
        ]
    return []


def _is_plain(field: Any, arrow: pa.DataType) -> bool:
    described = field.message_type
    special = (*WRAPPERS, TIMESTAMP_MESSAGE, DATE_MESSAGE)
    return described is not None and described.full_name not in special and bool(pa.types.is_struct(arrow))


def _members(arrow: pa.StructType) -> list[pa.Field]:
    return [arrow.field(i) for i in range(arrow.num_fields)]


def _each(groups: Sequence[Any]) -> Iterator[tuple[list[Any], Int64Array]]:
    """The elements of all groups, and each element's group: [a, b], [], [c] give a, b, c and [0, 0, 2]. In
    parts as long as `at_once` says.
    """
    sizes = np.fromiter(map(len, groups), np.int64, len(groups))
    owners, begin = np.repeat(np.arange(len(groups)), sizes), 0
    for elements in at_once(chain.from_iterable(groups)):
        yield elements, owners[begin : begin + len(elements)]
        begin += len(elements)
