"""One shard of the record index as of a snapshot: its base file, its log files, and lookups in them.

A lookup has one of two answers: the key is in the index, or it certainly is not. A failure to read is an
exception, and never the answer "absent". A file that was cleaned away after the snapshot was loaded raises
FileMissingError: the caller loads a new snapshot.

The base file is read block by block. The log files are read once, as a whole, and kept merged: one entry per
key, the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileReader, KeyValues
from tidemark.hudi_format.metadata_table.log_records import log_entries, streamed_log_entries
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    RecordIndexEntries,
    decode_entries,
    over_base,
)
from tidemark.hudi_format.metadata_table.shard_changes import ChangeStream
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import Storage, join_path

_NOT_FOUND: Final = -1


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Answers for n keys, in their order: where `found[i]`, the row of the key is at
    `locations[location_ids[i]]`.

    Where not, the key is certainly absent; `location_ids[i]` is -1 and `instant_ms[i]` is 0. `instant_ms` is
    in milliseconds since the Unix epoch.
    """

    found: npt.NDArray[np.bool_]
    location_ids: npt.NDArray[np.int32]
    locations: list[RecordLocation]
    instant_ms: npt.NDArray[np.int64]


class ShardSnapshot:
    """The merged content of one record index file group. It does not change; files are opened when they are
    first needed.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        file_slice: FileSlice,
        is_valid: Callable[[str], bool],
        changes_after: Callable[[str], ChangeStream | None],
    ) -> None:
        """`folder` has the slice's files; `is_valid` says whether log blocks of an instant count."""
        self._storage, self._folder, self._is_valid = storage, folder, is_valid
        self._changes_after = changes_after
        self.file_slice = file_slice

    @property
    def file_id(self) -> str:
        """The file group's id, `record-index-<shard>-0`."""
        return self.file_slice.file_id

    @property
    def base_name(self) -> str | None:
        """Name of the base file. A cache of its blocks is valid as long as this and `base_mark` do not
        change.
        """
        return self.file_slice.base_file

    @cached_property
    def base_mark(self) -> str:
        """The storage's version of the base file, "" without one. An index that is built anew has files of
        the same names as the one before, because bootstrap instants are constants; their versions differ.
        """
        name = self.file_slice.base_file
        info = None if name is None else self._storage.stat(join_path(self._folder, name))
        return "" if info is None else info.version

    @cached_property
    def base(self) -> HFileReader | None:
        """Reader of the base file; None where the shard has log files only."""
        return None if self.file_slice.base_file is None else self.open_base()

    def forget_tail(self) -> None:
        """Frees what the reader of the base file keeps beside its index, if there is a reader."""
        if (base := self.__dict__.get("base")) is not None:
            base.forget_tail()

    def forget_base(self) -> None:
        """Frees the reader of the base file with its index; the file is opened again when it is needed."""
        self.__dict__.pop("base", None)

    def open_base(self) -> HFileReader:
        """A reader of the base file of its own, for another thread. The shard must have a base file."""
        assert self.file_slice.base_file is not None
        return HFileReader.open(self._storage, join_path(self._folder, self.file_slice.base_file))

    def check_base(self) -> None:
        """Raises FileMissingError when the base file is not the one any more that `base_mark` was taken of.

        Called after a read, it proves that the blocks that were read belong to the file that was opened.
        """
        name = self.file_slice.base_file
        if name is None:
            return
        path = join_path(self._folder, name)
        info = self._storage.stat(path)
        if info is None or info.version != self.base_mark:
            raise FileMissingError(f"{path} was deleted or replaced since it was listed")

    @property
    def block_count(self) -> int:
        """Number of blocks of the base file, 0 without one."""
        return 0 if self.base is None else self.base.block_count

    def read_block(self, number: int) -> RecordIndexEntries:
        """The entries of one block of the base file, without the changes of the log files."""
        if self.base is None:
            raise IndexError(f"{self.file_id} has no base file, hence no block {number}")
        return self._decode(self.base.read_block(number))

    def locate(self, keys: pa.StringArray) -> npt.NDArray[np.int64]:
        """Of each key, the number of the only block of the base file that can hold it; -1: none does.

        AMBIGUOUS_BLOCK (-2): one block does not prove the key's absence, because the key sorts differently by
        UTF-8 and by UTF-16: ask `lookup`. That happens only where characters above U+FFFF are compared with
        some of U+E000 to U+FFFF.
        """
        if self.base is None:
            return np.full(len(keys), _NOT_FOUND, np.int64)
        return self.base.locate(keys)

    @cached_property
    def _overlay(self) -> RecordIndexEntries:
        return RECORD_INDEX.merge(self._log_entries())

    def _log_entries(self) -> Iterator[StoredEntries]:
        return log_entries(self._storage, self._folder, self.file_slice.log_files, self._is_valid)

    def log_changes(self) -> RecordIndexEntries:
        """What the log files change in the base file: per key its newest entry; deletes have location id
        -1.
        """
        return self._overlay

    def log_parts(self) -> Iterator[RecordIndexEntries]:
        """What `log_changes` merges, oldest first, one log block in memory at a time. Of several entries of a
        key the last counts; within a part each key has one.
        """
        entries = streamed_log_entries(self._storage, self._folder, self.file_slice.log_files, self._is_valid)
        return (RECORD_INDEX.merge([part]) for part in entries)

    def base_places(self, keys: pa.StringArray) -> RecordIndexEntries:
        """The entries that these keys have in the base file, whatever logs say, in no particular order."""
        if self.base is None:
            return RecordIndexEntries.none()
        return self._base_hits(self.base, keys)[0]

    def changes_after(self, completion_time: str) -> ChangeStream | None:
        """(instant, changes of the shard) for each data instant that completed after that time, in the
        order of completion.

        `completion_time` is on the data table's timeline. Instants that did not touch the shard are left
        out. None: not all of the changes can be read any more (cleaned after a compaction, or archived):
        start again from `entries`.
        """
        return self._changes_after(completion_time)

    def entries(self) -> RecordIndexEntries:
        """The whole shard: all keys that are not deleted, in no particular order."""
        if self.base is None:
            return self._overlay.live()
        runs = self.base.runs(range(self.base.block_count))
        base = RecordIndexEntries.concat([self._decode(run.content) for run in runs])
        return over_base(base, self._overlay)

    def lookup(self, keys: pa.StringArray) -> LookupResult:
        """The location of each key. Keys may come in any order; sorted ones read the blocks in file order."""
        changed = _positions(keys, self._overlay.keys)
        # Position of each key's entry in the overlay followed by the hits; -1: the key is in neither. With 3
        # entries in the overlay, key 0 second in it and key 1 the first hit, `where` is [1, 3].
        where = changed.copy()
        parts = [self._overlay]
        open_keys = np.flatnonzero(changed < 0)
        if self.base is not None and open_keys.size:
            hits, members = self._base_hits(self.base, keys.take(pa.array(open_keys)))
            where[open_keys[members]] = len(self._overlay) + np.arange(len(hits))
            parts.append(hits)
        known = RecordIndexEntries.concat(parts)
        # The appended last cell is what -1 reads: no location. A deleted key's entry is -1 itself.
        ids = np.where(where >= 0, np.append(known.location_ids, np.int32(-1))[where], -1).astype(np.int32)
        found_mask = ids >= 0
        instants = np.where(found_mask, np.append(known.instant_ms, np.int64(0))[where], 0)
        return LookupResult(found_mask, ids, known.locations, instants)

    def _base_hits(
        self, base: HFileReader, keys: pa.StringArray
    ) -> tuple[RecordIndexEntries, npt.NDArray[np.int64]]:
        """The entries of the keys that the base file has, and for each entry the position of its key in
        `keys`. Values of other keys are not decoded.
        """
        found_keys, found_values, found_members = [], [], []
        for number, members in _by_block(base.candidate_blocks(keys)):
            block = base.read_block(number)
            positions = _positions(keys.take(pa.array(members)), block.keys)
            hit = positions >= 0
            chosen = pa.array(positions[hit])
            found_keys.append(block.keys.take(chosen))
            found_values.append(block.values.take(chosen))
            found_members.append(members[hit])
        if not found_members:
            return RecordIndexEntries.none(), np.empty(0, np.int64)
        hits = KeyValues(pa.concat_arrays(found_keys), pa.concat_arrays(found_values))
        return self._decode(hits), np.concatenate(found_members)

    def _decode(self, block: KeyValues) -> RecordIndexEntries:
        assert self.base is not None
        return decode_entries(StoredEntries(block.keys, block.values, self.base.schema, self.base.name))


def _positions(keys: pa.StringArray, among: pa.StringArray) -> npt.NDArray[np.int64]:
    """Position of each key in `among`, -1 where it is not there."""
    indices = pc.fill_null(pc.index_in(keys, value_set=among), _NOT_FOUND)
    positions: npt.NDArray[np.int64] = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def _by_block(candidates: npt.NDArray[np.int64]) -> Sequence[tuple[int, npt.NDArray[np.int64]]]:
    """(block, positions of the keys that may be in it), ascending by block. `candidates` is 2 × n: the block
    of each key when keys are ordered by UTF-8, and by UTF-16; -1: none. So a key may be in two blocks.
    """
    by_utf8, by_utf16 = candidates
    groups: list[tuple[int, npt.NDArray[np.int64]]] = []
    for number in np.unique(candidates[candidates >= 0]).tolist():
        groups.append((number, np.flatnonzero((by_utf8 == number) | (by_utf16 == number))))
    return groups
