"""Builds Arrow columns of nested records, arrays and maps, for all formats. A missing list is null, not
empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import is_
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from tidemark.record_formats.arrow_columns import Convert

ELEMENTS_MAX: Final = 512
_T = TypeVar("_T")


def list_column(items: Convert, arrow: pa.ListType, values: Sequence[Any]) -> pa.Array:
    """Makes a column of one list or None per record.

    ``items`` converts the elements of all lists, as many at once as `at_once` says, and raises when one of
    them does not fit.
    """
    elements = chain.from_iterable(value for value in values if value)
    arrays = [items(part) for part in at_once(elements)] or [items([])]
    flat = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return pa.ListArray.from_arrays(offsets(values), flat, type=arrow, mask=missing(values))


def at_once(elements: Iterable[_T]) -> Iterator[list[_T]]:
    """The elements in lists of at most `ELEMENTS_MAX`; none is empty.

    Protobuf keeps a table of the messages that Python holds, whose addresses it hashes badly: with half a
    million of them an access takes ten times as long and more.
    """
    left = iter(elements)
    while part := list(islice(left, ELEMENTS_MAX)):
        yield part


def offsets(values: Sequence[Any]) -> pa.Array:
    """The position in the flat column at which each record's elements begin, and at which the last one's end.

    int32, one more than records. Example: the lists [x, y], None, [z] have the offsets [0, 2, 2, 3].
    """
    starts = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) if value else 0 for value in values], out=starts[1:])
    return pa.array(starts)


def missing(values: Sequence[Any]) -> pa.Array:
    """True where a record has no value: bool, one per record."""
    return pa.array(np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values)))


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
