"""Turns decoded records into columns. A record with a value that does not fit is refused; the others are
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.record_formats.arrow_columns import Convert, convert_column
from tidemark.record_formats.decoder import BoolArray, DecodedRecords, Int64Array
from tidemark.record_formats.refusals import DeadLetterReason, Refusal

Values = Callable[[Sequence[Any]], Sequence[Any]]
"""Records -> the values of one column, one per record."""


class ColumnReader(NamedTuple):
    """How one column is read from decoded records. ``convert`` None: values are of a `wire_types` type."""

    values: Values
    convert: Convert | None = None


def fill_columns(
    columns: pa.Schema,
    readers: Sequence[ColumnReader],
    records: Sequence[Any],
    positions: Int64Array,
    deletes: BoolArray,
) -> DecodedRecords:
    """Returns one row per record whose values all fit, and refusals of the others.

    ``readers``: one per column. ``positions``, ``deletes``: one element per record.
    """
    refused: list[Refusal] = []
    arrays, unfit = [], np.zeros(len(records), np.bool_)
    for field, reader in zip(columns, readers, strict=True):
        if not records:
            arrays.append(pa.nulls(0, field.type))
            continue
        values = reader.values(records)
        column = convert_column(values, field.type, reader.convert)
        arrays.append(column.array)
        for at in column.unfit:
            if not unfit[at]:
                unfit[at] = True
                detail = f"field {field.name}: {_shown(values[at])} does not fit {field.type}"
                refused.append(Refusal(int(positions[at]), DeadLetterReason.MISTYPED_FIELD, detail))
    rows = pa.RecordBatch.from_arrays(arrays, schema=columns)
    if unfit.any():
        rows = rows.filter(pa.array(~unfit))
        positions, deletes = positions[~unfit], deletes[~unfit]
    return DecodedRecords(rows, positions, deletes, refused)


def _shown(value: Any) -> str:
    return repr(value)[:80]
