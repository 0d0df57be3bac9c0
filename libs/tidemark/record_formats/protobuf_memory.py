"""How much memory Protobuf messages take at most once they are decoded, by the number of their elements.

A message may hold any number of others in two bytes each. They are counted by the parser itself, level by
level: it reads a message as one of a type whose inner messages are plain bytes, which makes no object of
them. The bytes of all inner messages of a type, one behind the other, are one message of that type again,
with all their elements (that is how Protobuf merges messages). What the parser then takes out of its known
fields are the unknown ones alone.

The parser keeps unknown fields as bytes, which costs nothing. Who asks which they are (`protobuf_unknown`)
gets an object for each, with all groups in them: two bytes of a group take two hundred in memory. So they are
counted by number (`unknown_bytes`).
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

# Of the parser's objects for one field, with its place in the set; measured, then rounded up.
_UNKNOWN_FIELD: Final = 120
_GROUP: Final = 224
_BYTES_OF_FIELD: Final = 2
UNKNOWN_PER_BYTE: Final = _GROUP // _BYTES_OF_FIELD
"""At most."""
# A tag's low three bits say what follows: a varint, eight bytes, a length with so many bytes, the begin or
# the end of a group, four bytes.
_KIND: Final = 7
_VARINT, _EIGHT, _LENGTH, _BEGIN, _END, _FOUR = range(6)
_MORE: Final = 0x80


def unknown_bytes(content: bytes, most: int) -> int:
    """What the fields take, at most; of what takes more than ``most``, more than that. ``content``: fields
    that the parser has read, and no others.
    """
    groups = int(np.count_nonzero(np.frombuffer(content, np.uint8) & _KIND == _BEGIN))
    coarse = len(content) // _BYTES_OF_FIELD * _UNKNOWN_FIELD + groups * (_GROUP - _UNKNOWN_FIELD)
    return coarse if coarse <= most else _field_by_field(content, most)


def _field_by_field(content: bytes, most: int) -> int:
    taken = at = 0
    while at < len(content) and taken <= most:
        tag = content[at]
        kind = tag & _KIND
        # Most tags have one byte: a call for each would take longer than all else.
        at = at + 1 if tag < _MORE else _behind_varint(content, at)
        if kind == _END:
            continue
        taken += _GROUP if kind == _BEGIN else _UNKNOWN_FIELD
        if kind == _VARINT:
            at = _behind_varint(content, at)
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


# Of the parser's messages and Python's objects for them, with their places in lists; measured, rounded up.
_MESSAGE: Final = 384
_FIELD: Final = 16
_ENTRY: Final = 384
_TEXT: Final = 128
_NUMBER: Final = 80
_BOOLEAN: Final = 32
_BYTES_OF_ELEMENT: Final = 2
"""At least. A packed number may have one byte: Python keeps one object of each of those."""
_LEVELS_MAX: Final = 100
_COUNTED_FROM: Final = 16 << 10
"""Bytes of a message that is worth counting."""
_Field = descriptor_pb2.FieldDescriptorProto


@dataclass
class _Kind:
    """One message type. ``cost``: of one message without what it holds; ``repeated``: by field, what one
    element of it takes; ``inner``: by field, its message type; ``longest_name``: of an enum's values.
    """

    cost: int
    flat: type[Message]
    repeated: dict[str, int] = field(default_factory=dict)
    inner: dict[str, _Kind] = field(default_factory=dict)
    has_groups: bool = False
    longest_name: int = 0


class ProtobufMemory:
    """Of the messages of one type."""

    def __init__(self, described: Any, columns: pa.Schema, reads_unknown: bool = True) -> None:
        """``described``: the type's descriptor; ``reads_unknown``: whether unknown fields are asked for."""
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._record = SLOT * len(columns) + sum(filled_bytes(each.type) for each in columns)
        self._root = self._kind(described, {each.name: each.type for each in columns})
        kinds = self._kinds.values()
        costs = [cost for kind in kinds for cost in kind.repeated.values()]
        costs += [each.cost for kind in kinds for each in kind.inner.values()]
        rate = max(costs, default=0) // _BYTES_OF_ELEMENT + bool(costs)
        # A column holds the name for a packed number of one byte.
        self._rate = rate + max(kind.longest_name for kind in kinds)
        self._has_groups = any(kind.has_groups for kind in kinds)
        self._unknown = UNKNOWN_PER_BYTE if reads_unknown else 0

    def of(self, contents: Sequence[bytes], most: int) -> Int64Array:
        """Of each content, in bytes; exact where one takes more than ``most``."""
        sizes = np.fromiter(map(len, contents), np.int64, len(contents))
        fixed = sizes * TEXT + self._record + self._root.cost
        # Unknown fields are read message by message: those of small ones take nothing that counts.
        large = sizes > _COUNTED_FROM
        memory: Int64Array = fixed + sizes * np.where(large, max(self._rate, self._unknown), self._rate)
        if self._has_groups or int(memory.sum()) <= most:
            return memory
        for at in np.flatnonzero(large):
            counted = self._counted(contents[at], most - int(fixed[at]))
            memory[at] = min(int(memory[at]), int(fixed[at]) + counted)
        return memory

    def _counted(self, content: bytes, most: int) -> int:
        """What the elements take, on all levels; of what takes more than ``most``, on the first of them."""
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
        """What the elements of a message take, without what is in them: that goes to ``below``."""
        try:
            flat: Any = kind.flat.FromString(joined)
        except DecodeError:
            # Whoever reads the message stops there as well, but has read what comes before.
            return len(joined) * max(self._rate, self._unknown)
        total = sum(len(getattr(flat, name)) * cost for name, cost in kind.repeated.items())
        total += sum(len(getattr(flat, name)) * inner.cost for name, inner in kind.inner.items())
        for name, inner in kind.inner.items():
            parts = getattr(flat, name)
            if parts and total <= most and (self._unknown or inner.repeated or inner.inner):
                below.setdefault(id(inner), (inner, []))[1].append(b"".join(parts))
        if self._unknown and total <= most:
            for each in flat.DESCRIPTOR.fields:
                flat.ClearField(each.name)
            total += unknown_bytes(flat.SerializeToString(), most - total)
        return total

    def _kind(self, described: Any, columns: Mapping[str, pa.DataType]) -> _Kind:
        """Of the descriptor, filling columns below ``columns``; types that hold each other are made once."""
        shown = str(sorted((name, str(arrow)) for name, arrow in columns.items()))
        known = self._kinds.get((described.full_name, shown))
        if known is not None:
            return known
        fields = list(described.fields)
        names = [_name_bytes(each) for each in fields]
        cost = _MESSAGE + _FIELD * len(fields) + sum(map(filled_bytes, columns.values())) + sum(names)
        kind = _Kind(cost, _flat(described), longest_name=max(names, default=0))
        self._kinds[described.full_name, shown] = kind
        for each in fields:
            below = _below(columns.get(each.name))
            if each.type == FieldDescriptor.TYPE_GROUP:
                kind.has_groups = True
                kind.repeated[each.name] = _MESSAGE + _FIELD * len(each.message_type.fields)
            elif each.message_type is not None:
                kind.inner[each.name] = self._kind(each.message_type, below)
                if each.message_type.GetOptions().map_entry:
                    kind.repeated[each.name] = _ENTRY
            elif each.is_repeated:
                kind.repeated[each.name] = _element(each)
        return kind


def _below(arrow: pa.DataType | None) -> dict[str, pa.DataType]:
    """The columns that the messages of a field fill, by name."""
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
    """What the longest name of an enum's values takes: a column may hold it for a number."""
    if described.cpp_type != FieldDescriptor.CPPTYPE_ENUM:
        return 0
    return SYMBOL * max(len(each.name) for each in described.enum_type.values)


def _flat(described: Any) -> type[Message]:
    """The type with the same fields, but bytes for texts and messages, however many of the latter."""
    file = descriptor_pb2.FileDescriptorProto(name="flat.proto", package="flat", syntax="proto2")
    made = file.message_type.add(name="Flat")
    for each in described.fields:
        if each.type == FieldDescriptor.TYPE_GROUP:
            continue
        is_message = each.message_type is not None
        kind = each.type
        if is_message or each.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            kind = _Field.TYPE_BYTES
        elif each.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            kind = _Field.TYPE_INT32
        many = is_message or each.is_repeated
        label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
        made.field.add(name=each.name, number=each.number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    flat: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName("flat.Flat"))
    return flat
