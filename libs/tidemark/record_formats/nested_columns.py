"""Builds Arrow columns of nested records, arrays and maps, for all formats. A missing list is null, not
empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.record_formats.arrow_columns import Convert


def list_column(items: Convert, arrow: pa.ListType, values: Sequence[Any]) -> pa.Array:
    """Makes a column of one list or None per record.

    ``items`` converts the elements of all lists at once, and raises when one of them does not fit.
    """
    flat = items(list(chain.from_iterable(value for value in values if value)))
    return pa.ListArray.from_arrays(offsets(values), flat, type=arrow, mask=missing(values))


def offsets(values: Sequence[Any]) -> pa.Array:
    """The position in the flat column at which each record's elements begin, and at which the last one's end.

    int32, one more than records. Example: the lists [x, y], None, [z] have the offsets [0, 2, 2, 3].
    """
    starts = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) if value else 0 for value in values], out=starts[1:])
    return pa.array(starts)


def missing(values: Sequence[Any]) -> pa.Array:
    """True where a record has no value: bool, one per record."""
    return pa.array(np.fromiter((value is None for value in values), np.bool_, len(values)))


def struct_column(fields: Sequence[pa.Field], arrays: Sequence[pa.Array], values: Sequence[Any]) -> pa.Array:
    """Makes a column of one nested record or None per record, from its fields' columns.

    Raises ValueError when a field that must not be null is null in a nested record that is not None.
    """
    is_missing = missing(values)
    there = ~np.asarray(is_missing)
    for field, array in zip(fields, arrays, strict=True):
        if not field.nullable and (np.asarray(array.is_null()) & there).any():
            raise ValueError(f"{field.name} must not be null")
    return pa.StructArray.from_arrays(list(arrays), fields=list(fields), mask=is_missing)
