"""Joins whole slices of several lanes into one record batch, which one transaction of the assign stage
tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidemark.epoch_protocol.batches import KEY, KEYED_COLUMNS, OP, ORDERING, PARTITION, SHARD
from tidemark.epoch_protocol.entries import Consumed
from tidemark.hudi_format.record_index_hash import record_index_shard
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
    """Rows of several lanes, lane by lane.

    ``rows``: `KEYED_COLUMNS` without the partition, then the user's columns. ``partitions``: per row the id
    of its table partition in `Locations`, `NO_PARTITION` where it is null. ``lanes``: each lane's range of
    rows. ``records``: number of input records in the slices, dead letters included.
    """

    rows: pa.RecordBatch
    partitions: Int32Array
    lanes: list[LaneSpan]
    records: int
    dead_letters: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def keyed_batch(slices: Sequence[KeyedSlice], schema: TableSchema, locations: Locations) -> KeyedBatch:
    """Joins the slices; those of a lane stay in the order given.

    Rows of an older schema get nulls for the columns that they lack. Raises SetupError for rows with columns
    that ``schema`` lacks, since dropping those would lose data; SchemaError for a column whose type cannot be
    cast to that of ``schema``.
    """
    by_lane: dict[int, list[KeyedSlice]] = {}
    for slice_ in slices:
        by_lane.setdefault(int(slice_.lane), []).append(slice_)
    parts: list[pa.Table] = []
    partitions: list[Int32Array] = []
    spans: list[LaneSpan] = []
    at = 0
    wanted = _batch_schema(schema)
    for lane, of_lane in sorted(by_lane.items()):
        batches = [batch for slice_ in of_lane for batch in slice_.batches]
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
        records=sum(slice_.records for slice_ in slices),
        dead_letters=sum(len(slice_.dead_letters) for slice_ in slices),
    )


def with_shards(batch: KeyedBatch, shards: int) -> KeyedBatch:
    """The batch with the rows' shards in a record index of so many ``shards``.

    Rows that were shuffled before the index was rebuilt name their shard in the former one. Their lane is the
    same in both (`rebuilding.numbers`). ``shards`` 0: the index is partitioned, and rows name
    their lane, which a rebuild does not change.
    """
    if not shards:
        return batch
    numbers = pa.array(record_index_shard(batch.rows.column(KEY), shards))
    at = batch.rows.schema.get_field_index(SHARD)
    rows = batch.rows.set_column(at, batch.rows.schema.field(at), numbers)
    return replace(batch, rows=rows)


def consumed_ranges(slices: Sequence[KeyedSlice]) -> list[Consumed]:
    """The offsets that the slices cover, as one range per lane: a lane's slices have no gap between them."""
    ranges: dict[str, Consumed] = {}
    for slice_ in slices:
        lane, before = slice_.lane, ranges.get(slice_.lane)
        assert before is None or before.next == slice_.start, (before, slice_.start)
        ranges[lane] = Consumed(lane, before.start if before else slice_.start, slice_.next)
    return list(ranges.values())


def _batch_schema(schema: TableSchema) -> pa.Schema:
    ours = [KEYED_COLUMNS.field(name) for name in _KEPT]
    return pa.schema([*ours, *(field.with_nullable(True) for field in schema.arrow)])


def _conformed(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.Table:
    present = set(batch.schema.names)
    unknown = present - set(wanted.names) - {PARTITION}
    if unknown:
        raise SetupError(
            f"keyed rows have the columns {', '.join(sorted(unknown))}, which table.schema of this assigner "
            "lacks: start all services with the same, newest schema"
        )
    columns = []
    for field in wanted:
        if field.name not in present:
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
            f"column {field.name}: keyed rows have {column.type}, but table.schema has {field.type}: {error}"
        ) from error


def _partition_ids(batch: pa.RecordBatch, locations: Locations) -> Int32Array:
    column = batch.column(PARTITION)
    names: Iterable[str] = column.dictionary.to_pylist()
    # Each distinct name is interned once, and the codes of the dictionary pick the ids. Nulls pick an extra
    # last cell: names ["a", "b"] give ids [0, 1, NO_PARTITION], and the codes 1, null become 1,
    # NO_PARTITION.
    ids = np.array([*(locations.intern_partition(name) for name in names), NO_PARTITION], np.int32)
    codes = column.indices.fill_null(len(ids) - 1).to_numpy(zero_copy_only=False)
    partition_ids: Int32Array = ids[codes]
    return partition_ids


def _one_batch(parts: list[pa.Table], schema: pa.Schema) -> pa.RecordBatch:
    batches = pa.concat_tables(parts).combine_chunks().to_batches() if parts else []
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if len(batches) > 1:
        raise SetupError(
            "the rows of one transaction exceed what one column can hold: lower limits.transaction_bytes"
        )
    return batches[0]
