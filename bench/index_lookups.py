"""Rates of the tiered index: lookups from each tier, staging, promotion. Prints its conditions and figures.

    python -m bench.index_lookups [--keys 1000000] [--batch 10000] [--shards 8] [--kind uuid] [--choice zipf]
                                  [--updated 0.5] [--inserts 0.1] [--batches 10] [--memory-mib 512]
                                  [--file-groups 10000] [--partitions 1000]

With `--batch 1000 --batches 1000` a row has p50, p99 and p99.9.

The record index lies in compacted base files on local disk and names 2 000 file groups and 50 insert
instants. Keys are those of the table, but for the share ``--inserts``, which it does not have. "Cold" starts
with an empty cache folder: batches read blocks while a thread loads the shards into run files. "RocksDB" is a
new process on that folder, each batch of other keys: run files answer, and RocksDB for the share of the keys
that got an ordering value since (``--updated``).
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
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

from bench.anonymous_memory import AnonymousMemory, anonymous_bytes
from bench.index_keys import CHOICES, KEYS
from bench.index_tables import FILE_GROUPS, INSERT_INSTANTS, make_table_apart
from tidemark.hudi_format.log_file import OrderingType
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import MergeMode
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import ThreadedLoads
from tidemark.stream_runtime.allocator import use_system_allocator
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

_SCHEMA: Final = TableSchema.from_arrow(
    "t", pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("at", pa.int64(), nullable=False)])
)
_BATCHES: Final = 10
_UPDATES_AT_ONCE: Final = 100_000
_LANES: Final = 1
_DISK_MIB: Final = 64 << 10
_MIB: Final = 1 << 20
# Percentile -> of so many batches it says something: of fewer the longest is printed.
_RUNS_FOR: Final = {50: 2, 99: 100, 99.9: 1_000}
OPENED: Final = "lane opened"
COLD: Final = "cold, first batch"

Batch = tuple[pa.StringArray, npt.NDArray[np.int32]]


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = arguments.add_argument
    add("--keys", type=int, default=1_000_000, help="keys of the table")
    add("--batch", type=int, default=10_000, help="distinct keys of one lookup")
    add("--batches", type=int, default=_BATCHES, help="lookups that a row is made from")
    add("--shards", type=int, default=8, help="shards of the record index")
    add("--memory-mib", type=int, default=512, help="state.memory of the index")
    add("--disk-mib", type=int, default=_DISK_MIB, help="state.disk of the index")
    add("--mapped-mib", type=int, default=1_024, help="state.mapped of the index")
    add("--kind", choices=list(KEYS), default="sequential", help="what the keys look like")
    add("--choice", choices=list(CHOICES), default="uniform", help="which keys a batch asks for")
    add("--updated", type=float, default=0.0, help="share of the keys that were updated since the load")
    add("--inserts", type=float, default=0.0, help="share of a batch's keys that are not in the table")
    add("--file-groups", type=int, default=FILE_GROUPS, help="file groups that the index names")
    add("--partitions", type=int, default=1, help="partitions of the table that they lie in")
    chosen = arguments.parse_args()
    # As an assigner does. Otherwise the first batch has PyArrow's import of pandas in it, 0.3 CPU s.
    use_arrow_alone()
    use_system_allocator()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-index-"))
    try:
        IndexBench(
            folder,
            chosen.keys,
            chosen.batch,
            chosen.shards,
            chosen.memory_mib * _MIB,
            kind=chosen.kind,
            choice=chosen.choice,
            updated=chosen.updated,
            batches=chosen.batches,
            disk=chosen.disk_mib * _MIB,
            mapped=chosen.mapped_mib * _MIB,
            inserts=chosen.inserts,
            groups=chosen.file_groups,
            partitions=chosen.partitions,
        ).run()
    finally:
        shutil.rmtree(folder)


class IndexBench:
    """One table, and indexes over it. `seconds`: what was timed -> wall seconds of each run."""

    def __init__(
        self,
        folder: Path,
        keys: int,
        batch: int,
        shards: int,
        memory: int,
        *,
        kind: str = "sequential",
        choice: str = "uniform",
        updated: float = 0.0,
        batches: int = _BATCHES,
        disk: int = _DISK_MIB * _MIB,
        mapped: int = 1 << 30,
        inserts: float = 0.0,
        groups: int = FILE_GROUPS,
        partitions: int = 1,
    ) -> None:
        self.folder, self.batch, self.shards, self.memory = folder, batch, shards, memory
        self.limits = IndexLimits(memory, disk, mapped)
        self.count, self.kind, self.choice = keys, kind, choice
        self.updated, self.batches, self.inserts = updated, batches, inserts
        self.groups, self.partitions = groups, partitions
        self.ordered = updated > 0
        self.seconds: dict[str, list[float]] = {}
        self.clock = SystemClock()
        self.random = np.random.default_rng(17452)
        self.storage = LocalStorage(str(folder / "table"))

    def run(self) -> None:
        self._conditions()
        table = self.folder / "table"
        make_table_apart(table, self.kind, self.count, self.shards, self.groups, self.partitions)
        before = anonymous_bytes()
        with AnonymousMemory() as memory:
            self._measure()
        print(
            f"  anonymous memory (RssAnon) {before / _MIB:.0f} MiB before the index was opened, at most "
            f"{memory.peak / _MIB:.0f} MiB"
        )
        print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")

    def _measure(self) -> None:
        index = self._index()
        self._timed(COLD, [self._ask(index, self._some())])
        print(f"    blocks read: {index.stats()['blocks_read']:.0f}")
        self._timed("cold, next batches", self._asks(index, self._some))
        self._load(index)
        self._timed("run files, other keys each batch", self._asks(index, self._some))
        self._timed("run files, absent keys", self._asks(index, self._others))
        self._update(index)
        self._close(index)
        index = self._index()
        self._timed("RocksDB, other keys each batch", self._asks(index, self._some))
        same = self._some()
        index.lookup(0, *same)
        self._timed("hot cache, the same keys", self._asks(index, lambda: same))
        self._timed("absent keys, proven by coverage", self._asks(index, self._others))
        self._change(index, [self._others() for _ in range(_BATCHES)])
        run_bytes = index.stats()["run_bytes"]
        print(
            f"  RocksDB folder {self.rocks.disk_bytes() / _MIB:.1f} MiB, run files {run_bytes / _MIB:.1f} MiB"
        )
        self._close(index)

    def _close(self, index: TieredIndex) -> None:
        index.stop()
        self.rocks.close()

    def _load(self, index: TieredIndex) -> None:
        """Looks keys up until all shards have their run, or the disk has no more room."""
        started, used = self.clock.monotonic_s(), process_time()
        batches = 0
        index.warm(start=True)
        while index.warm(start=False).left:
            index.lookup(0, *self._some())
            batches += 1
        wall_s, cpu_s = self.clock.monotonic_s() - started, process_time() - used
        print(
            f"  {index.stats()['run_shards']:.0f} shards loaded after {batches} more batches, {wall_s:.1f} s "
            f"({cpu_s:.1f} CPU s); {index.stats()['run_entries_lacking']:.0f} entries are in no run file"
        )

    def _change(self, index: TieredIndex, batches: list[Batch]) -> None:
        changes = [self._changes(*batch, ordering=0) for batch in batches]
        self._timed("stage inserts", [partial(index.stage, 0, each) for each in changes])
        self._timed("uncommitted keys", [self._ask(index, each) for each in batches])
        index.counted([0], 2)
        self._timed("promote (all batches at once)", [lambda: index.promote(2, "9" * 17, 2)], _BATCHES)

    def _update(self, index: TieredIndex) -> None:
        """Gives a share of the keys, chosen without order, an ordering value, as epochs with updates do."""
        total = int(self.count * self.updated)
        if not total:
            return
        started, used = self.clock.monotonic_s(), process_time()
        for number, first in enumerate(range(0, total, _UPDATES_AT_ONCE), 1):
            ranks = np.arange(first, min(first + _UPDATES_AT_ONCE, total), dtype=np.int64)
            # An odd step spreads the updated keys over the table: no two ranks share a position.
            batch = self._batch_of(self._spread(ranks) * 2)
            index.lookup(0, *batch)
            index.stage(0, self._changes(*batch, ordering=number))
            index.counted([0], number)
            # Without a completion time the shards' stamps stay. The table has no such commits: with stamps of
            # them the next opening would fill the shards anew, and RocksDB would have none of these entries.
            index.promote(number, None, number)
        stats = index.stats()
        while stats["take_overs_due"] or stats["run_loading_entries_max"]:
            index.lookup(0, *self._some())
            stats = index.stats()
        wall_s, cpu_s = self.clock.monotonic_s() - started, process_time() - used
        print(
            f"  {total} keys looked up and updated in {wall_s:.1f} s ({cpu_s:.1f} CPU s); "
            f"{stats['take_overs']:.0f} take-overs, "
            f"{stats['change_run_entries']:.0f} entries in change runs"
        )

    def _spread(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        step = 2_654_435_761
        while np.gcd(step, self.count) != 1:
            step += 2
        return ranks * step % self.count

    def _conditions(self) -> None:
        load = ", ".join(f"{each:.2f}" for each in os.getloadavg())
        print(
            f"{self.count} keys ({self.kind}), {self.shards} shards, {self.groups} file groups in "
            f"{self.partitions} partitions × {INSERT_INSTANTS} insert instants, batches of {self.batch} "
            f"({self.choice}, {self.inserts:.0%} inserts), {self.updated:.0%} of the keys updated, "
            f"memory limit {self.memory // _MIB} MiB, disk "
            f"{self.limits.disk_bytes // _MIB} MiB, mapped {self.limits.mapped_bytes // _MIB} MiB"
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
        rate, rate_cpu = keys / float(np.median(wall)), keys * len(cpu) / max(sum(cpu), 1e-9)
        tails = ", ".join(
            f"p{percentile:g} {np.percentile(wall, percentile) * 1000:.1f} ms"
            for percentile in _RUNS_FOR
            if len(wall) >= _RUNS_FOR[percentile]
        )
        print(
            f"  {what:<40} {rate:>11,.0f} keys/s {rate_cpu:>11,.0f} keys/CPU s  "
            f"({len(runs)} runs; {tails or 'one'}; longest {max(wall) * 1000:.1f} ms)"
        )

    def _some(self) -> Batch:
        """Keys of the table, and its share of others that sort among them."""
        numbers = CHOICES[self.choice](self.random, self.count, self.batch) * 2
        numbers[: round(self.batch * self.inserts)] += 1
        return self._batch_of(numbers)

    def _others(self) -> Batch:
        """Keys that sort among the table's and are not in it."""
        return self._batch_of(CHOICES[self.choice](self.random, self.count, self.batch) * 2 + 1)

    def _batch_of(self, numbers: npt.NDArray[np.int64]) -> Batch:
        keys = KEYS[self.kind](numbers)
        return keys, record_index_shard(keys, self.shards)

    def _asks(self, index: TieredIndex, batch: Callable[[], Batch]) -> Sequence[Callable[[], object]]:
        """One lookup per run; batches are made before, outside of what is timed."""
        return [self._ask(index, batch()) for _ in range(self.batches)]

    def _ask(self, index: TieredIndex, batch: Batch) -> Callable[[], object]:
        return lambda: index.lookup(0, *batch)

    def _changes(self, keys: pa.StringArray, shards: npt.NDArray[np.int32], ordering: int) -> StagedChanges:
        """Every key at the first file group; ``ordering``: the ordering value of all, 0 for none."""
        count = len(keys)
        return StagedChanges(
            keys=keys,
            shards=shards,
            location=np.zeros(count, np.int32),
            ordering=np.full(count, ordering, np.int64),
            has_ordering=np.full(count, ordering > 0, np.bool_),
            exact=np.full(count, ordering > 0, np.bool_),
            deleted_from=np.full(count, -1, np.int32),
            expires_ms=np.zeros(count, np.int64),
        )

    def _index(self) -> TieredIndex:
        limits = self.limits
        self.rocks = RocksTier(self.folder / "rocks", "bench", limits.rocks_memory)
        ordered = self.ordered
        mode = MergeMode.EVENT_TIME_ORDERING if ordered else MergeMode.COMMIT_TIME_ORDERING
        field = OrderingField("at", pa.int64(), OrderingType.LONG) if ordered else None
        parts = OrderingParts(_SCHEMA, mode, field, False, 0)
        index = TieredIndex(
            self.storage,
            self.rocks,
            Locations(8),
            self.shards,
            _LANES,
            ordered,
            limits,
            parts,
            self.clock,
            loads=ThreadedLoads(),
        )
        started = self.clock.monotonic_s()
        index.open_lane(0, MetadataTableSnapshot.load(self.storage))
        opened_s = self.clock.monotonic_s() - started
        self.seconds.setdefault(OPENED, []).append(opened_s)
        print(f"  lane opened in {opened_s * 1000:.0f} ms")
        return index


if __name__ == "__main__":
    main()
