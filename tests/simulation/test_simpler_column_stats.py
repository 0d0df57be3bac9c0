"""Column stats of simpler designs, each planted into the product. By each a reader leaves files out of a
filter that have rows of it, behind the epochs that are named.

Files and records are read and judged by the checker of the worlds, which shares no code with the product.
What only another writer's changes show is in `planted/stats_bugs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import row
from tests.simulation.scripted_tagger import SCHEMA, TABLE
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.stats import ColumnStats
from tests.simulation.world.checkers.table import DATA_TIMELINE, Reader
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format import column_ranges
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, StatValue, ValueType, stat_type
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType

Patch = pytest.MonkeyPatch
PRICE, NOTE = "price", "note"
WIDE = TableSchema.from_arrow(
    TABLE, pa.schema([*SCHEMA.arrow, pa.field(PRICE, pa.float64()), pa.field(NOTE, pa.string())])
)
COLUMNS = ["id", "v", PRICE, NOTE]
EPOCHS: Mapping[str, Sequence[tuple[float | None, str | None]]] = {
    "numbers": [(1.5, "a"), (-2.5, "b")],
    "a NaN": [(1.5, "a"), (math.nan, "b")],
    "NaN alone": [(math.nan, "a")],
    "a zero": [(0.0, "a")],
    "a zero below zero": [(-0.0, "a")],
    "a long text": [(1.5, "a"), (1.5, "b" * 5_000)],
    "texts that UTF-16 sorts otherwise": [(1.5, "\uff5e"), (1.5, "\U0001f600")],
    "a null": [(1.5, "a"), (None, None)],
    "nulls alone": [(None, None), (None, None)],
}
"""Prices and notes of the rows, each epoch's in a file group of its own."""
NANS = {"a NaN", "NaN alone"}


def wrong_epochs(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> set[str]:
    """The epochs whose files a reader leaves out although they have rows of a filter."""
    path = CommitPath(folder, table_type, ordered=True, schema=WIDE, stats=COLUMNS)
    storage = path.storage
    reader = Reader(lambda at: list(storage.names(at)), storage.read, lambda: ["d1"], ordered=True)
    judge, wrong = ColumnStats(reader, storage.read), set[str]()
    for number, (name, values) in enumerate(EPOCHS.items()):
        group = f"00000000-0000-4000-8000-{number:012d}-0"
        rows = [
            {**row(f"k{number}-{at}", 1, 1), PRICE: price, NOTE: note}
            for at, (price, note) in enumerate(values)
        ]
        path.tag([(each, DataOp.INSERT, group) for each in rows])
        path.run_until_idle()
        instant = str(path.state().committed.instant)
        done = next(each for each in storage.names(DATA_TIMELINE) if each.startswith(f"{instant}_"))
        commit = decode.avro_document(storage.read(f"{DATA_TIMELINE}/{done}"))
        if list(judge.faults(instant, commit, (), reader.view(reader.data_timeline()))):
            wrong.add(name)
    assert judge.checked
    return wrong


def ranges_of_footers(patch: Patch) -> None:
    """Counterexample (a): Parquet's footers have no bounds of a long text, and pass over NaN."""

    def of_footers(rows: pa.Table, columns: Sequence[str]) -> list[ColumnRange]:
        file = pa.BufferOutputStream()
        pq.write_table(rows.select(columns), file)
        footer = pq.ParquetFile(pa.BufferReader(file.getvalue())).metadata.row_group(0)
        found = []
        for at, name in enumerate(columns):
            kind, of_column = rows.schema.field(name).type, footer.column(at).statistics
            has = of_column is not None and of_column.has_min_max
            low, high = (of_column.min, of_column.max) if has else (None, None)
            nulls = rows.column(name).null_count
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            found.append(ColumnRange(name, stat_type(kind, name), low, high, rows.num_rows, nulls))
        return found

    patch.setattr(column_ranges, "whole_ranges", of_footers)


def null_type_of_a_column_without_values(patch: Patch) -> None:
    """Counterexample (d): where all values are null the record says that the column's type is null."""
    real = column_ranges._range

    def range_of(name: str, column: pa.ChunkedArray) -> ColumnRange:
        found = real(name, column)
        return replace(found, type=StatType(ValueType.NULL)) if found.low is None else found

    patch.setattr(column_ranges, "_range", range_of)


def nan_is_the_maximum(patch: Patch) -> None:
    """As Hudi's own writer has it in log files: above all numbers, and Spark's cache passes over it."""
    with_float_bounds(patch, lambda low, high, nan: (low, math.nan if nan else high))


def one_zero_is_both_bounds(patch: Patch) -> None:
    """As the value is in the rows: a filter for the other zero leaves the file out."""
    with_float_bounds(patch, lambda low, high, _: (low + 0.0, high))


def with_float_bounds(patch: Patch, other: Callable[[float, float, bool], tuple[float, float]]) -> None:
    """`other` makes of the right bounds, and of whether there is a NaN, those that are written."""
    real = column_ranges._float_bounds

    def bounds(column: pa.ChunkedArray) -> tuple[float, float]:
        return other(*real(column), bool(pc.any(pc.is_nan(column)).as_py()))

    patch.setattr(column_ranges, "_float_bounds", bounds)


def texts_by_their_utf16_units(patch: Patch) -> None:
    """As Java compares strings, and Hudi where it merges ranges."""
    real = column_ranges._bounds

    def bounds(column: pa.ChunkedArray, kind: StatType) -> tuple[StatValue, StatValue]:
        if kind.kind is not ValueType.STRING:
            return real(column, kind)
        texts = sorted(column.drop_null().to_pylist(), key=lambda text: text.encode("utf-16-be"))
        return texts[0], texts[-1]

    patch.setattr(column_ranges, "_bounds", bounds)


BUGS: Mapping[Callable[[Patch], None], set[str]] = {
    ranges_of_footers: {*NANS, "a long text"},
    null_type_of_a_column_without_values: {"nulls alone"},
    nan_is_the_maximum: NANS,
    one_zero_is_both_bounds: {"a zero", "a zero below zero"},
    texts_by_their_utf16_units: {"texts that UTF-16 sorts otherwise"},
}


@pytest.mark.parametrize("table_type", list(TableType))
def test_no_epoch_has_a_file_that_filters_lose(tmp_path: Path, table_type: TableType) -> None:
    assert wrong_epochs(tmp_path, table_type) == set()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_simpler_design_loses_rows(tmp_path: Path, monkeypatch: Patch, bug: Callable[[Patch], Any]) -> None:
    bug(monkeypatch)
    assert wrong_epochs(tmp_path) == BUGS[bug]
