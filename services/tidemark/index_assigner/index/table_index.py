"""Makes the index of a table over a cache folder, as the kind of its record index says."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.config import TableConfigFile
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import limits_of
from tidemark.index_assigner.index.partitioned import PartitionedIndex
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import Loads
from tidemark.stream_runtime.clock import Clock


def cache_identity(table_id: str, kind: IndexKind, num_shards: int, lanes: int) -> str:
    """What a cache folder is named by: content of another one is deleted.

    Entries of a global index are kept by shard, whose number is in it. Those of a partitioned one are kept by
    lane, partition and shard, so the lanes are in it, and how they follow from a row.
    """
    if kind is IndexKind.PARTITIONED:
        return f"{table_id} {kind} {lanes} {LANE_FUNCTION}"
    return f"{table_id} {num_shards}"


def table_index(
    config: TableConfigFile,
    storage: Storage,
    schema: TableSchema,
    kind: IndexKind,
    num_shards: int,
    rocks: RocksTier,
    locations: Locations,
    clock: Clock,
    loads: Loads,
    tier_read: Callable[[str, float], None] = lambda tier, seconds: None,
) -> TieredIndex:
    """The index of the table over this cache folder. ``schema``: the configured one. ``kind``: of the table's
    record index. ``num_shards``: of a global one.
    """
    table = read_table_config(storage)
    mode, field = table_ordering(table, schema)
    ordered = field is not None
    limits, lanes = limits_of(config.state), config.table.index.lanes
    deletes_stay = ordered and table.is_merge_on_read
    parts = OrderingParts(schema, mode, field, deletes_stay, config.table.index.tombstone_ttl_ms)
    if kind is IndexKind.PARTITIONED:
        return PartitionedIndex(
            storage, rocks, locations, lanes, ordered, limits, parts, clock, tier_read, loads
        )
    return TieredIndex(
        storage, rocks, locations, num_shards, lanes, ordered, limits, parts, clock, tier_read, loads
    )
