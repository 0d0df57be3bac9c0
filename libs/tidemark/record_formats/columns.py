"""Decoded records to columns, column by column; a record with a value that does not fit is refused alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.record_formats.arrow_columns import Convert, convert_column
from tidemark.record_formats.decoder import BoolArray, DecodedRecords, Int64Array
from tidemark.record_formats.refusals import DeadLetterReason, Refusal

Values = Callable[[Sequence[Any]], Sequence[Any]]
"""The values of one column, one per record."""


class ColumnReader(NamedTuple):
    """How one column is taken from decoded records. ``convert`` None: the values are as in `wire_types`."""

    values: Values
    convert: Convert | None = None


def fill_columns(
    columns: pa.Schema,
    readers: Sequence[ColumnReader],
    records: Sequence[Any],
    positions: Int64Array,
    deletes: BoolArray,
) -> DecodedRecords:
    """One row per record whose values all fit; ``positions`` and ``deletes`` are the records'."""
    refused: list[Refusal] = []
    arrays, unfit = [], np.zeros(len(records), np.bool_)
    for field, reader in zip(columns, readers, strict=True):
        if not records:
            arrays.append(pa.nulls(0, field.type))
            continue
        found = reader.values(records)
        column = convert_column(found, field.type, reader.convert)
        arrays.append(column.array)
        for at in column.unfit:
            if not unfit[at]:
                unfit[at] = True
                detail = f"field {field.name}: {_shown(found[at])} does not fit {field.type}"
                refused.append(Refusal(int(positions[at]), DeadLetterReason.MISTYPED_FIELD, detail))
    rows = pa.RecordBatch.from_arrays(arrays, schema=columns)
    if unfit.any():
        rows = rows.filter(pa.array(~unfit))
        positions, deletes = positions[~unfit], deletes[~unfit]
    return DecodedRecords(rows, positions, deletes, refused)


def _shown(value: Any) -> str:
    return repr(value)[:80]
