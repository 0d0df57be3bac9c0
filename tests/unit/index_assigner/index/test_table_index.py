"""An assigner makes the index that the table's kind of record index asks for, over a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.hudi_format.metadata_table.test_partitioned_index import PartitionedTable
from tests.unit.hudi_format.metadata_tables import file_id
from tests.unit.index_assigner.index_world import DataTable
from tests.unit.table_files import table_schema, write_config
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.storage.base import Storage
from tidemark.index_assigner import offline
from tidemark.index_assigner.assign.warming import NotWarmedError
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.partitioned import PartitionedIndex
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.table_index import cache_identity, table_index
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import SteppedLoads

LANES = 2


def configured(folder: Path) -> TableConfigFile:
    config = load_config(write_config(folder), {})
    return replace(config, table=replace(config.table, index=replace(config.table.index, lanes=LANES)))


@contextmanager
def made(folder: Path, storage: Storage, locations: Locations) -> Iterator[TieredIndex]:
    rocks, loads = RocksTier(folder / "cache", "t", 1 << 20), SteppedLoads()
    kind = read_record_index_kind(storage)
    index = table_index(
        configured(folder), storage, table_schema(), kind, 0, rocks, locations, ManualClock(), loads
    )
    yield index
    index.stop()
    rocks.close()


def test_a_partitioned_index_answers_by_partition_and_key(tmp_path: Path) -> None:
    table, locations = PartitionedTable(), Locations(2)
    table.commit({("eu", "a"): 1, ("us/ca", "a"): 2, ("eu", "b"): 3}, 2)
    assert read_record_index_kind(table.storage) is IndexKind.PARTITIONED
    with made(tmp_path, table.storage, locations) as index:
        assert isinstance(index, PartitionedIndex)
        for lane in range(LANES):
            index.open_lane(lane, MetadataTableSnapshot.load(table.storage))
        asked = {("eu", "a"): 1, ("us/ca", "a"): 2, ("eu", "b"): 3, ("us/ca", "b"): None, ("new", "a"): None}
        for (path, name), group in asked.items():
            key = pa.array([name])
            lane = int(identity_lanes(key, np.zeros(1, np.int32), [path], LANES)[0])
            found = index.lookup(lane, key, np.array([locations.intern_partition(path)], np.int32))
            at = int(found.stored.location[0])
            assert (locations.file_ids[at] if at >= 0 else None) == (group and file_id(group)), (path, name)


def test_a_global_index_is_made_by_shard(tmp_path: Path) -> None:
    with made(tmp_path, DataTable().storage, Locations(2)) as index:
        assert type(index) is TieredIndex


def test_a_cache_folder_is_for_one_kind_and_its_lanes() -> None:
    names = {
        cache_identity("t", IndexKind.GLOBAL, 4, 2),
        cache_identity("t", IndexKind.GLOBAL, 5, 2),
        cache_identity("t", IndexKind.PARTITIONED, 0, 2),
        cache_identity("t", IndexKind.PARTITIONED, 0, 3),
    }
    assert len(names) == 4
    # Folders of former versions are kept.
    assert cache_identity("t", IndexKind.GLOBAL, 4, 2) == "t 4"


def test_warming_a_partitioned_index_is_refused_by_its_name(tmp_path: Path) -> None:
    config, clock = configured(tmp_path), ManualClock()
    client = MemoryKafkaClient(MemoryBroker(clock, SeededIds(1)))
    with pytest.raises(NotWarmedError, match=r"partitioned, and `tidemark index warm` is for a global one"):
        offline.warm_index(config, PartitionedTable().storage, client, clock, SeededIds(2), print)
    assert not config.state.path.exists()
