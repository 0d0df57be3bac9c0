"""Converts decoded values to Arrow columns.

All values of a column are converted at once. If that fails, the column is halved until the value that does
not fit is found; the others are still converted as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.exact_decimals import exact_decimals
from tidemark.record_formats.wire_types import attribute

_UNFIT: Final = (pa.ArrowException, UnicodeEncodeError, OverflowError, ValueError, TypeError)
# Fractions finer than the column's unit are cut, as Spark does when it reads such a text.
_FINER: Final = {"us": r"(\.\d{6})\d+", "ms": r"(\.\d{3})\d+"}
_ZONE: Final = r"(Z|[+-]\d{2}(:?\d{2})?)$"
_DATE_ONLY: Final = r"^\d{4}-\d{2}-\d{2}$"


class ConvertedColumn(NamedTuple):
    """``array``: one element per value, null where it did not fit. ``unfit``: positions of those,
    ascending.
    """

    array: pa.Array
    unfit: list[int]


Convert = Callable[[Sequence[Any]], pa.Array]
"""Values of one column -> an array of its type; raises one of `_UNFIT` when a value does not fit."""


def convert_column(
    values: Sequence[Any], arrow: pa.DataType, convert: Convert | None = None
) -> ConvertedColumn:
    """Converts the values of one column, by `to_arrow` without a ``convert``. Never raises because of a
    value.
    """
    try:
        return ConvertedColumn(convert(values) if convert else to_arrow(values, arrow), [])
    except _UNFIT:
        if len(values) == 1:
            return ConvertedColumn(pa.nulls(1, arrow), [0])
    middle = len(values) // 2
    first = convert_column(values[:middle], arrow, convert)
    second = convert_column(values[middle:], arrow, convert)
    unfit = first.unfit + [middle + position for position in second.unfit]
    return ConvertedColumn(pa.concat_arrays([first.array, second.array]), unfit)


def to_arrow(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Converts values of a type made by `wire_types`. Raises one of `_UNFIT` when a value does not fit."""
    if pa.types.is_timestamp(arrow):
        return _timestamps(values, arrow)
    if pa.types.is_date32(arrow):
        return _texts_or_numbers(values, arrow, pa.int32(), lambda texts: texts.cast(arrow))
    if pa.types.is_struct(arrow):
        return _records(values, arrow)
    if pa.types.is_map(arrow):
        return _maps(values, arrow)
    if pa.types.is_list(arrow):
        return _lists(values, arrow)
    if pa.types.is_decimal128(arrow):
        return exact_decimals(values, arrow)
    return pa.array(values, arrow)


def _timestamps(values: Sequence[Any], arrow: pa.TimestampType) -> pa.Array:
    def from_texts(texts: pa.Array) -> pa.Array:
        try:
            return texts.cast(arrow)
        except pa.ArrowException:
            return _normalised(texts, arrow).cast(arrow)

    return _texts_or_numbers(values, arrow, pa.int64(), from_texts)


def _normalised(texts: pa.Array, arrow: pa.TimestampType) -> pa.Array:
    """The texts with finer fractions cut. For a type with a zone, texts without one are taken as UTC."""
    cut = pc.replace_substring_regex(texts, _FINER[arrow.unit], r"\1")
    if arrow.tz is None:
        return cut
    is_date = pc.match_substring_regex(cut, _DATE_ONLY)
    zoned = pc.and_(pc.match_substring_regex(cut, _ZONE), pc.invert(is_date))
    dated = pc.if_else(is_date, pc.binary_join_element_wise(cut, "00:00", "T"), cut)
    return pc.if_else(zoned, cut, pc.binary_join_element_wise(dated, "Z", ""))


def _texts_or_numbers(
    values: Sequence[Any], arrow: pa.DataType, storage: pa.DataType, from_texts: Any
) -> pa.Array:
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {str}:
        return from_texts(pa.array(values, pa.string()))
    if str not in kinds:
        return pa.array(values, storage).view(arrow)
    texts = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    numbers = pa.array([None if isinstance(value, str) else value for value in values], storage)
    return pc.coalesce(from_texts(texts), numbers.view(arrow))


def _records(values: Sequence[Any], arrow: pa.StructType) -> pa.Array:
    missing = _missing(values)
    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    children = []
    for i, field in enumerate(fields):
        value_of = attrgetter(attribute(i))
        children.append(to_arrow([None if v is None else value_of(v) for v in values], field.type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(missing))


def _lists(values: Sequence[Any], arrow: pa.ListType) -> pa.Array:
    items = to_arrow(list(chain.from_iterable(v for v in values if v)), arrow.value_type)
    offsets = _offsets(values)
    return pa.ListArray.from_arrays(offsets, items, type=arrow, mask=pa.array(_missing(values)))


def _maps(values: Sequence[Any], arrow: pa.MapType) -> pa.Array:
    keys = pa.array(list(chain.from_iterable(v for v in values if v)), arrow.key_type)
    items = to_arrow(list(chain.from_iterable(v.values() for v in values if v)), arrow.item_type)
    offsets = _offsets(values)
    return pa.MapArray.from_arrays(offsets, keys, items, type=arrow, mask=pa.array(_missing(values)))


def _offsets(values: Sequence[Any]) -> pa.Array:
    # Of lists with 2, no and 1 elements: 0, 2, 2, 3. Where each begins, and where the last ends.
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) if value else 0 for value in values], out=offsets[1:])
    return pa.array(offsets)


def _missing(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))
