"""Compares a secondary index with the rows of its table, and puts right what is wrong, while other writers
write it.

1. Without the table's lock: read the rows, and go through both sides in the order of their keys.
2. Read what was committed meanwhile, in rounds, as a build does. An entry of a row that changed since is
   decided by what the row is now: its own commit wrote what it says.
3. Under the lock, when nothing was committed since the last round and no write is pending: write the entries
   in a commit without rows (`metadata_table/secondary_repair.py`).

Example: paris$k1 is missing by the rows of 10:00. At 10:01 an epoch makes k1's city rome: it deletes
paris$k1, which is not there, and puts rome$k1. At 10:02 the repair leaves paris$k1 out.

An index that cannot be read, or that has more than `WRONG_MAX` wrong entries, is made anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.commit_coordinator.offline.secondary_build import HELD_BYTES, CreatedIndex, SecondaryBuild
from tidemark.hudi_format.errors import (
    FencedOutError,
    FileMissingError,
    HudiFormatError,
    TimelineConflictError,
)
from tidemark.hudi_format.index_definitions import (
    compared_with_rows,
    is_made_by_a_write,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, layouts_as_of
from tidemark.hudi_format.metadata_table.secondary_repair import RepairTimes, write_entries
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.secondary_differences import secondary_differences, stored_entries
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan, keys_by_group
from tidemark.hudi_format.table_config import TableConfig, read_table_config
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries
from tidemark.hudi_format.timeline import Action, Instant, Timeline

WRONG_MAX: Final = 100_000
_LOOKS_MAX: Final = 5
_NONE: Final = pa.array([], pa.string())
T = TypeVar("T")


@dataclass(frozen=True)
class RepairedIndex:
    """`index`: with as many entries as rows were compared, or as it was made anew (`is_anew`). `missing`,
    `extra`: how many entries were put in and taken out.
    """

    index: CreatedIndex
    missing: int = 0
    extra: int = 0
    is_anew: bool = False

    @property
    def was_wrong(self) -> bool:
        """Whether anything had to be put right."""
        return bool(self.missing or self.extra or self.is_anew)


@dataclass(frozen=True)
class _Wrong:
    """Composite keys: those that the index lacks, and those that it has too many, by the rows of `seen`.
    `rows`: how many there are.
    """

    layout: SecondaryLayout
    rows: int
    seen: MetadataTableSnapshot
    missing: pa.StringArray
    extra: pa.StringArray


class _Counted:
    """Counts the entries that go through it."""

    def __init__(self, entries: Iterable[Entries]) -> None:
        self._entries, self.count = entries, 0

    def __iter__(self) -> Iterator[Entries]:
        for some in self._entries:
            self.count += len(some)
            yield some


class _TooMuchError(Exception):
    """The index has to be made anew; the text says why."""


class SecondaryRepair(SecondaryBuild):
    """Repairs the secondary indexes of one table."""

    def repair(
        self,
        partition: SecondaryIndexPartition,
        config: TableConfig,
        schema: TableSchema,
        column: str,
        check: Callable[[], None] = lambda: None,
    ) -> RepairedIndex:
        """Repairs the index. The arguments, and what it raises, as `make`. Raises TimelineConflictError where
        files go faster than they are read, and where the index was made anew or the table restored meanwhile.
        """
        with self.command() as by, tempfile.TemporaryDirectory(prefix="tidemark-index-") as folder:
            scan = SecondaryIndexScan(self.storage, config, schema, column, Path(folder), HELD_BYTES)
            try:
                wrong = self._wrong(by, scan, partition)
            except _TooMuchError as error:
                self.say(f"{partition.name} is made anew: {error}")
                made = self.make_of(by, scan, partition, column, check)
                return RepairedIndex(made, is_anew=True)
            index = CreatedIndex(partition.name, column, wrong.layout.groups, wrong.rows)
            if not len(wrong.missing) and not len(wrong.extra):
                self._confirm(by, wrong)
                return RepairedIndex(index)
            scan.keep_changes(wrong.layout.groups)
            scan.catch_up(by.beat)
            action = Action.DELTA_COMMIT if config.is_merge_on_read else Action.COMMIT
            last = _PutRight(self, by, scan, wrong, schema, action)
            missing, extra = self.at_rest(by, partition.name, last)
            self._confirm(by, wrong)
        return RepairedIndex(index, missing, extra)

    def _wrong(self, by: Command, scan: SecondaryIndexScan, partition: SecondaryIndexPartition) -> _Wrong:
        scanned = self.scanned(by)
        for _ in range(_LOOKS_MAX):
            seen = scan.scan(scanned)
            try:
                return self._compared(by, scan, seen, partition)
            except FileMissingError:
                continue  # a compaction of the index, and a clean: the next look has other files
            except FencedOutError:
                raise  # this command was ended: that says nothing about the index
            except (HudiFormatError, OSError) as error:
                raise _TooMuchError(str(error)) from error
        raise TimelineConflictError(
            f"{partition.name}: files were cleaned away while they were read, {_LOOKS_MAX} times: try again"
        )

    def _compared(
        self,
        by: Command,
        scan: SecondaryIndexScan,
        seen: MetadataTableSnapshot,
        partition: SecondaryIndexPartition,
    ) -> _Wrong:
        layout = self.layout(seen, partition)
        self.say(f"comparing {layout.name} with the column {layout.column}")
        missing, extra, count = [_NONE], [_NONE], 0
        rows = _Counted(scan.entries_read(by.beat))
        with tempfile.TemporaryDirectory(prefix="tidemark-index-") as folder:
            stored = _alive(stored_entries(seen, layout, _refuse_astray), by.beat)
            for lacking, more in secondary_differences(iter(rows), stored, Path(folder), by.beat):
                by.beat()
                missing.append(lacking)
                extra.append(more)
                count += len(lacking) + len(more)
                if count > WRONG_MAX:
                    raise _TooMuchError(f"more than {WRONG_MAX} of its entries are wrong")
        return _Wrong(layout, rows.count, seen, pa.concat_arrays(missing), pa.concat_arrays(extra))

    def _confirm(self, by: Command, wrong: _Wrong) -> None:
        """Of an index that a write of Hudi's made on its way the definition says from now on what that of an
        index made by CREATE INDEX says: it was compared with the rows (`secondary_admission.made_by_writes`).
        """
        name = wrong.layout.name
        if not is_made_by_a_write(read_index_definitions(self.storage).get(name, {})):
            return
        with self.locked(by):
            _, metadata = self.timelines()
            definitions = read_index_definitions(self.storage)
            definition = definitions.get(name, {})
            is_the_same = newest_build(metadata) == newest_build(wrong.seen.metadata_timeline)
            if is_the_same and is_made_by_a_write(definition):
                by.lock.check()
                confirmed = {**definitions, name: compared_with_rows(definition)}
                write_index_definitions(self.storage, confirmed)

    def layout(self, seen: MetadataTableSnapshot, partition: SecondaryIndexPartition) -> SecondaryLayout:
        """The index as it is. Raises UnsupportedTableError where it cannot be kept."""
        config = read_table_config(self.storage)
        listed = replace(config, metadata_partitions=config.metadata_partitions & {partition.name})
        for layout in layouts_as_of(seen, listed):
            return layout
        raise _TooMuchError("the table's properties do not list it")


class _PutRight:
    """Steps 2 and 3. The answer is how many entries were put in and taken out."""

    def __init__(
        self,
        command: SecondaryRepair,
        by: Command,
        scan: SecondaryIndexScan,
        wrong: _Wrong,
        schema: TableSchema,
        action: Action,
    ) -> None:
        self._command, self._by, self._scan, self._wrong = command, by, scan, wrong
        self._schema, self._action = schema, action
        self._partition = SecondaryIndexPartition(wrong.layout.name)
        self._seen, self._changes = wrong.seen, dict[ShardId, SecondaryChanges]()

    def look(self, alive: Callable[[int, int], None]) -> MetadataTableSnapshot:
        self._seen = self._scan.scan(alive)
        changed = self._scan.content(lambda: alive(0, 0)).changes.values()
        gone = _joined(group.deletes for group in changed)
        came = _joined(group.puts for group in changed)
        groups = self._wrong.layout.groups
        puts = dict(keys_by_group(_without(self._wrong.missing, gone), groups))
        deletes = dict(keys_by_group(_without(self._wrong.extra, came), groups))
        self._changes = {
            group: SecondaryChanges(puts.get(group, _NONE), deletes.get(group, _NONE))
            for group in sorted(puts.keys() | deletes.keys())
        }
        return self._seen

    def is_next(self, metadata: Timeline) -> bool:
        """Raises TimelineConflictError where the index is not the one that was compared."""
        was, now = self._wrong.seen, self._seen
        is_same = newest_build(metadata) == newest_build(was.metadata_timeline)
        if not is_same or _restores(now) != _restores(was):
            raise TimelineConflictError(
                f"{self._partition.name} was made anew, or the table was restored, while it was compared: "
                "try again"
            )
        return True

    def act(self, timelines: tuple[Timeline, Timeline]) -> tuple[int, int]:
        self.is_next(timelines[1])
        layout = self._command.layout(self._seen, self._partition)
        if layout != self._wrong.layout:
            raise TimelineConflictError(f"{layout.name} was changed while it was compared: try again")
        later = [self._command.later(timelines) for _ in range(3)]
        if self._changes:
            write_entries(
                self._by, self._partition, self._changes, RepairTimes(*later), self._schema, self._action
            )
        changes = self._changes.values()
        return sum(len(group.puts) for group in changes), sum(len(group.deletes) for group in changes)


def _alive(pieces: Iterable[T], beat: Callable[[], None]) -> Iterator[T]:
    """The pieces, with a sign of life before each."""
    for piece in pieces:
        beat()
        yield piece


def _restores(seen: MetadataTableSnapshot) -> set[Instant]:
    return set(seen.data_timeline.completed(Action.RESTORE))


def _refuse_astray(keys: pa.StringArray, group: ShardId) -> None:
    raise _TooMuchError(f"{len(keys)} of its entries are in the file group {group}, and belong into another")


def _joined(parts: Iterable[pa.StringArray]) -> pa.StringArray:
    return pa.concat_arrays([_NONE, *parts])


def _without(keys: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))
