"""Lookups of random keys on the table that the run left behind, by the tiers' own interface, in this process.

From RocksDB: the assigner's cache folder as it is, nothing in memory. Cold: an empty cache folder, so that
the lanes are opened from the metadata table's files alone, and lookups answered from them: on this table,
whose record index is all in log files (opening a lane takes these over into RocksDB), and on one whose record
index is compacted (each lookup takes part of the blocks that it reads over).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.hudi_settings import INDEX_SHARDS
from bench.index_lookups import COLD, OPENED, IndexBench
from bench.workload import Workload
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.index_assigner.assign_stage import open_cache, table_identity
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

_ROUNDS: Final = 5
_DATA_PARTITIONS: Final = 8
_LIMITS: Final = IndexLimits(512 << 20, 10 << 30)

Say = Callable[[str], None]


def measure(table: Path, state: Path, workload: Workload, lanes: int, count: int, say: Say) -> dict[str, Any]:
    """Seconds of lookups of ``count`` keys each, no key twice. `state` is the run's; it must have ended."""
    found: dict[str, Any] = {"keys": count}
    keys = workload.sample_keys(min(_ROUNDS * count, workload.region_of.size))
    for name, folder, tier in (
        ("rocksdb", state, Tier.ROCKSDB),
        ("mdt", state / "cold", None),
    ):
        index, opened_s = _open(table, folder, lanes)
        found[f"{name}_open_s"] = round(opened_s, 3)
        found[f"{name}_s"] = [
            round(_look_up(index, keys[first : first + count], lanes, tier), 4)
            for first in range(0, len(keys), count)
        ]
        say(f"{count} lookups from {name}: opened in {opened_s:.3f} s, then {found[f'{name}_s']}")
    found["compacted_s"] = round(_compacted(state / "compacted", workload.region_of.size, count), 3)
    say(f"{count} lookups from a compacted metadata table: {found['compacted_s']} s with opening")
    return found


def _compacted(folder: Path, keys: int, count: int) -> float:
    """Seconds to open the index with nothing cached, and to look the first keys up."""
    folder.mkdir()
    bench = IndexBench(folder, keys, count, INDEX_SHARDS, _LIMITS.memory_bytes)
    with contextlib.redirect_stdout(sys.stderr):
        bench.run()
    return bench.seconds[OPENED][0] + bench.seconds[COLD][0]


def _open(table: Path, state: Path, lanes: int) -> tuple[TieredIndex, float]:
    storage, clock = open_storage(str(table)), SystemClock()
    config = read_table_config(storage)
    schema = TableSchema.from_avro(config.properties["hoodie.table.create.schema"], config.name)
    mode, field = table_ordering(config, schema)
    started_s = time.perf_counter()
    snapshot = MetadataTableSnapshot.load(storage)
    identity = f"{table_identity(storage, SystemIds())} {snapshot.num_shards}"
    index = TieredIndex(
        storage,
        open_cache(state, identity, _LIMITS.rocks_memory),
        Locations(_DATA_PARTITIONS),
        snapshot.num_shards,
        lanes,
        field is not None,
        _LIMITS,
        OrderingParts(schema, mode, field, False, 0),
        clock,
    )
    for lane in range(lanes):
        index.open_lane(lane, snapshot)
    return index, time.perf_counter() - started_s


def _look_up(index: TieredIndex, keys: list[str], lanes: int, tier: Tier | None) -> float:
    """Hashing the keys to shards is part of it."""
    texts = pa.array(keys, pa.string())
    started_s = time.perf_counter()
    shards = record_index_shard(texts, INDEX_SHARDS)
    answers = []
    for lane in range(lanes):
        mine = np.flatnonzero(shards % lanes == lane)
        answers.append(index.lookup(lane, texts.take(pa.array(mine)), shards[mine]))
    took_s = time.perf_counter() - started_s
    present = sum(int(answer.stored.present.sum()) for answer in answers)
    if present != len(keys):
        raise RuntimeError(f"only {present} of {len(keys)} keys were found")
    if tier is not None and any((answer.tier != tier).any() for answer in answers):
        raise RuntimeError(f"not all keys came from {tier.name}")
    return took_s
