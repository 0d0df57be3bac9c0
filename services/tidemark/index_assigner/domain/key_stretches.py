"""Divides a column of keys into stretches bounded in number and in bytes: a key may have some KiB."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.index_assigner.domain.reduce import Int64Array


def widths_of(keys: pa.StringArray) -> Int64Array:
    """The bytes of each key."""
    widths: Int64Array = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    return widths


def stretches(widths: Int64Array, count_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yields [first, end) of neighbouring keys that are together within both limits, or one key alone.

    Example: widths 2, 2, 9, 1 with at most 3 keys and 5 bytes give (0, 2), (2, 3), (3, 4).
    """
    sums, first = np.concatenate([[0], np.cumsum(widths)]), 0
    while first < len(widths):
        fitting = int(np.searchsorted(sums, sums[first] + bytes_max, "right")) - 1
        end = min(max(fitting, first + 1), first + count_max)
        yield first, end
        first = end
