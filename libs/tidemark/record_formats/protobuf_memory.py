"""Estimates the memory that Protobuf messages take at most once they are decoded, from the number of their
elements.

A message may hold any number of inner messages of two bytes each. The parser itself counts them, level by
level:

1. It reads the message as one of a *flat* type, in which inner messages are plain bytes. So it makes no
   objects of them, and the number of elements of each field is known.
2. The bytes of all inner messages of a type are joined. Protobuf reads them as one message with all their
   elements, because that is how it merges messages. That one is read in the same way.
3. When the known fields are cleared, the unknown ones are left.

The parser keeps unknown fields as bytes, which takes no extra memory. Reading their numbers
(`protobuf_unknown`) makes an object for each field, and for each group in it: two bytes of a group take two
hundred in memory. So they are counted by number (`unknown_bytes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tidemark.record_formats.decoded_memory import SLOT, SYMBOL, TEXT, filled_bytes
from tidemark.record_formats.decoder import Int64Array

# Bytes of the parser's objects for one unknown field or group, with its place in the set; measured, then
# rounded up.
_UNKNOWN_FIELD: Final = 120
_GROUP: Final = 224
_BYTES_OF_FIELD: Final = 2
UNKNOWN_PER_BYTE: Final = _GROUP // _BYTES_OF_FIELD
"""The most bytes of memory per byte of unknown fields."""
# The low three bits of a tag say what follows: a varint, eight bytes, a length with so many bytes, the
# begin or the end of a group, four bytes.
_KIND: Final = 7
_VARINT, _EIGHT, _LENGTH, _BEGIN, _END, _FOUR = range(6)
_MORE: Final = 0x80


def unknown_bytes(content: bytes, most: int) -> int:
    """The most bytes of memory that the fields take; if that is above ``most``, any number above ``most``.

    ``content``: encoded fields that the parser has accepted.
    """
    # A cheap estimate first: a byte whose low bits are those of a group's begin counts as a group, whatever
    # it is. Only when that is above `most` are the fields read one by one.
    groups = int(np.count_nonzero(np.frombuffer(content, np.uint8) & _KIND == _BEGIN))
    coarse = len(content) // _BYTES_OF_FIELD * _UNKNOWN_FIELD + groups * (_GROUP - _UNKNOWN_FIELD)
    return coarse if coarse <= most else _field_by_field(content, most)


def _field_by_field(content: bytes, most: int) -> int:
    taken = at = 0
    end = len(content)
    while at < end and taken <= most:
        tag = content[at]
        kind = tag & _KIND
        # Most tags and numbers have one byte. A function call for each would take longer than all the rest.
        at = at + 1 if tag < _MORE else _behind_varint(content, at)
        if kind == _END:
            continue
        taken += _GROUP if kind == _BEGIN else _UNKNOWN_FIELD
        if kind == _VARINT:
            at = at + 1 if content[at] < _MORE else _behind_varint(content, at)
        elif kind == _LENGTH:
            start, at = at, _behind_varint(content, at)
            at += _varint(content[start:at])
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
    return taken


def _behind_varint(content: bytes, at: int) -> int:
    while content[at] >= _MORE:
        at += 1
    return at + 1


def _varint(parts: bytes) -> int:
    return sum((part & _MORE - 1) << 7 * place for place, part in enumerate(parts))


# Bytes of the parser's messages and Python's objects for them, with their places in lists; measured,
# rounded up.
_MESSAGE: Final = 384
_FIELD: Final = 16
_ENTRY: Final = 384
_TEXT: Final = 128
_NUMBER: Final = 80
_BOOLEAN: Final = 32
_BYTES_OF_ELEMENT: Final = 2
"""The fewest. A packed number may have one byte, but Python keeps a single object of each such small
number.
"""
_LEVELS_MAX: Final = 100
_COUNTED_FROM: Final = 16 << 10
"""Messages of fewer bytes are not counted: they cannot take much."""
_Field = descriptor_pb2.FieldDescriptorProto


@dataclass
class _Kind:
    """The costs of one message type, in bytes of memory.

    ``cost``: of one message without its elements. ``flat``: see the module, step 1. ``repeated``: field ->
    cost of one element. ``inner``: field -> its message type. ``longest_name``: cost of the longest name of
    an enum's values.
    """

    cost: int
    flat: type[Message]
    repeated: dict[str, int] = field(default_factory=dict)
    inner: dict[str, _Kind] = field(default_factory=dict)
    has_groups: bool = False
    longest_name: int = 0


class ProtobufMemory:
    """Estimates for the messages of one type."""

    def __init__(self, described: Any, columns: pa.Schema, reads_unknown: bool = True) -> None:
        """``described``: the type's descriptor; ``reads_unknown``: whether the decoder reads unknown
        fields.
        """
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._record = SLOT * len(columns) + sum(filled_bytes(column.type) for column in columns)
        self._root = self._kind(described, {column.name: column.type for column in columns})
        kinds = self._kinds.values()
        costs = [cost for kind in kinds for cost in kind.repeated.values()]
        costs += [inner.cost for kind in kinds for inner in kind.inner.values()]
        rate = max(costs, default=0) // _BYTES_OF_ELEMENT + bool(costs)
        # For an enum's packed number of one byte a column may hold the value's name.
        self._rate = rate + max(kind.longest_name for kind in kinds)
        self._has_groups = any(kind.has_groups for kind in kinds)
        self._unknown = UNKNOWN_PER_BYTE if reads_unknown else 0

    def of(self, contents: Sequence[bytes], most: int) -> Int64Array:
        """The most bytes of memory that each content takes; counted where the estimate by size is above
        ``most``.
        """
        sizes = np.fromiter(map(len, contents), np.int64, len(contents))
        fixed = sizes * TEXT + self._record + self._root.cost
        # Unknown fields are read message by message, so those of small messages can be neglected.
        large = sizes > _COUNTED_FROM
        memory: Int64Array = fixed + sizes * np.where(large, max(self._rate, self._unknown), self._rate)
        if self._has_groups or int(memory.sum()) <= most:
            return memory
        for at in np.flatnonzero(large):
            counted = self._counted(contents[at], most - int(fixed[at]))
            memory[at] = min(int(memory[at]), int(fixed[at]) + counted)
        return memory

    def _counted(self, content: bytes, most: int) -> int:
        """The memory of all elements, level by level, until that is above ``most``."""
        total = 0
        level = {id(self._root): (self._root, [content])}
        for _ in range(_LEVELS_MAX):
            below: dict[int, tuple[_Kind, list[bytes]]] = {}
            for kind, joined in level.values():
                total += self._count(kind, b"".join(joined), most, below)
            level = below
            if not level or total > most:
                break
        return total

    def _count(
        self, kind: _Kind, joined: bytes, most: int, below: dict[int, tuple[_Kind, list[bytes]]]
    ) -> int:
        """The memory of a message's elements; the bytes of inner messages are added to ``below``."""
        try:
            flat: Any = kind.flat.FromString(joined)
        except DecodeError:
            # The decoder will fail at the same place, but it reads what comes before: the whole is
            # estimated by size.
            return len(joined) * max(self._rate, self._unknown)
        total = sum(len(getattr(flat, name)) * cost for name, cost in kind.repeated.items())
        total += sum(len(getattr(flat, name)) * inner.cost for name, inner in kind.inner.items())
        for name, inner in kind.inner.items():
            parts = getattr(flat, name)
            if parts and total <= most and (self._unknown or inner.repeated or inner.inner):
                below.setdefault(id(inner), (inner, []))[1].append(b"".join(parts))
        if self._unknown and total <= most:
            for known in flat.DESCRIPTOR.fields:
                flat.ClearField(known.name)
            total += unknown_bytes(flat.SerializeToString(), most - total)
        return total

    def _kind(self, described: Any, columns: Mapping[str, pa.DataType]) -> _Kind:
        """The costs of a message type that fills these columns. Each pair of both is made once, so types
        that contain each other end.
        """
        shown = str(sorted((name, str(arrow)) for name, arrow in columns.items()))
        known = self._kinds.get((described.full_name, shown))
        if known is not None:
            return known
        fields = list(described.fields)
        names = [_name_bytes(described_field) for described_field in fields]
        cost = _MESSAGE + _FIELD * len(fields) + sum(map(filled_bytes, columns.values())) + sum(names)
        kind = _Kind(cost, _flat(described), longest_name=max(names, default=0))
        self._kinds[described.full_name, shown] = kind
        for member in fields:
            below = _below(columns.get(member.name))
            if member.type == FieldDescriptor.TYPE_GROUP:
                kind.has_groups = True
                kind.repeated[member.name] = _MESSAGE + _FIELD * len(member.message_type.fields)
            elif member.message_type is not None:
                kind.inner[member.name] = self._kind(member.message_type, below)
                if member.message_type.GetOptions().map_entry:
                    kind.repeated[member.name] = _ENTRY
            elif member.is_repeated:
                kind.repeated[member.name] = _element(member)
        return kind


def _below(arrow: pa.DataType | None) -> dict[str, pa.DataType]:
    """The columns that messages in a field of this column fill: name -> type."""
    if arrow is None:
        return {}
    if pa.types.is_list(arrow):
        return _below(arrow.value_type)
    if pa.types.is_map(arrow):
        return {"value": arrow.item_type}
    if pa.types.is_struct(arrow):
        return {arrow.field(i).name: arrow.field(i).type for i in range(arrow.num_fields)}
    return {}


def _element(described: Any) -> int:
    if described.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _BOOLEAN
    number = _NUMBER + _name_bytes(described)
    return _TEXT if described.cpp_type == FieldDescriptor.CPPTYPE_STRING else number


def _name_bytes(described: Any) -> int:
    """The memory of the longest name of an enum's values, which a column may hold for a number; else 0."""
    if described.cpp_type != FieldDescriptor.CPPTYPE_ENUM:
        return 0
    return SYMBOL * max(len(value.name) for value in described.enum_type.values)


def _flat(described: Any) -> type[Message]:
    """A message type with the same fields, in which text and message fields are bytes. Parsing with it counts
    elements without building nested messages.
    """
    file = descriptor_pb2.FileDescriptorProto(name="flat.proto", package="flat", syntax="proto2")
    made = file.message_type.add(name="Flat")
    for member in described.fields:
        if member.type == FieldDescriptor.TYPE_GROUP:
            continue
        is_message = member.message_type is not None
        kind = member.type
        if is_message or member.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            kind = _Field.TYPE_BYTES
        elif member.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            kind = _Field.TYPE_INT32
        many = is_message or member.is_repeated
        label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
        made.field.add(name=member.name, number=member.number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    flat: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName("flat.Flat"))
    return flat
