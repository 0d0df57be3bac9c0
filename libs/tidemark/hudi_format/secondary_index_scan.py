"""The entries of a secondary index as the rows of the table say them: what an index is made of.

Scan without the lock (`scan`, then `prepare`, which may take minutes, then `catch_up`). Each later scan reads
only the file slices that changed meanwhile (of a slice that got log files only what they change,
`secondary_slices.py`), and the difference goes into log files beside the prepared base files.

    slice A  before: paris$k1, rome$k2, bern$k3    after: oslo$k1, bern$k3    deletes paris$k1, rome$k2
    slice B  before:                               after: rome$k2             puts    oslo$k1, rome$k2

Of all changed slices the deletes come first, then the puts, and the newest of a key counts: k2 moved to B
with its value, and stays.

The entries of each slice that was read are kept in a file of the caller's folder, so a former slice may be
cleaned away or restored, and is not read again. Memory holds the keys and values of one slice at a time, and
sorted runs spill to the same folder.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.file_group.kept_tables import KeptFolder
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileWriter
from tidemark.hudi_format.metadata_table.partitions.secondary_index import GROUPS_MAX, SecondaryChanges
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    entry_values,
    group_of,
    prefixes_of,
)
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.metadata_table.secondary_creation import IndexContent
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId, shard_ids
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.secondary_slices import RowEntries, without
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries, SortedEntries
from tidemark.hudi_format.table_view import TableView

ENTRIES_PER_GROUP: Final = 11_000_000
GROUPS_MIN: Final = 2
"""Hudi 1.2.0 never uses an index of one file group (METADATA_TABLE.md, section 10.2)."""
KEPT_BYTES: Final = 4 << 30
"""Of the scratch folder, for files of the table that were read: base files of slices that change, with three
columns, and log files. Where more is to be kept, or less than 1 GiB of the disk would stay free, the rest is
read again in each scan.
"""
_LISTINGS_MAX: Final = 5
_ROUNDS_MAX: Final = 10
_FEW_SLICES: Final = 1
_KEYS: Final = pa.schema([("key", pa.string())])
_Say: TypeAlias = Callable[[int, int], None]
_Group: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class _Read:
    """A file slice that was read, and local files with composite keys: of the slice as it was read whole, and
    for each time that it had more log files then, those that were gone and those that came.
    """

    file_slice: FileSlice
    keys: Path
    later: tuple[tuple[Path, Path], ...] = ()

    def keys_now(self) -> pa.StringArray:
        keys = _keys_in(self.keys)
        for gone, came in self.later:
            keys = pa.concat_arrays([without(keys, _keys_in(gone)), _keys_in(came)])
        return keys

    def files(self) -> list[Path]:
        return [self.keys, *itertools.chain.from_iterable(self.later)]


@dataclass(frozen=True)
class _Unused:
    """A file slice that was read, of which nothing was made yet: as `_Read`. `keys`: of a slice that was read
    whole; `changed`: of one that has more log files than the one that its group had.
    """

    file_slice: FileSlice
    keys: Path | None = None
    changed: tuple[Path, Path] | None = None

    def files(self) -> list[Path]:
        return [path for path in (self.keys, *(self.changed or ())) if path is not None]


class SecondaryIndexScan:
    """The entries of all live rows. `scratch`: an empty folder of the caller's; `held_bytes`: of entries that
    are in memory at most. Raises SchemaError as `RowEntries`.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        schema: TableSchema,
        column: str,
        scratch: Path,
        held_bytes: int,
    ) -> None:
        self._kept, self._scans = KeptFolder(scratch / "kept"), itertools.count()
        self._storage, self._rows = storage, RowEntries(storage, config, schema, column, self._kept)
        self._scratch, self._held_bytes = scratch, held_bytes
        self._files = itertools.count()
        self._known: dict[_Group, _Read] = {}
        self._unused: dict[_Group, _Unused] = {}
        self._groups = 0
        self._bases: dict[ShardId, Path] = {}
        self.entries = 0
        """How many entries the prepared base files have."""
        self.slices_read = 0
        """How many file slices the last `scan` read; those that it took out are not counted."""
        self._sorted = self._new_entries()

    def _new_entries(self) -> SortedEntries:
        return SortedEntries(self._scratch, f"entries-{next(self._files)}", self._held_bytes)

    def scan(self, say: _Say = lambda done, left: None) -> MetadataTableSnapshot:
        """Reads the slices that changed since the last call; returns the snapshot that it read. `say` is told
        how many are read, and how many are left, before each file that is read.

        Raises TimelineConflictError where files go faster than they are read, and as `RowEntries.of`.
        """
        self.slices_read = 0
        self._kept.next_round(next(self._scans), KEPT_BYTES)
        for _ in range(_LISTINGS_MAX):
            try:
                snapshot = MetadataTableSnapshot.load(self._storage)
                slices = TableView.of(self._storage, snapshot.data_timeline).slices(snapshot.files.names())
                by_group = {(some.partition_path, some.file_id): some for some in slices}
                self._read_changed(by_group, say)
            except FileMissingError:
                continue  # cleaned away: what was read before stays, and the next listing has other slices
            self._bring_up(by_group, say)
            return snapshot
        raise TimelineConflictError(
            f"{self._storage.base_uri}: files were cleaned away while they were read, {_LISTINGS_MAX} times: "
            "try again"
        )

    def _read_changed(self, slices: Mapping[_Group, FileSlice], say: _Say) -> None:
        """Reads the keys of all slices that changed into files, before anything is made of them: a round that
        breaks off leaves the entries as they were.
        """
        for group, unused in list(self._unused.items()):
            if slices.get(group) != unused.file_slice:
                _remove(unused.files())
                del self._unused[group]
        left = [group for group in self._changed(slices) if group not in self._unused]
        for number, group in enumerate(left):
            say(number, len(left) - number)
            self._unused[group] = self._read(slices[group], self._known.get(group))
            self.slices_read += 1

    def _read(self, file_slice: FileSlice, known: _Read | None) -> _Unused:
        """Reads only what changed, where the slice that is known got log files since."""
        changes = self._rows.changes(known.file_slice, file_slice) if known is not None else None
        if changes is None:
            return _Unused(file_slice, self._write(self._rows.of(file_slice)))
        return _Unused(file_slice, changed=(self._write(changes.gone), self._write(changes.came)))

    def _changed(self, slices: Mapping[_Group, FileSlice]) -> list[_Group]:
        known = self._known
        return [
            group for group, new in slices.items() if group not in known or known[group].file_slice != new
        ]

    def _bring_up(self, slices: Mapping[_Group, FileSlice], say: _Say) -> None:
        """Adds the differences of the slices that were read: all deletes, then all puts."""
        changed = self._changed(slices)
        for group in self._known.keys() - slices.keys():
            self._delete(self._known[group].keys_now())
            _remove(self._known.pop(group).files())
        came: list[Path] = []
        for group in changed:
            say(len(changed), 0)
            came.append(self._take(group))
        for path, group in zip(came, changed, strict=True):
            say(len(changed), 0)
            keys = _keys_in(path)
            self._sorted.add(Entries.of(keys, entry_values(len(keys))))
            if path not in self._known[group].files():
                path.unlink()

    def _take(self, group: _Group) -> Path:
        """Makes what was read of a group that which is known of it, and adds the deletes. Returns the file
        with the keys that its group did not have before.
        """
        unused, old = self._unused.pop(group), self._known.get(group)
        if unused.keys is None:
            assert old is not None
            assert unused.changed is not None
            gone, came = unused.changed
            self._delete(_keys_in(gone))
            self._known[group] = _Read(unused.file_slice, old.keys, (*old.later, unused.changed))
            return came
        self._known[group] = _Read(unused.file_slice, unused.keys)
        if old is None:
            return unused.keys
        before, after = old.keys_now(), _keys_in(unused.keys)
        self._delete(without(before, after))
        _remove(old.files())
        return self._write(without(after, before))

    def _delete(self, keys: pa.StringArray) -> None:
        if len(keys):
            self._sorted.add(Entries.of(keys, None))

    def _write(self, keys: pa.StringArray) -> Path:
        path = self._scratch / f"keys-{next(self._files)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _KEYS, options=options) as writer:
            writer.write_batch(pa.record_batch([keys], schema=_KEYS))
        return path

    def catch_up(self, alive: Callable[[], None] = lambda: None) -> None:
        """Reads what is committed meanwhile, until there is little: each round takes less time than the one
        before, in which less is committed. Ends also where rounds become no shorter. `alive` is called before
        each file that is read. Raises as `scan`.
        """
        before = math.inf
        for _ in range(_ROUNDS_MAX):
            self.scan(lambda done, left: alive())
            if self.slices_read <= _FEW_SLICES or self.slices_read >= before:
                return
            before = self.slices_read

    def prepare(self, alive: Callable[[], None] = lambda: None) -> None:
        """Writes what was scanned into a local HFile for each file group of the index. What is scanned later
        goes into log files. `alive` is called before each piece that is sorted or written. Raises
        UnsupportedTableError for more entries than 10 000 groups hold, HudiFormatError for a group of 2 GiB:
        too many rows have one value.
        """
        self._groups = max(math.ceil(self._sorted.count / ENTRIES_PER_GROUP), GROUPS_MIN)
        if self._groups > GROUPS_MAX:
            raise UnsupportedTableError(f"{self._sorted.count} rows are too many for an index", "Do without")
        writers: dict[ShardId, HFileWriter] = {}
        with ExitStack() as files:
            for entries in self._sorted.batches(alive):
                for group, keys in keys_by_group(entries.live().keys.cast(pa.string()), self._groups):
                    if group not in writers:
                        self._bases[group] = self._scratch / f"group-{group}.hfile"
                        sink = files.enter_context(pa.OSFile(str(self._bases[group]), "wb"))
                        writers[group] = HFileWriter(sink.write, metadata_record_schema())
                    writers[group].append(keys, entry_values(len(keys)))
                    self.entries += len(keys)
            for writer in writers.values():
                writer.finish()
        self._sorted = self._new_entries()

    def entries_read(self, alive: Callable[[], None]) -> Iterator[Entries]:
        """The entries of what was read so far, in the order of their keys. Before `prepare`. `alive` is
        called before each piece that is sorted.
        """
        return (entries.live() for entries in self._sorted.batches(alive))

    def keep_changes(self, groups: int) -> None:
        """In place of `prepare`: of an index that is there, with so many groups, `content` says what changes
        from now on.
        """
        self._groups, self._sorted = groups, self._new_entries()

    def content(self, alive: Callable[[], None] = lambda: None) -> IndexContent:
        """What the index begins with, as of the last `scan`. The changes since `prepare` are in memory.
        `alive` is called before each piece that is sorted or written.
        """
        if not self._groups:
            self.prepare(alive)
        puts: dict[ShardId, list[pa.StringArray]] = {}
        deletes: dict[ShardId, list[pa.StringArray]] = {}
        for entries in self._sorted.batches(alive):
            is_put = entries.values.is_valid()
            for changed, mask in ((puts, is_put), (deletes, entries.values.is_null())):
                for group, keys in keys_by_group(entries.keys.filter(mask).cast(pa.string()), self._groups):
                    changed.setdefault(group, []).append(keys)
        changes = {
            group: SecondaryChanges(_joined(puts.get(group, [])), _joined(deletes.get(group, [])))
            for group in sorted(puts.keys() | deletes.keys())
        }
        return IndexContent(self._groups, self._bases, changes)


def keys_by_group(keys: pa.StringArray, groups: int) -> Iterator[tuple[ShardId, pa.StringArray]]:
    """The keys of each group that has some, in their order."""
    if not len(keys):
        return
    numbers = group_of(prefixes_of(keys), groups)
    for group in shard_ids(groups):
        is_its = numbers == group
        if is_its.any():
            yield group, keys.filter(pa.array(is_its))


def _keys_in(path: Path) -> pa.StringArray:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        return reader.read_next_batch().column(0)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()


def _joined(parts: Sequence[pa.StringArray]) -> pa.StringArray:
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())
