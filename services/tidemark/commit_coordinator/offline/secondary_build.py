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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.commit_coordinator.commit.index_at_rest import Rest
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.progress import Progress
from tidemark.hudi_format.commit.heartbeat import is_alive
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.metadata_table.index_creation import next_build_instant
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryIndexPartition
from tidemark.hudi_format.metadata_table.secondary_creation import (
    Hit,
    StagedIndex,
    drop_secondary_index,
    stage_index,
    switch_on,
)
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.locate import command_beside, open_publication
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.publication.table_lock import COMMAND_SILENT_MS
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Instant, Timeline, load_timeline
from tidemark.hudi_format.validation import UNSAFE_PENDING
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource

TRIES_MAX: Final = 20
PENDING_WAIT_MS: Final = 120_000
_LOOK_MS: Final = 500
_HELD_BYTES: Final = 128 << 20
_LOCK_WAIT_MS: Final = 5_000


@dataclass(frozen=True)
class CreatedIndex:
    """`partition`: the index's in the metadata table. `entries`: of how many rows it was made at first."""

    partition: str
    column: str
    groups: int
    entries: int


class SecondaryBuild:
    """Makes and drops secondary indexes of one table. `say` is told how far it is, `hit` each step under the
    lock.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: IdSource,
        say: Callable[[str], None] = lambda text: None,
        hit: Hit = lambda place: None,
    ) -> None:
        self.storage, self.clock, self._ids = storage, clock, ids
        self._say, self.hit = say, hit
        self._times = InstantGenerator(clock)

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

        Raises SchemaError for a column that can have none, UnsupportedTableError, AdoptionError where a
        coordinator left its lock or a write stays pending, LockHeldError, FencedOutError.
        """
        with self._command() as by, tempfile.TemporaryDirectory(prefix="tidemark-index-") as folder:
            scan = SecondaryIndexScan(self.storage, config, schema, column, Path(folder), _HELD_BYTES)
            scan.scan(Progress(self.clock, self._say, "file groups").scanned)
            self._say("sorting the entries")
            scan.prepare()
            scan.catch_up()
            with self._asking(by, partition) as rest:
                groups = _Finish(self, by, scan, rest, check).switch_on(partition, column)
        return CreatedIndex(partition.name, column, groups, scan.entries)

    def drop(self, partition: SecondaryIndexPartition) -> None:
        """Removes the index, whole or half made. Raises AdoptionError where a coordinator left its lock,
        UnsupportedTableError while a compaction of it is pending.
        """
        with self._command() as by, self.locked(by):
            drop_secondary_index(by, partition, self.hit)

    def wait_for(self, pending: Sequence[Instant], until_ms: int) -> None:
        """Waits a moment, without the lock, while the writers of these instants are alive. Raises
        AdoptionError for one that is not, and after the time.
        """
        now_ms = self.clock.now_ms()
        publication = open_publication(self.storage, self.clock, self._ids)
        refuse_pending(
            [one for one in pending if now_ms >= until_ms or not is_alive(publication, one.requested, now_ms)]
        )
        self.clock.sleep_ms(_LOOK_MS)

    def timelines(self) -> tuple[Timeline, Timeline]:
        """Those of the table and of its metadata table."""
        return load_timeline(self.storage), load_timeline(self.storage, METADATA_TABLE_ROOT)

    def completion(self, timelines: tuple[Timeline, Timeline]) -> str:
        """A time later than those of both timelines."""
        for timeline in timelines:
            self._times.observe(timeline.times())
        return self._times.next()

    @contextmanager
    def _asking(self, by: Command, partition: SecondaryIndexPartition) -> Iterator[Rest]:
        rest = Rest(by.storage, partition.name, self._ids.uuid())
        try:
            yield rest
        finally:
            rest.end()

    def _command(self) -> AbstractContextManager[Command]:
        ledger = known_ledger_id(self.storage)
        return command_beside(self.storage, self.clock, self._ids, ledger)

    @contextmanager
    def locked(self, by: Command) -> Iterator[None]:
        """Holds the lock; a command that died with it is waited for, until it counts as dead."""
        try:
            by.lock.acquire(_LOCK_WAIT_MS)
        except LockHeldError as error:
            holder = by.lock.holder()
            if holder is not None and not holder.is_foreign and not holder.command:
                raise AdoptionError(f"{error}: a coordinator left it. `tidemark recover` frees it") from error
            if holder is not None and holder.is_foreign:
                raise
            by.lock.acquire(COMMAND_SILENT_MS)
        try:
            yield
        finally:
            by.lock.release(self._times.taken_ms)
            by.lock.free()


class _Finish:
    """Steps 2 and 3 of one build."""

    def __init__(
        self,
        build: SecondaryBuild,
        by: Command,
        scan: SecondaryIndexScan,
        rest: Rest,
        check: Callable[[], None],
    ) -> None:
        self._build, self._by, self._scan, self._rest, self._check = build, by, scan, rest, check
        self._staged: StagedIndex | None = None
        self._asks = False

    def switch_on(self, partition: SecondaryIndexPartition, column: str) -> int:
        """Returns the number of file groups."""
        until_ms = self._build.clock.now_ms() + PENDING_WAIT_MS
        for _ in range(TRIES_MAX):
            seen = self._stage(partition)
            with self._build.locked(self._by):
                timelines = self._build.timelines()
                if self._is_as_of(seen, timelines):
                    return self._switch_on(partition, column, timelines)
            self._asks = True
            self._wait_for_pending(until_ms)
        with self._build.locked(self._by):
            timelines = self._build.timelines()
            refuse_pending(timelines[0].pending(*UNSAFE_PENDING))
            self._stage(partition)
            return self._switch_on(partition, column, timelines)

    def _stage(self, partition: SecondaryIndexPartition) -> MetadataTableSnapshot:
        """Reads what changed, and prepares the index's files."""
        self._alive()
        seen = self._scan.scan(self._alive)
        instant = next_build_instant(seen.metadata_timeline)
        self._staged = stage_index(self._by, partition, self._scan.content(), instant, self._staged)
        return seen

    def _switch_on(
        self, partition: SecondaryIndexPartition, column: str, timelines: tuple[Timeline, Timeline]
    ) -> int:
        assert self._staged is not None
        self._check()
        completion = self._build.completion(timelines)
        switch_on(self._by, partition, column, self._staged, completion, self._build.hit)
        return len(self._staged.logs)

    def _is_as_of(self, seen: MetadataTableSnapshot, timelines: tuple[Timeline, Timeline]) -> bool:
        """Whether nothing was completed, undone or archived since, no index was built, and nothing is pending
        that could bring rows.
        """
        data, metadata = timelines
        assert self._staged is not None
        is_same = set(data.completed()) == set(seen.data_timeline.completed())
        is_next = next_build_instant(metadata) == self._staged.instant
        return is_same and is_next and not data.pending(*UNSAFE_PENDING)

    def _wait_for_pending(self, until_ms: int) -> None:
        while pending := self._build.timelines()[0].pending(*UNSAFE_PENDING):
            self._alive()
            self._build.wait_for(pending, until_ms)

    def _alive(self, done: int = 0, left: int = 0) -> None:
        self._by.beat()
        if self._asks:
            self._rest.ask()


def refuse_pending(pending: Sequence[Instant]) -> None:
    """Raises AdoptionError where there is one."""
    if pending:
        instant = min(pending, key=lambda one: one.requested)
        raise AdoptionError(
            f"{instant.action.value} {instant.requested} is pending, and the index would miss its rows: "
            "let its writer finish; what a coordinator left `tidemark recover` ends"
        )
