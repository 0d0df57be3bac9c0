"""Fields of Protobuf messages that the table lacks: of the descriptor, and of newer ones by number.

Column by column, nested messages with their owners; a field counts where it is set (in proto3 without
``optional``: where it is not its zero).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from tidemark.record_formats.decoder import DROPPED_MAX, MORE_FIELDS, BoolArray, Int64Array
from tidemark.record_formats.protobuf_columns import DATE_MESSAGE, TIMESTAMP_MESSAGE, WRAPPERS, is_map

_Inner = Callable[[Sequence[Any]], tuple[list[Any], Int64Array]]
"""Messages of a type to those of one of its fields, and per inner message the place of its outer one."""


@dataclass(frozen=True)
class FieldsBeyond:
    """Of one message type against its columns. ``lacking``: shown names, and which messages have it."""

    path: str
    lacking: Sequence[tuple[str, Callable[[Sequence[Any]], BoolArray]]]
    inner: Sequence[tuple[_Inner, FieldsBeyond]]

    @classmethod
    def of(
        cls, described: Any, columns: Iterable[pa.Field], aside: Collection[str] = (), path: str = ""
    ) -> FieldsBeyond:
        """``aside``: fields that have no column and say something else."""
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
        """By the shown name of a field: the positions of the records that have it, ascending."""
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
        # A message that was read whole has no such fields: two calls into C a message tell. A set takes many
        # times the memory of its fields: none is kept while the next one is made.
        sets: Any = map(UnknownFieldSet, messages)
        for at in np.flatnonzero(np.fromiter(map(len, sets), np.int64, len(messages))):
            for number in _numbers(messages[at]):
                name = f"number {number}"
                _add(names, f"{self.path}.{name}" if self.path else name, positions[at : at + 1])
        for taken, beyond in self.inner:
            below, owners = taken(messages)
            beyond._collect(below, positions[owners], names)


def _numbers(message: Any) -> set[int]:
    unknown: Any = UnknownFieldSet(message)
    return {each.field_number for each in unknown}


def _add(names: dict[str, list[Int64Array]], name: str, positions: Int64Array) -> None:
    kept = name if name in names or len(names) < DROPPED_MAX else MORE_FIELDS
    names.setdefault(kept, []).append(positions)


# Descriptors are of another class than their type stubs say, by the parser's implementation: hence Any.
def _presence(field: Any) -> Callable[[Sequence[Any]], BoolArray]:
    name = field.name
    if field.has_presence:
        return lambda messages: np.fromiter((m.HasField(name) for m in messages), np.bool_, len(messages))
    return lambda messages: np.fromiter((bool(getattr(m, name)) for m in messages), np.bool_, len(messages))


def _inner(field: Any, arrow: pa.DataType, path: str) -> list[tuple[_Inner, FieldsBeyond]]:
    """The field's own messages, where its column has fields of their own."""
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


def _each(groups: Sequence[Any]) -> tuple[list[Any], Int64Array]:
    sizes = np.fromiter(map(len, groups), np.int64, len(groups))
    return list(chain.from_iterable(groups)), np.repeat(np.arange(len(groups)), sizes)
