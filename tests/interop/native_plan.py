"""What a commit of ours does to each file group and to the record index, tagged by the table's own index.

Plain on purpose: one key after the other. A key that moves is deleted from its old file group and inserted
into the first file group of its new partition, or into a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tests.interop.read_table import ReadTable
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingField
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.stream_runtime.ids import IdSource


@dataclass
class GroupChange:
    """What happens to one file group: rows to upsert (positions in the input), and deletes with ordering."""

    rows: list[int] = field(default_factory=list)
    deletes: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class CommitPlan:
    """The input as columns, and what becomes of it. `index` holds what changes; None is a delete."""

    upserts: pa.Table
    keys: pa.Array
    ordering: OrderingField | None
    slices: dict[RecordLocation, FileSlice]
    groups: dict[RecordLocation, GroupChange] = field(default_factory=dict)
    index: dict[str, RecordLocation | None] = field(default_factory=dict)

    def group(self, location: RecordLocation) -> GroupChange:
        """The changes of a file group, none so far where it is new to the plan."""
        return self.groups.setdefault(location, GroupChange())


def plan_commit(
    table: ReadTable,
    schema: TableSchema,
    snapshot: MetadataTableSnapshot,
    upserts: pa.Table,
    deletes: Sequence[tuple[str, int | None]],
    ids: IdSource,
) -> CommitPlan:
    """Tags `upserts` (user columns) and `deletes` (record key, ordering value or None = unconditional)."""
    config, upserts = table.config, cast_rows(upserts, schema.arrow)
    generator = KeyGenerator.from_table_config(config, schema)
    keys, paths = generator.record_keys(upserts), generator.partition_paths(upserts)
    refused = [each for each in (*keys.error.to_pylist(), *paths.error.to_pylist()) if each]
    assert not refused, refused
    field_name = config.ordering_fields[0] if config.ordering_fields else None
    ordering = None if field_name is None else OrderingField.of(schema, field_name)
    values = [NO_ORDERING] * upserts.num_rows
    if ordering is not None:
        values = ordering.to_int64(upserts.column(ordering.name)).tolist()
    slices = {RecordLocation(each.partition_path, each.file_id): each for each in table.slices()}
    plan = CommitPlan(upserts, keys.keys, ordering, slices)
    known = locate(snapshot, [*keys.keys.to_pylist(), *(key for key, _ in deletes)])
    for row, (key, path) in enumerate(zip(keys.keys.to_pylist(), paths.keys.to_pylist(), strict=True)):
        old = known.get(key)
        target = old if old is not None and old.partition_path == path else _home(path, plan, ids)
        plan.group(target).rows.append(row)
        if old != target:
            plan.index[key] = target
            if old is not None:
                plan.group(old).deletes.append((key, values[row]))
    for key, value in deletes:
        if key in known:
            plan.group(known[key]).deletes.append((key, NO_ORDERING if value is None else value))
            plan.index[key] = None
    return plan


def locate(snapshot: MetadataTableSnapshot, keys: list[str]) -> dict[str, RecordLocation]:
    """Locations of the known keys, by point lookups in their shards."""
    column = pa.array(keys, pa.string())
    shards = record_index_shard(column, snapshot.num_shards)
    known: dict[str, RecordLocation] = {}
    for shard in np.unique(shards).tolist():
        asked = column.filter(pa.array(shards == shard))
        answer = snapshot.shard(shard).lookup(asked)
        for key, location in zip(asked.to_pylist(), answer.location_ids.tolist(), strict=True):
            if location >= 0:
                known[key] = answer.locations[location]
    return known


def _home(path: str, plan: CommitPlan, ids: IdSource) -> RecordLocation:
    for location in (*sorted(plan.slices), *plan.groups):
        if location.partition_path == path:
            return location
    return RecordLocation(path, f"{ids.uuid()}-0")
