"""Base files and column stats as Hudi's writers make them: the ranges come from the footer, which has none of
a column chunk with a NaN or with a long text (`tests/interop/test_rewritten_ranges_with_hudi.py` has it run).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.hudi_format.column_ranges import ColumnRange, ValueType, column_ranges

_TEXT_MAX = 4096
_FLOATS = (ValueType.FLOAT, ValueType.DOUBLE)


def hudi_base_file(data: bytes) -> bytes:
    """The base file with the footer of Hudi's writers."""
    rows = pq.read_table(pa.BufferReader(data))
    bounded = [name for name in rows.column_names if not _has_odd_values(rows.column(name))]
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, write_statistics=bounded)
    return bytes(out.getvalue())


def hudi_ranges(rows: pa.Table, columns: Sequence[str]) -> list[ColumnRange]:
    """The ranges that Hudi takes from the footer of a file with these rows."""
    ranges = []
    for found in column_ranges(rows, columns):
        if _has_odd_values(rows.column(found.column)):
            if found.type.kind in _FLOATS:
                found = replace(found, low=0.0, high=0.0)
            else:
                found = replace(found, low=None, high=None, nulls=found.values)
        ranges.append(found)
    return ranges


def _has_odd_values(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    if pa.types.is_string(column.type):
        return (pc.max(pc.binary_length(column)).as_py() or 0) >= _TEXT_MAX
    return False
