"""One shard of the record index as of a snapshot: base file, log files, and questions answered from them.

Three answers, never two: a key is there (HIT), is not there (ABSENT), or reading failed, which is an
exception and never an answer. A file that was cleaned away since the snapshot was loaded raises
FileMissingError: load a new snapshot.

The base file is read by blocks; the log files are read once, whole, and kept merged, newest entry per key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileReader, KeyValues
from tidemark.hudi_format.log_file import BlockType, decode_deletes
from tidemark.hudi_format.metadata_table.log_records import SourcedBlock, merge_order, read_log_blocks
from tidemark.hudi_format.metadata_table.record_index import RecordIndexEntries, decode_entries
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import Storage, join_path

_NOT_FOUND: Final = -1


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Answers for n keys, in their order: where `found`, the key lives at `locations[location_ids[i]]`.

    Where not, the key is certainly absent, `location_ids` is -1 and `instant_ms` 0.
    """

    found: npt.NDArray[np.bool_]
    location_ids: npt.NDArray[np.int32]
    locations: list[RecordLocation]
    instant_ms: npt.NDArray[np.int64]


class ShardSnapshot:
    """The merged content of one record index file group; immutable, files are opened when first needed."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        file_slice: FileSlice,
        is_valid: Callable[[str], bool],
        changes_after: Callable[[str], list[tuple[str, RecordIndexEntries]] | None],
    ) -> None:
        self._storage, self._folder, self._is_valid = storage, folder, is_valid
        self._changes_after = changes_after
        self.file_slice = file_slice

    @property
    def file_id(self) -> str:
        """The file group's id, `record-index-<shard>-0`."""
        return self.file_slice.file_id

    @property
    def base_name(self) -> str | None:
        """Name of the base file: a cache of its blocks is good as long as this name and `base_mark` stay."""
        return self.file_slice.base_file

    @cached_property
    def base_mark(self) -> str:
        """What tells the base file from another one of the same name: an index that is built anew gets the
        names of the one before, its instants being constant. "" without a base file.
        """
        name = self.file_slice.base_file
        info = None if name is None else self._storage.stat(join_path(self._folder, name))
        return "" if info is None else info.version

    @cached_property
    def base(self) -> HFileReader | None:
        """Reader of the base file, None where the shard has log files only."""
        name = self.file_slice.base_file
        return None if name is None else HFileReader.open(self._storage, join_path(self._folder, name))

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
        """The block of the base file that holds each key if any does; -1: the base file does not hold it.

        AMBIGUOUS_BLOCK (-2): the key sorts differently by UTF-8 and by UTF-16, and one block does not prove
        its absence: ask `lookup`. Happens only for keys that meet characters above U+FFFF and of U+E000 to
        U+FFFF in order.
        """
        if self.base is None:
            return np.full(len(keys), _NOT_FOUND, np.int64)
        return self.base.locate(keys)

    @cached_property
    def _overlay(self) -> RecordIndexEntries:
        blocks = read_log_blocks(self._storage, self._folder, self.file_slice.log_files)
        return RecordIndexEntries.newest_wins(
            [decode_block(each.block.block_type, each) for each in merge_order(blocks, self._is_valid)]
        )

    def log_changes(self) -> RecordIndexEntries:
        """What the log files change over the base file: the newest entry per key, deletes as location -1."""
        return self._overlay

    def log_places(self) -> RecordIndexEntries:
        """The newest location that the log files gave each key, whatever became of the key afterwards."""
        blocks = read_log_blocks(self._storage, self._folder, self.file_slice.log_files)
        ordered = merge_order(blocks, self._is_valid)
        return RecordIndexEntries.newest_wins(
            [decode_block(each.block.block_type, each).live() for each in ordered]
        )

    def base_places(self, keys: pa.StringArray) -> RecordIndexEntries:
        """The entries of these keys in the base file alone; in no particular order."""
        if self.base is None:
            return RecordIndexEntries.none()
        return self._base_hits(self.base, keys)[0]

    def changes_after(self, completion_time: str) -> list[tuple[str, RecordIndexEntries]] | None:
        """The shard's changes by each data instant that completed after that time, in order of completion.

        `completion_time` is on the data table's timeline. Instants that did not touch the shard are left
        out. None: the changes cannot be had any more (folded into the base file and cleaned, or archived):
        rebuild from `entries`.
        """
        return self._changes_after(completion_time)

    def entries(self) -> RecordIndexEntries:
        """The whole shard: all live keys with their locations, in no particular order."""
        if self.base is None:
            return self._overlay.live()
        runs = self.base.runs(range(self.base.block_count))
        base = RecordIndexEntries.concat([self._decode(run.content) for run in runs])
        if not len(self._overlay):
            return base
        kept = pc.is_in(base.keys, value_set=self._overlay.keys).to_numpy(zero_copy_only=False)
        return RecordIndexEntries.concat([base.take(np.flatnonzero(~kept)), self._overlay.live()])

    def lookup(self, keys: pa.StringArray) -> LookupResult:
        """Where each key lives. Keys in any order; sorted ones touch blocks in file order."""
        changed = _positions(keys, self._overlay.keys)
        # Position of each key's entry in overlay + hits; -1: neither the logs nor the base file know it.
        where = changed.copy()
        parts = [self._overlay]
        open_keys = np.flatnonzero(changed < 0)
        if self.base is not None and open_keys.size:
            hits, members = self._base_hits(self.base, keys.take(pa.array(open_keys)))
            where[open_keys[members]] = len(self._overlay) + np.arange(len(hits))
            parts.append(hits)
        known = RecordIndexEntries.concat(parts)
        ids = np.where(where >= 0, np.append(known.location_ids, np.int32(-1))[where], -1).astype(np.int32)
        found_mask = ids >= 0
        instants = np.where(found_mask, np.append(known.instant_ms, np.int64(0))[where], 0)
        return LookupResult(found_mask, ids, known.locations, instants)

    def _base_hits(
        self, base: HFileReader, keys: pa.StringArray
    ) -> tuple[RecordIndexEntries, npt.NDArray[np.int64]]:
        """Entries of the keys that the base file has, and which of `keys` each belongs to. Decodes hits
        only.
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
        return decode_entries(block.keys, block.values, self.base.schema, self.base.name)


def decode_block(block_type: BlockType, source: SourcedBlock) -> RecordIndexEntries:
    """The entries of a log block: upserts of an HFILE block, deletes of a DELETE block."""
    if block_type is BlockType.DELETE:
        return RecordIndexEntries.of_deletes(decode_deletes(source.block.content, source.path).keys)
    name = f"{source.path} (block at offset {source.block.offset})"
    reader = HFileReader.from_bytes(source.block.content, name)
    content = reader.read_all()
    # The header's copy of the schema need not be decompressed.
    return decode_entries(content.keys, content.values, source.block.schema or reader.schema, name)


def _positions(keys: pa.StringArray, among: pa.StringArray) -> npt.NDArray[np.int64]:
    """Position of each key in `among`, -1 where it is not there."""
    found = pc.fill_null(pc.index_in(keys, value_set=among), _NOT_FOUND)
    positions: npt.NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def _by_block(candidates: npt.NDArray[np.int64]) -> Sequence[tuple[int, npt.NDArray[np.int64]]]:
    """Blocks to read, ascending, each with the positions of the keys that may be in it."""
    by_utf8, by_utf16 = candidates
    groups: list[tuple[int, npt.NDArray[np.int64]]] = []
    for number in np.unique(candidates[candidates >= 0]).tolist():
        groups.append((number, np.flatnonzero((by_utf8 == number) | (by_utf16 == number))))
    return groups
