"""How the stored entries of one key of the column stats add up, for who merges them as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.column_ranges import ValueType
from tidemark.hudi_format.columnar import zigzag_varint
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
    encode_stats,
    merge_stats,
)

# The end of a value whose column's type has no parameters: isDeleted, isTightBound, valueType (present, its
# ordinal, no additionalInfo), and the two null payloads behind the stats.
_TAIL_BYTES: Final = 7
_PRESENT: Final = 2
_NULL_ORDINAL: Final = zigzag_varint(ValueType.NULL)[0]


class StatsFold:
    """The values are those of our own record schema."""

    def of_key(self, values: Sequence[bytes | None], source: str) -> bytes | None:
        """What the entries of one key, oldest first, add up to; None is a delete. A value that stays alone
        is returned as it is. Raises CorruptFileError.
        """
        merged: ColumnStats | None = None
        stored: bytes | None = None
        for value in values:
            if value is None:
                merged = stored = None
                continue
            newer = decode_stats(value, "", source)
            combined = newer if merged is None else merge_stats(merged, newer, source)
            stored = value if combined is newer else encode_stats(combined)
            merged = combined
        return None if merged is None or merged.is_deleted else stored

    def without_deleted(self, values: pa.BinaryArray, source: str) -> pa.BinaryArray:
        """Null in place of each record that says that it is deleted. Raises CorruptFileError."""
        if values.null_count == len(values):
            return values
        doubtful = np.flatnonzero(np.asarray(values.is_valid()) & ~_surely_living(values)).tolist()
        gone = {
            position for position in doubtful if decode_stats(values[position].as_py(), "", source).is_deleted
        }
        if not gone:
            return values
        kept = (None if number in gone else value for number, value in enumerate(values.to_pylist()))
        return pa.array(list(kept), pa.binary())


def _surely_living(values: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Of which records the last bytes show that they are living, without decoding them. Decimals have more
    behind: of them it is not known.
    """
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2], np.uint8)
    ends = offsets[1:].astype(np.int64)
    living: npt.NDArray[np.bool_] = (ends - offsets[:-1]) > _TAIL_BYTES
    # Bytes from the end: isDeleted is the seventh, and must be 0.
    for back, wanted in ((7, 0), (5, _PRESENT), (3, 0), (2, 0), (1, 0)):
        living &= data[np.where(living, ends - back, 0)] == wanted
    living &= data[np.where(living, ends - 4, 0)] != _NULL_ORDINAL
    return living
