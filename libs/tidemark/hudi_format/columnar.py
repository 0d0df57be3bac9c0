"""Columns of byte strings as flat buffers, and vectorised Avro encoding on top of them.

Whatever this library encodes per record (HFile entries, delete records, record index values) is a
concatenation of a few byte strings per row. These functions build such rows without a Python call per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """n byte strings in one buffer, without nulls: row i is data[offsets[i]:offsets[i + 1]].

    `offsets` has n + 1 positions: "ab" and "c" are data b"abc" with offsets 0, 2, 3.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> BinaryColumn:
        """A zero-copy view of an Arrow string or binary array (a chunked one is combined first).

        Raises ValueError for nulls, TypeError for another type.
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
            if isinstance(array, pa.ChunkedArray):
                array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        if array.null_count:
            raise ValueError(f"a column of {len(array)} byte strings holds {array.null_count} nulls")
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        if not (large or pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
            raise TypeError(f"expected strings or binary, not {array.type}")
        _, offset_buffer, data_buffer = array.buffers()
        if not len(array) or data_buffer is None:
            return cls(np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64))
        kind = np.int64 if large else np.int32
        offsets = np.frombuffer(offset_buffer, kind, len(array) + 1, array.offset * kind().itemsize)
        begin, end = int(offsets[0]), int(offsets[-1])
        data = np.frombuffer(data_buffer, np.uint8, end - begin, begin)
        return cls(data, offsets.astype(np.int64) - begin)

    @classmethod
    def from_keys(cls, keys: pa.Array | pa.ChunkedArray | Sequence[str]) -> BinaryColumn:
        """A view as `from_arrow` makes it; accepts a sequence of Python strings, too."""
        if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
            keys = pa.array(keys, pa.large_string())
        return cls.from_arrow(keys)

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)

    def to_arrow(self, kind: pa.DataType | None = None) -> pa.Array:
        """An Arrow array over the same data buffer; binary unless `kind` says otherwise.

        Raises OverflowError from 2 GiB of data on.
        """
        if int(self.offsets[-1]) > np.iinfo(np.int32).max:
            raise OverflowError(
                f"{int(self.offsets[-1])} bytes do not fit one Arrow column with 32-bit offsets"
            )
        buffers = [None, pa.py_buffer(self.offsets.astype(np.int32)), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind or pa.binary(), len(self), buffers)


def fixed_width_column(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """The rows of an (n, width) byte matrix as an Arrow binary array of n values."""
    count, width = rows.shape
    return BinaryColumn(rows.reshape(-1), np.arange(count + 1, dtype=np.int64) * width).to_arrow()


def concat_rows(*parts: pa.Array | bytes) -> pa.Array:
    """Concatenates binary arrays row by row; a `bytes` part is repeated in every row. Returns large binary.

    ["a", "b"], b"-", ["x", "y"] give ["a-x", "b-y"].
    """
    columns = [
        pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part.cast(pa.large_binary())
        for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def gather_rows(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> pa.BinaryArray:
    """Copies the byte strings data[starts[i] : ends[i]] into one Arrow column of n values.

    They must ascend and not overlap. The strings and the gaps between them form one array over the buffer,
    and taking every other row of it copies in C++, several times as fast as gathering bytes by index.
    Example: from b"abcdef" with starts 0, 4 and ends 2, 6 the array has the rows "ab", "cd", "ef", and the
    result is its rows 0 and 2.
    """
    if not starts.size:
        return pa.array([], pa.binary())
    bounds = np.stack([starts, ends], axis=1).reshape(-1)
    alternating = BinaryColumn(data, bounds).to_arrow()
    return alternating.take(pa.array(np.arange(0, 2 * starts.size - 1, 2)))


def zigzag_varints(values: npt.NDArray[Any]) -> pa.Array:
    """Each integer as an Avro int/long (zigzag, 7 bits a byte, least significant first); n binary values.

    Each round of the loop writes one byte of all numbers into a matrix with 10 bytes per row. Example: 1 and
    300 are 2 and 600 in zigzag. Round 0 writes 02 and D8, round 1 writes 04 into the second row, and the rows
    are cut to their widths 1 and 2.
    """
    signed = values.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    matrix = np.empty((signed.size, _MAX_VARINT_BYTES), dtype=np.uint8)
    widths = np.ones(signed.size, dtype=np.int64)
    for position in range(_MAX_VARINT_BYTES):
        more = rest > 0x7F
        matrix[:, position] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        rest = rest >> np.uint64(7)
        if not more.any():
            break
        widths += more
    starts = np.arange(signed.size, dtype=np.int64) * _MAX_VARINT_BYTES
    return gather_rows(matrix.reshape(-1), starts, starts + widths)


def zigzag_varint(value: int) -> bytes:
    """One integer as an Avro int/long."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def avro_strings(column: pa.Array) -> pa.Array:
    """Each string or byte string as Avro writes it: its length as a varint, then its bytes."""
    return concat_rows(
        zigzag_varints(BinaryColumn.from_arrow(column).lengths()), column.cast(pa.large_binary())
    )


def avro_string(value: str) -> bytes:
    """One string as Avro writes it."""
    raw = value.encode()
    return zigzag_varint(len(raw)) + raw
