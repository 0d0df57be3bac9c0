"""Encodes and decodes the content of DELETE blocks: `i32 3, i32 length`, then one Avro HoodieDeleteRecordList
(FORMAT.md, section 5.5; METADATA_TABLE.md, section 4.2).

A record is {recordKey, partitionPath, orderingVal}. Encoding works on whole columns. Decoding goes from
record to record, but decodes what follows the key (partition path and ordering value) once per distinct byte
sequence: in most blocks all records share one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import (
    BinaryColumn,
    avro_string,
    avro_strings,
    concat_rows,
    fixed_width_column,
    zigzag_varint,
    zigzag_varints,
)
from tidemark.hudi_format.errors import HudiFormatError, damage_in
from tidemark.hudi_format.parsed_avro import read_varint

OrderingValue: TypeAlias = "bool | int | float | bytes | str | tuple[OrderingValue, ...] | None"
_CONTENT_VERSION: Final = 3
_ARRAY_ITEMS_MAX: Final = 1000


class OrderingType(IntEnum):
    """The type of a delete's ordering value: the branch number of the union `orderingVal` in table version 9.

    INT with value 0 is Hudi's mark of an unconditional delete, whatever the column's type. ARRAY holds the
    values of several ordering fields.
    """

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    DATE = 8
    DECIMAL = 9
    TIME_MICROS = 10
    TIMESTAMP_MICROS = 11
    ARRAY = 12


_VARINT_TYPES: Final = frozenset(
    {
        OrderingType.INT,
        OrderingType.LONG,
        OrderingType.DATE,
        OrderingType.TIME_MICROS,
        OrderingType.TIMESTAMP_MICROS,
    }
)
# Inside an ArrayWrapper branch 12 is LocalDateWrapper (an int), not ARRAY.
_LOCAL_DATE_IN_ARRAY: Final = 12


@dataclass(frozen=True, slots=True)
class DeleteTarget:
    """The part of a delete record after the key: partition path, type of the ordering value, the value
    itself.
    """

    partition_path: str | None
    ordering_type: OrderingType
    ordering_value: OrderingValue


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """n delete records as columns: `targets[target_ids[i]]` is the rest of the record that deletes
    `keys[i]`.
    """

    keys: pa.StringArray
    target_ids: npt.NDArray[np.int32]
    targets: tuple[DeleteTarget, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def ordering_values(self) -> list[OrderingValue]:
        """The ordering value of each record; None where it has none."""
        values = [target.ordering_value for target in self.targets]
        return [values[target] for target in self.target_ids.tolist()]

    def partition_paths(self) -> list[str | None]:
        """The partition path of each record."""
        paths = [target.partition_path for target in self.targets]
        return [paths[target] for target in self.target_ids.tolist()]


def encode_deletes(
    keys: pa.Array,
    partition_path: str | pa.Array,
    ordering_type: OrderingType = OrderingType.INT,
    ordering: int | pa.Array | npt.NDArray[np.generic] = 0,
) -> bytes:
    """The content of a DELETE block.

    `keys` is a string array. `partition_path` is one text for all records or a string array of equal length.
    `ordering` is one integer for all records or a column: integers for the integer types (days for DATE,
    microseconds for TIMESTAMP_MICROS), numbers for FLOAT and DOUBLE, booleans, strings or bytes for their
    types. The default, INT 0, is an unconditional delete. hudi-rs needs one ordering type per block, so a
    call takes one type. Raises HudiFormatError for values that do not go with the type.
    """
    if isinstance(partition_path, str):
        path_part: bytes | pa.Array = b"\x02" + avro_string(partition_path)
    else:
        path_part = concat_rows(b"\x02", avro_strings(partition_path))
    ordering_part = zigzag_varint(ordering_type)
    columns: list[bytes | pa.Array] = [b"\x02", avro_strings(keys), path_part, ordering_part]
    if ordering_type is not OrderingType.NULL:
        columns.append(_encode_ordering(ordering_type, ordering, len(keys)))
    body = b"\x00"
    if len(keys):
        records = BinaryColumn.from_arrow(concat_rows(*columns))
        body = zigzag_varint(len(keys)) + records.data.tobytes() + b"\x00"
    return struct.pack(">ii", _CONTENT_VERSION, len(body)) + body


def _encode_ordering(
    kind: OrderingType, ordering: int | pa.Array | npt.NDArray[np.generic], count: int
) -> bytes | pa.Array:
    if isinstance(ordering, int):
        if kind not in _VARINT_TYPES:
            raise HudiFormatError(
                f"one integer for all deletes does not go with the ordering type {kind.name}"
            )
        return zigzag_varint(ordering)
    if len(ordering) != count:
        raise HudiFormatError(f"{count} deleted keys but {len(ordering)} ordering values")
    if kind in (OrderingType.STRING, OrderingType.BYTES, OrderingType.DECIMAL):
        return avro_strings(ordering if isinstance(ordering, pa.Array) else pa.array(ordering))
    values = ordering.to_numpy(zero_copy_only=False) if isinstance(ordering, pa.Array) else ordering
    if kind in _VARINT_TYPES:
        return zigzag_varints(values.astype(np.int64))
    fixed = {OrderingType.BOOLEAN: "u1", OrderingType.FLOAT: "<f4", OrderingType.DOUBLE: "<f8"}.get(kind)
    if fixed is None:
        raise HudiFormatError(f"delete records with the ordering type {kind.name} cannot be written")
    cells = np.ascontiguousarray(values.astype(fixed))
    return fixed_width_column(cells.view(np.uint8).reshape(count, cells.dtype.itemsize))


def decode_deletes(content: bytes | memoryview, name: str) -> DeleteRecords:
    """The delete records in a DELETE block's content. Raises CorruptFileError (with `name`) when it is
    damaged.
    """
    data = bytes(content)
    with damage_in(name, "a delete block"):
        version, length = struct.unpack_from(">ii", data)
        if version != _CONTENT_VERSION or length != len(data) - 8:
            raise ValueError(f"version {version} and length {length} in {len(data)} bytes")
        return _decode_list(data)


def _decode_list(data: bytes) -> DeleteRecords:
    keys: list[bytes] = []
    target_ids: list[int] = []
    known: dict[bytes, int] = {}
    targets: list[DeleteTarget] = []
    position, last, last_id = 8, b"", -1
    while True:
        count, position = read_varint(data, position)
        if count == 0:
            break
        if count < 0:  # Avro: the block's size in bytes follows a negative count
            count = -count
            _, position = read_varint(data, position)
        for _ in range(count):
            key, position = _read_key(data, position)
            keys.append(key)
            if last_id < 0 or not data.startswith(last, position):
                target, end = _read_target(data, position)
                last = data[position:end]
                last_id = known.setdefault(last, len(targets))
                if last_id == len(targets):
                    targets.append(target)
            position += len(last)
            target_ids.append(last_id)
    if position != len(data):
        raise ValueError(f"the list ends at byte {position} of {len(data)}")
    return DeleteRecords(
        pa.array(keys, pa.binary()).cast(pa.string()), np.array(target_ids, dtype=np.int32), tuple(targets)
    )


def _read_key(data: bytes, position: int) -> tuple[bytes, int]:
    if data[position] != 2:
        raise ValueError(f"a record without key at byte {position}")
    length, start = read_varint(data, position + 1)
    return _slice(data, start, length)


def _read_target(data: bytes, position: int) -> tuple[DeleteTarget, int]:
    partition_path: str | None = None
    branch, position = read_varint(data, position)
    if branch == 1:
        length, position = read_varint(data, position)
        raw, position = _slice(data, position, length)
        partition_path = raw.decode()
    branch, position = read_varint(data, position)
    kind = OrderingType(branch)
    value, position = _read_ordering(data, position, kind)
    return DeleteTarget(partition_path, kind, value), position


def _read_ordering(data: bytes, position: int, kind: OrderingType) -> tuple[OrderingValue, int]:
    if kind is OrderingType.NULL:
        return None, position
    if kind in _VARINT_TYPES:
        return read_varint(data, position)
    if kind is OrderingType.BOOLEAN:
        return data[position] != 0, position + 1
    if kind is OrderingType.FLOAT:
        return struct.unpack_from("<f", data, position)[0], position + 4
    if kind is OrderingType.DOUBLE:
        return struct.unpack_from("<d", data, position)[0], position + 8
    if kind is OrderingType.ARRAY:
        return _read_array(data, position)
    length, position = read_varint(data, position)
    raw, position = _slice(data, position, length)
    return (raw.decode() if kind is OrderingType.STRING else raw), position


def _read_array(data: bytes, position: int) -> tuple[OrderingValue, int]:
    branch, position = read_varint(data, position)
    if branch == 0:
        return None, position
    values: list[OrderingValue] = []
    while True:
        count, position = read_varint(data, position)
        if count == 0:
            return tuple(values), position
        if count < 0:
            count = -count
            _, position = read_varint(data, position)
        if len(values) + count > _ARRAY_ITEMS_MAX:
            raise ValueError(f"an ordering value of more than {_ARRAY_ITEMS_MAX} fields")
        for _ in range(count):
            branch, position = read_varint(data, position)
            # Only outside of an array is branch 12 ARRAY: an array never holds another one.
            kind = OrderingType.DATE if branch == _LOCAL_DATE_IN_ARRAY else OrderingType(branch)
            value, position = _read_ordering(data, position, kind)
            values.append(value)


def _slice(data: bytes, start: int, length: int) -> tuple[bytes, int]:
    if not 0 <= length <= len(data) - start:
        raise ValueError(f"a string of {length} bytes at byte {start} of {len(data)}")
    return data[start : start + length], start + length


def empty_delete_content() -> bytes:
    """The content of the DELETE block in the 80-byte log file with which an empty file group begins
    (METADATA_TABLE.md, section 4.3).
    """
    return encode_deletes(pa.array([], pa.string()), "")
