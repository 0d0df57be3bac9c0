"""What one transaction of the assign stage works on: whole slices of several lanes as one record batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark.epoch_protocol.batches import KEY, KEYED_COLUMNS, OP, ORDERING, PARTITION, SHARD
from tidemark.epoch_protocol.entries import Consumed
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.record_formats.errors import SetupError

NO_PARTITION = -1
_KEPT = (KEY, SHARD, ORDERING, OP)


@dataclass(frozen=True)
class LaneSpan:
    """Rows [start, end) of the batch belong to the lane, in order of arrival."""

    lane: int
    start: int
    end: int


@dataclass(frozen=True)
class KeyedBatch:
    """``rows``: `KEYED_COLUMNS` without the partition, then the user's columns; lane by lane.

    ``partitions``: per row the id of its table partition in `Locations`, `NO_PARTITION` where it is null.
    ``records``: input records that the slices stand for, dead letters included.
    """

    rows: pa.RecordBatch
    partitions: Int32Array
    lanes: list[LaneSpan]
    records: int
    dead_letters: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def keyed_batch(slices: Sequence[KeyedSlice], schema: TableSchema, locations: Locations) -> KeyedBatch:
    """Puts the slices together; those of a lane stay in the order given.

    Rows of an older schema get nulls for the columns they lack. Raises SetupError for rows with columns that
    ``schema`` does not have: dropping them would lose data.
    """
    by_lane: dict[int, list[KeyedSlice]] = {}
    for each in slices:
        by_lane.setdefault(int(each.lane), []).append(each)
    parts: list[pa.Table] = []
    partitions: list[Int32Array] = []
    spans: list[LaneSpan] = []
    at = 0
    wanted = _batch_schema(schema)
    for lane, of_lane in sorted(by_lane.items()):
        batches = [batch for each in of_lane for batch in each.batches]
        start = at
        for batch in batches:
            parts.append(_conformed(batch, wanted))
            partitions.append(_partition_ids(batch, locations))
            at += batch.num_rows
        if at > start:
            spans.append(LaneSpan(lane, start, at))
    return KeyedBatch(
        rows=_one_batch(parts, wanted),
        partitions=np.concatenate(partitions) if partitions else np.empty(0, np.int32),
        lanes=spans,
        records=sum(each.records for each in slices),
        dead_letters=sum(len(each.dead_letters) for each in slices),
    )


def consumed_ranges(slices: Sequence[KeyedSlice]) -> list[Consumed]:
    """One range per lane; the slices of a lane follow each other."""
    ranges: dict[str, Consumed] = {}
    for each in slices:
        before = ranges.get(each.lane)
        assert before is None or before.next == each.start, (before, each.start)
        ranges[each.lane] = Consumed(each.lane, before.start if before else each.start, each.next)
    return list(ranges.values())


def _batch_schema(schema: TableSchema) -> pa.Schema:
    ours = [KEYED_COLUMNS.field(name) for name in _KEPT]
    return pa.schema([*ours, *(field.with_nullable(True) for field in schema.arrow)])


def _conformed(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.Table:
    found = set(batch.schema.names)
    unknown = found - set(wanted.names) - {PARTITION}
    if unknown:
        raise SetupError(
            f"keyed rows have the columns {', '.join(sorted(unknown))}, which table.schema of this assigner "
            "lacks: start it with the newest schema, the same everywhere"
        )
    columns = []
    for field in wanted:
        if field.name not in found:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else _cast(column, field))
    return pa.Table.from_arrays(columns, schema=wanted)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"column {field.name}: keyed rows have {column.type}, table.schema {field.type}: {error}"
        ) from error


def _partition_ids(batch: pa.RecordBatch, locations: Locations) -> Int32Array:
    column = batch.column(PARTITION)
    names: Iterable[str] = column.dictionary.to_pylist()
    # The extra last cell is what a null becomes.
    ids = np.array([*(locations.intern_partition(name) for name in names), NO_PARTITION], np.int32)
    codes = column.indices.fill_null(len(ids) - 1).to_numpy(zero_copy_only=False)
    found: Int32Array = ids[codes]
    return found


def _one_batch(parts: list[pa.Table], schema: pa.Schema) -> pa.RecordBatch:
    batches = pa.concat_tables(parts).combine_chunks().to_batches() if parts else []
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if len(batches) > 1:
        raise SetupError(
            "the rows of one transaction exceed what one column can hold: lower limits.transaction_bytes"
        )
    return batches[0]
