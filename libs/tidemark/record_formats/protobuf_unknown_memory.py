"""Estimates the memory that the unknown fields of a Protobuf message take when they are read by number.

The parser keeps unknown fields as bytes, which takes no extra memory. Reading their numbers
(`protobuf_unknown`) makes an object for each field, and for each group in it: two bytes of a group take two
hundred in memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# Bytes of the parser's objects for one field or group, with its place in the set; measured, then rounded up.
_FIELD: Final = 120
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
    coarse = len(content) // _BYTES_OF_FIELD * _FIELD + groups * (_GROUP - _FIELD)
    return coarse if coarse <= most else _field_by_field(content, most)


def _field_by_field(content: bytes, most: int) -> int:
    taken = at = 0
    while at < len(content) and taken <= most:
        tag = content[at]
        kind = tag & _KIND
        # Most tags have one byte. A function call for each would take longer than all the rest.
        at = at + 1 if tag < _MORE else _behind_varint(content, at)
        if kind == _END:
            continue
        taken += _GROUP if kind == _BEGIN else _FIELD
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
