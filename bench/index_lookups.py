"""Rates of the tiered index: lookups from each tier, staging, promotion. Prints its conditions and figures.

    python -m bench.index_lookups [--keys 1000000] [--batch 10000] [--shards 8]

The record index lies in compacted base files on local disk. "Cold" starts with an empty RocksDB folder: each
batch takes some of the blocks over. "RocksDB" is a new process on that folder, each batch of other keys.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import InstantGenerator, RecordLocation
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import MergeMode, TableDefinition, TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.stream_runtime.clock import SystemClock

_SCHEMA: Final = TableSchema.from_arrow("t", pa.schema([pa.field("id", pa.string(), nullable=False)]))
_FILE_GROUPS: Final = 64
_BATCHES: Final = 10
_LANES: Final = 1
_MIB: Final = 1 << 20
OPENED: Final = "lane opened"
COLD: Final = "cold, first batch"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", type=int, default=1_000_000)
    arguments.add_argument("--batch", type=int, default=10_000)
    arguments.add_argument("--shards", type=int, default=8)
    arguments.add_argument("--memory-mib", type=int, default=512)
    chosen = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-index-"))
    try:
        IndexBench(folder, chosen.keys, chosen.batch, chosen.shards, chosen.memory_mib * _MIB).run()
    finally:
        shutil.rmtree(folder)


class IndexBench:
    """One table, and indexes over it. `seconds`: what was timed -> wall seconds of each run."""

    def __init__(self, folder: Path, keys: int, batch: int, shards: int, memory: int) -> None:
        self.folder, self.batch, self.shards, self.memory = folder, batch, shards, memory
        self.count = keys
        self.seconds: dict[str, list[float]] = {}
        self.clock = SystemClock()
        self.random = np.random.default_rng(17452)
        self.storage = LocalStorage(str(folder / "table"))
        self.keys = pa.array([f"order-{number:012d}" for number in self.random.permutation(keys).tolist()])
        self.of_shard = record_index_shard(self.keys, shards)

    def run(self) -> None:
        self._conditions()
        self._make_table()
        index = self._index()
        self._timed(COLD, [lambda: self._look_up(index, self._some())])
        print(f"    blocks read: {index.figures()['blocks_read']:.0f}")
        self._timed("cold, next batches", [self._ask(index, self._some()) for _ in range(_BATCHES)])
        self.rocks.close()
        index = self._index()
        self._timed(
            "RocksDB, other keys each batch", [self._ask(index, self._some()) for _ in range(_BATCHES)]
        )
        same = self._some()
        self._look_up(index, same)
        self._timed("hot cache, the same keys", [self._ask(index, same)] * _BATCHES)
        absent = [self._named(f"no-{batch}-") for batch in range(_BATCHES)]
        self._timed("absent keys, proven by coverage", [self._ask(index, each) for each in absent])
        self._change(index, absent)
        print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        print(f"  RocksDB folder {self.rocks.disk_bytes() / _MIB:.1f} MiB")
        self.rocks.close()

    def _change(
        self, index: TieredIndex, batches: list[tuple[pa.StringArray, npt.NDArray[np.int32]]]
    ) -> None:
        changes = [self._inserts(keys, shards) for keys, shards in batches]
        self._timed("stage inserts", [partial(index.stage, 0, each) for each in changes])
        self._timed("uncommitted keys", [self._ask(index, each) for each in batches])
        index.counted([0], 1)
        self._timed("promote (all batches at once)", [lambda: index.promote(1, "9" * 17, 1)], _BATCHES)

    def _conditions(self) -> None:
        load = ", ".join(f"{each:.2f}" for each in os.getloadavg())
        print(
            f"{self.count} keys, {self.shards} shards, batches of {self.batch}, "
            f"memory limit {self.memory // _MIB} MiB"
        )
        print(
            f"  {platform.platform()}, {os.cpu_count()} CPUs, load {load}, Python {platform.python_version()}"
        )
        print("  " + ", ".join(f"{each} {version(each)}" for each in ("numpy", "pyarrow", "rocksdict")))

    def _timed(self, what: str, runs: Sequence[Callable[[], object]], batches_a_run: int = 1) -> None:
        wall, cpu = [], []
        for run in runs:
            started, used = self.clock.monotonic_s(), process_time()
            run()
            wall.append(self.clock.monotonic_s() - started)
            cpu.append(process_time() - used)
        self.seconds[what] = wall
        keys = self.batch * batches_a_run
        rate, rate_cpu = keys / statistics.median(wall), keys / statistics.median(cpu)
        print(
            f"  {what:<40} {rate:>11,.0f} keys/s {rate_cpu:>11,.0f} keys/CPU s  "
            f"(median of {len(runs)}; longest {max(wall) * 1000:.0f} ms)"
        )

    def _some(self) -> tuple[pa.StringArray, npt.NDArray[np.int32]]:
        chosen = self.random.choice(self.count, self.batch, replace=False)
        return self.keys.take(pa.array(chosen)), self.of_shard[chosen]

    def _named(self, prefix: str) -> tuple[pa.StringArray, npt.NDArray[np.int32]]:
        """Keys that sort among the table's, and are not in it."""
        numbers = self.random.choice(self.count, self.batch, replace=False).tolist()
        keys = pa.array([f"order-{number:012d}-{prefix}" for number in numbers])
        return keys, record_index_shard(keys, self.shards)

    def _ask(
        self, index: TieredIndex, batch: tuple[pa.StringArray, npt.NDArray[np.int32]]
    ) -> Callable[[], object]:
        return lambda: self._look_up(index, batch)

    def _look_up(self, index: TieredIndex, batch: tuple[pa.StringArray, npt.NDArray[np.int32]]) -> None:
        index.lookup(0, *batch)

    def _inserts(self, keys: pa.StringArray, shards: npt.NDArray[np.int32]) -> StagedChanges:
        count = len(keys)
        return StagedChanges(
            keys=keys,
            shards=shards,
            location=np.zeros(count, np.int32),
            ordering=np.zeros(count, np.int64),
            has_ordering=np.zeros(count, np.bool_),
            exact=np.zeros(count, np.bool_),
            deleted_from=np.full(count, -1, np.int32),
            expires_ms=np.zeros(count, np.int64),
        )

    def _index(self) -> TieredIndex:
        limits = IndexLimits(self.memory, 4 << 30)
        self.rocks = RocksTier(self.folder / "rocks", "bench", limits.rocks_memory)
        parts = OrderingParts(_SCHEMA, MergeMode.COMMIT_TIME_ORDERING, None, False, 0)
        index = TieredIndex(
            self.storage, self.rocks, Locations(8), self.shards, _LANES, False, limits, parts, self.clock
        )
        started = self.clock.monotonic_s()
        index.open_lane(0, MetadataTableSnapshot.load(self.storage))
        opened_s = self.clock.monotonic_s() - started
        self.seconds.setdefault(OPENED, []).append(opened_s)
        print(f"  lane opened in {opened_s * 1000:.0f} ms")
        return index

    def _make_table(self) -> None:
        """The record index in base files, as after a compaction."""
        (self.folder / "table").mkdir(exist_ok=True)
        definition = TableDefinition(
            name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",), partition_fields=()
        )
        create_table(self.storage, definition)
        times = InstantGenerator(self.clock)
        bootstrap_metadata_table(self.storage, self.shards, times)
        requested = create_requested(
            Unfenced(self.storage), times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT
        )
        compaction = create_inflight(Unfenced(self.storage), requested, root=METADATA_TABLE_ROOT)
        groups = [
            RecordLocation("", f"{number:08d}-0000-4000-8000-000000000000-0")
            for number in range(_FILE_GROUPS)
        ]
        for shard in range(self.shards):
            mine = self.keys.take(pa.array(np.flatnonzero(self.of_shard == shard))).sort()
            located = (np.arange(len(mine)) % _FILE_GROUPS).astype(np.int32)
            values = encode_values(located, groups, np.zeros(len(mine), np.int64))
            name = f"record-index-{shard:04d}-0_{shard}-0-0_{compaction.requested}.hfile"
            data = write_hfile(mine, values, metadata_record_schema())
            self.storage.create(f"{RECORD_INDEX_FOLDER}/{name}", data)
        metadata = encode_commit_metadata(CommitMetadata(compacted=True))
        complete(Unfenced(self.storage), compaction, times.next(), metadata, root=METADATA_TABLE_ROOT)


if __name__ == "__main__":
    main()
