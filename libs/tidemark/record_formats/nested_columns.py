"""Records, arrays and maps as Arrow columns: what the formats' readers share. A missing list is null, not
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
    """One list or None per record; ``items`` converts all elements at once and raises where one misfits."""
    flat = items(list(chain.from_iterable(value for value in values if value)))
    return pa.ListArray.from_arrays(offsets(values), flat, type=arrow, mask=missing(values))


def offsets(values: Sequence[Any]) -> pa.Array:
    """Where each record's elements begin in the flat column, and where the last one's end: int32, one more
    than records.
    """
    found = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) if value else 0 for value in values], out=found[1:])
    return pa.array(found)


def missing(values: Sequence[Any]) -> pa.Array:
    """True where a record has no value: bool, one per record."""
    return pa.array(np.fromiter((value is None for value in values), np.bool_, len(values)))


def struct_column(fields: Sequence[pa.Field], arrays: Sequence[pa.Array], values: Sequence[Any]) -> pa.Array:
    """One nested record or None per record, of its fields' columns. Raises ValueError where a field that must
    not be null is, in a record that is there.
    """
    is_missing = missing(values)
    there = ~np.asarray(is_missing)
    for field, array in zip(fields, arrays, strict=True):
        if not field.nullable and (np.asarray(array.is_null()) & there).any():
            raise ValueError(f"{field.name} must not be null")
    return pa.StructArray.from_arrays(list(arrays), fields=list(fields), mask=is_missing)
