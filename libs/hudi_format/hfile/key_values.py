"""Entries of HFile data blocks, column by column.

An entry is `i32 key length + 12, i32 value length, i16 key length, key, u8 0 (no column family), i64
maximum time stamp, u8 4 (type Put), value, u8 0 (MVCC)`: 21 bytes around key and value (Hudi format notes,
index part, 1.3).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_format.columnar import BinaryColumn, concat_rows, fixed_width_column, gather_rows
from hudi_format.errors import CorruptFileError

ENTRY_OVERHEAD_BYTES: Final = 21
_HEAD_BYTES: Final = 10
_BETWEEN: Final = b"\x00" + (2**63 - 1).to_bytes(8, "big") + b"\x04"
_LENGTHS: Final = struct.Struct(">iih")
_HEAD: Final = np.dtype([("key_part", ">i4"), ("value", ">i4"), ("key", ">i2")])


@dataclass(frozen=True, slots=True)
class KeyValues:
    """n entries in file order: `keys` is a string array, `values` a binary array."""

    keys: pa.StringArray
    values: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.keys)


def encode_entries(keys: pa.Array, values: pa.Array) -> BinaryColumn:
    """The encoded entries, one per row, of keys and values of equal number (keys at most 32767 bytes)."""
    heads = np.empty(len(keys), dtype=_HEAD)
    heads["key"] = key_lengths = BinaryColumn.from_arrow(keys).lengths()
    heads["key_part"] = key_lengths + 12
    heads["value"] = BinaryColumn.from_arrow(values).lengths()
    head_column = fixed_width_column(heads.view(np.uint8).reshape(len(keys), _HEAD_BYTES))
    return BinaryColumn.from_arrow(concat_rows(head_column, keys, _BETWEEN, values, b"\x00"))


def decode_entries(payload: bytes, name: str, offset: int) -> KeyValues:
    """Keys and values of one block's payload; `name` and `offset` say in errors where the block was read."""
    if not payload:
        return KeyValues(pa.array([], pa.string()), pa.array([], pa.binary()))
    data = np.frombuffer(payload, np.uint8)
    starts = _equal_width_starts(payload, data)
    if starts is None:
        starts = _walked_starts(payload, name, offset)
    heads = np.ascontiguousarray(data[starts[:, None] + np.arange(_HEAD_BYTES)]).view(_HEAD).reshape(-1)
    key_starts = starts + _HEAD_BYTES
    key_ends = key_starts + heads["key"]
    value_starts = key_ends + len(_BETWEEN)
    value_ends = value_starts + heads["value"]
    ends = np.append(starts[1:], len(payload))
    # The family length, the type and the MVCC byte are constants of this format; another value means other
    # framing.
    if (
        (heads["key"] < 0).any()
        or not np.array_equal(heads["key_part"], heads["key"].astype(np.int32) + 12)
        or not np.array_equal(value_ends + 1, ends)
        or data[key_ends].any()
        or (data[value_starts - 1] != _BETWEEN[-1]).any()
        or data[value_ends].any()
    ):
        raise CorruptFileError(
            f"{name}: block at offset {offset} holds entries that are not plain puts without MVCC"
        )
    try:
        keys = gather_rows(data, key_starts, key_ends).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptFileError(f"{name}: block at offset {offset} holds a key that is not UTF-8") from error
    return KeyValues(keys, gather_rows(data, value_starts, value_ends))


def _equal_width_starts(payload: bytes, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64] | None:
    """Where the entries start if all have the first one's key and value length; None otherwise."""
    if len(payload) < ENTRY_OVERHEAD_BYTES:
        return None
    key_part, value, _ = _LENGTHS.unpack_from(payload)
    width = key_part + value + 9
    if width < ENTRY_OVERHEAD_BYTES or len(payload) % width:
        return None
    heads = data.reshape(-1, width)[:, :_HEAD_BYTES]
    if not (heads == heads[0]).all():
        return None
    return np.arange(0, len(payload), width, dtype=np.int64)


def _walked_starts(payload: bytes, name: str, offset: int) -> npt.NDArray[np.int64]:
    """Where the entries start, found by following their lengths; exactly to the end of the payload."""
    starts: list[int] = []
    position, size, unpack = 0, len(payload), _LENGTHS.unpack_from
    try:
        while position < size:
            starts.append(position)
            key_part, value, _ = unpack(payload, position)
            if key_part < 12 or value < 0:
                break
            position += key_part + value + 9
    except struct.error:
        position = -1
    if position != size:
        raise CorruptFileError(
            f"{name}: block at offset {offset}: the entry at byte {starts[-1]} of {size} "
            "has impossible lengths"
        )
    return np.array(starts, dtype=np.int64)
