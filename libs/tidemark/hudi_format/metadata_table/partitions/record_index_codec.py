"""Values of record index entries: Avro HoodieMetadataRecord of type 5 (METADATA_TABLE.md, section 6.1).

A value depends on location and instant only, so the entries of a commit share few distinct values: a value is
encoded or decoded once, and the column is made from a dictionary. A file id of the form `<uuid>-<n>`, or a
bare UUID, takes encoding 0: two longs and an int. Every other id takes encoding 1: the text itself.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import avro_string, zigzag_varint
from tidemark.hudi_format.errors import CorruptFileError, damage_in
from tidemark.hudi_format.metadata_table.partitions.plain_values import split_plain
from tidemark.hudi_format.metadata_table.record_schema import (
    META_FIELD_COUNT,
    RECORD_TYPE_RECORD_INDEX,
    decode_record,
    has_own_layout,
)
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.parsed_avro import read_varint

_UUID_FILE_ID: Final = re.compile(
    r"^(?P<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:-(?P<index>0|[1-9]\d{0,9}))?$"
)
_ENCODING_UUID: Final = 0
_ENCODING_TEXT: Final = 1
_NO_INDEX: Final = -1
_INT_MAX: Final = 2**31 - 1
_KNOWN_VALUES_MAX: Final = 1 << 14  # about 8 MB
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
# Five null meta fields, the empty key, the type, and null for the payloads before recordIndexMetadata.
_PREFIX: Final = (
    _NULL * META_FIELD_COUNT + avro_string("") + zigzag_varint(RECORD_TYPE_RECORD_INDEX) + _NULL * 3
)
# position and, after the record, SecondaryIndexMetadata.
_SUFFIX: Final = _NULL * 2

_Decoded = tuple[RecordLocation, int]
_Place = tuple[str | None, int | None, int | None, int | None, str | None]
"""Partition path, high and low bits of a UUID, index, and text of a file id."""


def encode_values(
    location_ids: npt.NDArray[np.int32], locations: list[RecordLocation], instant_ms: npt.NDArray[np.int64]
) -> pa.BinaryArray:
    """One value per entry. Every id names a location: none is -1."""
    if not location_ids.size:
        return pa.array([], pa.binary())
    # A pair (location, instant) becomes one number, so that Arrow finds the distinct pairs: with 2 instants
    # location 1 and instant 0 are 1 * 2 + 0 = 2.
    instants = pa.array(instant_ms).dictionary_encode()
    count = len(instants.dictionary)
    pairs = pa.array(location_ids.astype(np.int64) * count + instants.indices.to_numpy()).dictionary_encode()
    known_instants = instants.dictionary.to_pylist()
    values = [
        _encode_value(locations[pair // count], known_instants[pair % count])
        for pair in pairs.dictionary.to_pylist()
    ]
    return pa.array(values, pa.binary()).take(pairs.indices)


def _encode_value(location: RecordLocation, instant_ms: int) -> bytes:
    match = _UUID_FILE_ID.match(location.file_id)
    index = int(match["index"]) if match is not None and match["index"] is not None else _NO_INDEX
    if match is not None and index <= _INT_MAX:
        number = uuid.UUID(match["uuid"]).int
        high, low = _signed(number >> 64), _signed(number & (2**64 - 1))
        file_id, encoding = "", _ENCODING_UUID
    else:
        high = low = index = _NO_INDEX
        file_id, encoding = location.file_id, _ENCODING_TEXT
    fields = (
        avro_string(location.partition_path), zigzag_varint(high), zigzag_varint(low), zigzag_varint(index),
        avro_string(file_id), zigzag_varint(instant_ms),
    )  # fmt: skip
    nullable = b"".join(_PRESENT + field for field in fields)
    return _PREFIX + _PRESENT + nullable + zigzag_varint(encoding) + _SUFFIX


def decode_values(
    values: pa.BinaryArray, schema: str, name: str
) -> tuple[npt.NDArray[np.int32], list[RecordLocation], npt.NDArray[np.int64]]:
    """Location ids (int32), locations, and instants (int64, milliseconds) of n values; an empty value is a
    delete, id -1.

    `schema` is the one that the values were written under ('' = ours); `name` is what errors call the file.
    Raises CorruptFileError.
    """
    if schema and not has_own_layout(schema):
        return _decode_distinct(values, lambda value: _decode_by_name(value, schema, name), name)
    plain = split_plain(values)
    places = [location_before_instant(*key) for key in plain.keys]
    known = np.array([place is not None for place in places], np.bool_)[plain.which]
    # Values that did not end plainly, or whose key was no location, are parsed one by one.
    others = np.concatenate([plain.others, plain.rows[~known]])
    other_ids, locations, other_instants = _decode_distinct(values.take(pa.array(others)), _parse_own, name)
    numbers = {location: number for number, location in enumerate(locations)}
    of_key = [-1 if place is None else numbers.setdefault(place, len(numbers)) for place in places]
    location_ids = np.empty(len(values), np.int32)
    instant_ms = np.empty(len(values), np.int64)
    location_ids[plain.rows], instant_ms[plain.rows] = (
        np.array(of_key, np.int32)[plain.which],
        plain.instant_ms,
    )
    location_ids[others], instant_ms[others] = other_ids, other_instants
    return location_ids, list(numbers), instant_ms


def _decode_distinct(
    values: pa.BinaryArray, decode: Callable[[bytes], _Decoded], name: str
) -> tuple[npt.NDArray[np.int32], list[RecordLocation], npt.NDArray[np.int64]]:
    """Decodes distinct values once; `which` spreads them: values v, w, v are [v, w] and [0, 1, 0]."""
    encoded = values.dictionary_encode()
    numbers: dict[RecordLocation, int] = {}
    ids: list[int] = []
    instants: list[int] = []
    for value in encoded.dictionary.to_numpy(zero_copy_only=False).tolist():
        if not value:
            ids.append(-1)
            instants.append(0)
            continue
        with damage_in(name, f"a record index value of {len(value)} bytes"):
            location, instant = decode(value)
        ids.append(numbers.setdefault(location, len(numbers)))
        instants.append(instant)
    which = encoded.indices.to_numpy()
    location_ids = np.array(ids, np.int32)[which] if ids else np.empty(0, np.int32)
    instant_ms = np.array(instants, np.int64)[which] if ids else np.empty(0, np.int64)
    return location_ids, list(numbers), instant_ms


class _Cursor:
    """Reads Avro primitives in turn. Raises IndexError at the end of the data."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position

    def long(self) -> int:
        value, self.position = read_varint(self.data, self.position)
        return value

    def string(self) -> str:
        length = self.long()
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise IndexError(f"a string of {length} bytes")
        raw = self.data[self.position : end]
        self.position = end
        return raw.decode()

    def optional(self) -> bool:
        return self.long() != 0


@lru_cache(maxsize=_KNOWN_VALUES_MAX)
def _parse_own(value: bytes) -> _Decoded:
    """Remembers values, because a shard's blocks repeat the same few."""
    cursor = _Cursor(value, 0)
    place = _parse_place(cursor)
    instant = cursor.long() if cursor.optional() else None
    location = _location(*place, cursor.long())
    if cursor.optional():
        cursor.long()
    if cursor.optional() or cursor.position != len(value):
        raise ValueError(f"it does not end at byte {cursor.position} of {len(value)}")
    return location, instant or 0


@lru_cache(maxsize=_KNOWN_VALUES_MAX)
def location_before_instant(front: bytes, encoding: int) -> RecordLocation | None:
    """The location of all values that begin with these bytes and go on with an insert instant.

    ``encoding``: of the file id, which follows the instant. None: the bytes do not end right before an insert
    instant, so they say nothing about the values that begin with them.
    """
    cursor = _Cursor(front, 0)
    try:
        place = _parse_place(cursor)
        if not cursor.optional() or cursor.position != len(front):
            return None
        return _location(*place, encoding)
    except (IndexError, ValueError):
        return None


def _parse_place(cursor: _Cursor) -> _Place:
    """Reads the fields before the insert instant; the cursor is at the value's begin."""
    if cursor.data.startswith(_PREFIX):
        cursor.position = len(_PREFIX)
    else:
        _skip_to_payload(cursor)
    if not cursor.optional():
        raise ValueError("it has no recordIndexMetadata")
    partition = cursor.string() if cursor.optional() else None
    high, low, index = (cursor.long() if cursor.optional() else None for _ in range(3))
    file_id = cursor.string() if cursor.optional() else None
    return partition, high, low, index, file_id


def _skip_to_payload(cursor: _Cursor) -> None:
    """Moves behind the meta fields (Spark's compaction fills the file name), key, type and other payloads."""
    for _ in range(META_FIELD_COUNT):
        if cursor.optional():
            cursor.string()
    cursor.string()
    kind = cursor.long()
    if kind != RECORD_TYPE_RECORD_INDEX or any(cursor.optional() for _ in range(3)):
        raise ValueError(f"it is of type {kind}, not {RECORD_TYPE_RECORD_INDEX}")


def _decode_by_name(value: bytes, schema: str, name: str) -> _Decoded:
    info: dict[str, Any] | None = decode_record(value, schema, name).get("recordIndexMetadata")
    if info is None:
        raise CorruptFileError(f"{name}: a record of the record index has no recordIndexMetadata")
    location = _location(
        info.get("partitionName"),
        info.get("fileIdHighBits"),
        info.get("fileIdLowBits"),
        info.get("fileIndex"),
        info.get("fileId"),
        info.get("fileIdEncoding", _ENCODING_UUID),
    )
    return location, int(info.get("instantTime") or 0)


@lru_cache(maxsize=_KNOWN_VALUES_MAX)
def _location(
    partition: str | None,
    high: int | None,
    low: int | None,
    index: int | None,
    file_id: str | None,
    encoding: int,
) -> RecordLocation:
    if encoding == _ENCODING_UUID:
        if high is None or low is None:
            raise ValueError("its file id is null")
        text = str(uuid.UUID(int=(high & (2**64 - 1)) << 64 | low & (2**64 - 1)))
        if index is not None and index != _NO_INDEX:
            text = f"{text}-{index}"
    elif encoding == _ENCODING_TEXT and file_id:
        text = file_id
    else:
        raise ValueError(f"file id encoding {encoding} is not known, or its text is empty")
    return RecordLocation(partition or "", text)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
