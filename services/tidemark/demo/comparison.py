"""Compares the rows read back from the table with the model's rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.demo.events import KEY_FIELDS, TABLE_SCHEMA, key_texts
from tidemark.demo.source import Bools

EXAMPLES_MAX = 5


@dataclass(frozen=True)
class TableDifference:
    """The result of a comparison, in numbers of keys: `expected` rows of the model, `found` rows of the
    table, and how many keys are missing in the table, unexpected, there twice (`doubled`) or have another row
    (`different`). Up to ``EXAMPLES_MAX`` examples say what is wrong.
    """

    expected: int
    found: int
    missing: int
    unexpected: int
    doubled: int
    different: int
    examples: tuple[str, ...]

    @property
    def same(self) -> bool:
        return not (self.missing or self.unexpected or self.doubled or self.different)


def compare_tables(expected: pa.Table, found: pa.Table) -> TableDifference:
    """Compares the rows by key, in all columns of ``TABLE_SCHEMA``. Other columns of ``found``, such as
    Hudi's own, are ignored.

    Raises ``ValueError`` when ``found`` lacks a column or a column cannot be cast to the schema's type.
    """
    wanted_rows, found_rows = _by_key(expected, "expected"), _by_key(found, "found")
    wanted, there = wanted_rows["key"].combine_chunks(), found_rows["key"].combine_chunks()
    first = _first_of_each(there)
    shared = pc.is_in(there, wanted)
    unexpected = pc.unique(there.filter(pc.invert(shared)))
    missing = wanted.filter(pc.invert(pc.is_in(wanted, there)))
    doubled = pc.unique(there.filter(pa.array(~first)))
    left = wanted_rows.filter(pc.is_in(wanted, there))
    right = found_rows.filter(pc.and_(pa.array(first), shared))
    different = _different(left, right)
    examples = [f"{key}: missing" for key in missing[:EXAMPLES_MAX].to_pylist()]
    examples += [f"{key}: not expected" for key in unexpected[:EXAMPLES_MAX].to_pylist()]
    examples += [f"{key}: more than one row" for key in doubled[:EXAMPLES_MAX].to_pylist()]
    examples += [_describe(left, right, int(row)) for row in different[:EXAMPLES_MAX]]
    return TableDifference(
        expected=len(wanted),
        found=len(there),
        missing=len(missing),
        unexpected=len(unexpected),
        doubled=len(doubled),
        different=len(different),
        examples=tuple(examples[:EXAMPLES_MAX]),
    )


def _by_key(table: pa.Table, side: str) -> pa.Table:
    """The table's columns with the types of ``TABLE_SCHEMA``, and a column `key`; sorted by key."""
    columns = {}
    for field in TABLE_SCHEMA:
        if field.name not in table.column_names:
            raise ValueError(f"the {side} rows have no column {field.name}: read all columns of flights.avsc")
        columns[field.name] = table[field.name].cast(field.type)
    rows = pa.table(columns, schema=TABLE_SCHEMA)
    return rows.append_column("key", pa.chunked_array([key_texts(rows)])).sort_by("key").combine_chunks()


def _first_of_each(keys: pa.Array) -> Bools:
    """For sorted keys: True at the first row of each key. A sorted key is new where it differs from the one
    before: for [a, a, b] the comparison of [a, b] with [a, a] gives [False, True], so the result is [True,
    False, True].
    """
    first = np.ones(len(keys), dtype=np.bool_)
    if len(keys) > 1:
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return first


def _different(left: pa.Table, right: pa.Table) -> npt.NDArray[np.intp]:
    """The numbers of rows that differ in any column; both tables have the same keys in the same order."""
    differs = np.zeros(left.num_rows, dtype=np.bool_)
    for name in TABLE_SCHEMA.names:
        differs |= _unequal(left[name], right[name])
    return np.flatnonzero(differs)


def _unequal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Bools:
    # `not_equal` is null where either side is null, so nulls are compared by themselves. Rows (1, 1) and (1,
    # null): values are [False, False], nulls [False, True].
    values = pc.fill_null(pc.not_equal(left, right), False).to_numpy()
    nulls = pc.xor(pc.is_null(left), pc.is_null(right)).to_numpy()
    return np.asarray(values | nulls)


def _describe(left: pa.Table, right: pa.Table, row: int) -> str:
    one, other = left.slice(row, 1).to_pylist()[0], right.slice(row, 1).to_pylist()[0]
    key = ",".join(f"{name}:{one[name]}" for name in KEY_FIELDS)
    wrong = [f"{n} is {other[n]}, not {one[n]}" for n in TABLE_SCHEMA.names if one[n] != other[n]]
    return f"{key}: {'; '.join(wrong)}"
