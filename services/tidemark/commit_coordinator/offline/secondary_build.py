"""Builds a secondary index of a table from its rows while other writers write it.

1. Read the rows without the table's lock, and sort the entries into files on this machine. Then read what was
   committed meanwhile, in rounds, until a round finds little.
2. Prepare all files of the index in the table, where nobody sees them.
3. Under the lock: if nothing was committed since the last round and no write is pending, put the files in
   place and switch the index on (`metadata_table/secondary_creation.py`). Else give the lock back, ask the
   coordinator for a moment without commits (`commit/index_at_rest.py`), read what came, and do 2 and 3 again.

So the lock is held for a few small files, however large the table is. Example: rows are read until 10:00:07,
a commit completes at 10:00:08, the lock is taken at 10:00:09 and given back; what the commit changed is read,
and at 10:00:10 nothing was committed since.

An attempt that was planned before knows nothing of the index: none is pending when it is switched on, and the
next plan has it. Another engine's write that is pending is waited for while it is alive.

Another writer that commits more often than a round takes would keep the index from being made. After
`TRIES_MAX` rounds the last one is read under the lock, which then takes as long as that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.commit_coordinator.offline.index_command import IndexCommand
from tidemark.commit_coordinator.offline.progress import Progress
from tidemark.hudi_format.metadata_table.index_creation import builds, next_build_instant
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryIndexPartition
from tidemark.hudi_format.metadata_table.secondary_creation import (
    StagedIndex,
    drop_secondary_index,
    stage_index,
    switch_on,
)
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.timeline import Timeline

HELD_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class CreatedIndex:
    """`partition`: the index's in the metadata table. `entries`: of how many rows it was made at first."""

    partition: str
    column: str
    groups: int
    entries: int


class SecondaryBuild(IndexCommand):
    """Makes and drops secondary indexes of one table."""

    def make(
        self,
        partition: SecondaryIndexPartition,
        config: TableConfig,
        schema: TableSchema,
        column: str,
        check: Callable[[], None] = lambda: None,
    ) -> CreatedIndex:
        """Makes the index, in place of one of this name. `config`, `schema`: the table's. `check`: called
        under the lock, raises where another index forbids this one.

        Raises SchemaError for a column that can have none, UnsupportedTableError, and as `at_rest`.
        """
        with self.command() as by, tempfile.TemporaryDirectory(prefix="tidemark-index-") as folder:
            scan = SecondaryIndexScan(self.storage, config, schema, column, Path(folder), HELD_BYTES)
            scan.scan(self.scanned(by))
            return self.make_of(by, scan, partition, column, check)

    def scanned(self, by: Command) -> Callable[[int, int], None]:
        """What a scan of all rows calls: says how far it is, and gives a sign of life. A command that is
        silent for ten minutes is taken for dead, and what it prepares is deleted (`publication/beside.py`).
        """
        progress = Progress(self.clock, self.say, "file groups")

        def scanned(done: int, left: int) -> None:
            by.beat()
            progress.scanned(done, left)

        return scanned

    def make_of(
        self,
        by: Command,
        scan: SecondaryIndexScan,
        partition: SecondaryIndexPartition,
        column: str,
        check: Callable[[], None],
    ) -> CreatedIndex:
        """Makes it of what was scanned. The other arguments, and what it raises, as `make`."""
        self.say("sorting the entries")
        scan.prepare(by.beat)
        scan.catch_up(by.beat)
        groups = self.at_rest(by, partition.name, _SwitchOn(self, by, scan, partition, column, check))
        return CreatedIndex(partition.name, column, groups, scan.entries)

    def drop(self, partition: SecondaryIndexPartition) -> None:
        """Removes the index, whole or half made. Raises AdoptionError where a coordinator left its lock,
        UnsupportedTableError while a compaction of it is pending.
        """
        with self.command() as by, self.locked(by):
            drop_secondary_index(by, partition, self.hit)


class _SwitchOn:
    """Steps 2 and 3 of one build. The answer is the number of file groups."""

    def __init__(
        self,
        build: SecondaryBuild,
        by: Command,
        scan: SecondaryIndexScan,
        partition: SecondaryIndexPartition,
        column: str,
        check: Callable[[], None],
    ) -> None:
        self._build, self._by, self._scan, self._check = build, by, scan, check
        self._partition, self._column = partition, column
        self._staged: StagedIndex | None = None
        self._builds: frozenset[str] = frozenset()

    def look(self, alive: Callable[[int, int], None]) -> MetadataTableSnapshot:
        seen = self._scan.scan(alive)
        self._builds = builds(seen.metadata_timeline)
        instant = next_build_instant(self._by.storage, seen.metadata_timeline)
        content = self._scan.content(lambda: alive(0, 0))
        self._staged = stage_index(self._by, self._partition, content, instant, self._staged)
        return seen

    def is_next(self, metadata: Timeline) -> bool:
        """Whether no index was built meanwhile."""
        return builds(metadata) <= self._builds

    def act(self, timelines: tuple[Timeline, Timeline]) -> int:
        assert self._staged is not None
        self._check()
        completion = self._build.later(timelines)
        switch_on(self._by, self._partition, self._column, self._staged, completion, self._build.hit)
        return len(self._staged.logs)
