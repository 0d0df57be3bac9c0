"""The record keys of some values in one file group of a secondary index, page by page, in bounded memory.

All entries of a value are in one file group, and begin with the same bytes. A page is the entries of these
values that follow a given one, in the order of their bytes: those of the base file, of which the blocks that
may hold some are read, no further than the page goes, and those of all log blocks. Example, three entries at
a time:

    base file    a b c d        first page    a b c, of which b is deleted: a, c
    log, oldest  +e -b          second page   d e f: d, e, f
    log, newest  +f

10 000 entries (or as many keys as were asked for, but no more than 2 MiB) are considered for a page, deleted
ones among them. So a page may have fewer keys than asked for, or none, while others follow.

Memory: the entries of two pages, a MiB of a base file's, and one log block as it lies in its file, of which a
MiB is unpacked at a time (a block of deletes: all of it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.hfile.block_search import sorts_differently
from tidemark.hudi_format.log_file import BlockType, decode_deletes
from tidemark.hudi_format.metadata_table.log_records import block_heads, blocks_read, merge_order
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import live_values, prefixes_of
from tidemark.hudi_format.storage.base import Storage, join_path

# Blocks of 64 KiB: what is read and decoded before it is asked whether the page is full.
_BLOCKS_AT_ONCE: Final = 16
_ENTRIES_MIN: Final = 10_000
BYTES_MAX: Final = 2 << 20
"""So many bytes of entries are considered for a page."""


@dataclass(frozen=True)
class EntryPage:
    """`keys`: composite keys that are there, in the order of their bytes. `last`: the next page begins behind
    this one; None on the last page.
    """

    keys: pa.StringArray
    last: str | None


def entry_page(
    storage: Storage,
    folder: str,
    file_slice: FileSlice,
    is_valid: Callable[[str], bool],
    prefixes: Sequence[str],
    after: str,
    limit: int,
    bytes_max: int = BYTES_MAX,
) -> EntryPage:
    """The entries of some values behind `after` ("": from the first one). `file_slice`: of the group that the
    values are in; `prefixes`: what their composite keys begin with, each once. At most `limit` entries of
    `bytes_max`, one at least. Raises FileMissingError, CorruptFileError.
    """
    found = _FirstEntries(prefixes, after, limit, bytes_max)
    if file_slice.base_file is not None:
        reader = HFileReader.open(storage, join_path(folder, file_slice.base_file))
        found.add_file(reader, reader.schema)
    heads = merge_order(block_heads(storage, folder, file_slice.log_files), is_valid)
    for sourced in blocks_read(storage, heads):
        block = sourced.block
        if block.block_type is BlockType.DELETE:
            keys = decode_deletes(block.content, sourced.path).keys
            found.add(keys, np.zeros(len(keys), np.bool_), sourced.path)
            continue
        name = f"{sourced.path} (block at offset {block.offset})"
        reader = HFileReader.from_bytes(block.content, name)
        found.add_file(reader, block.schema or reader.schema)
    return found.page()


class _FirstEntries:
    """The first entries behind `after`, each as the newest of those that were added says.

    An entry that is not among the first ones of what was added so far is not among those of all.
    """

    def __init__(self, prefixes: Sequence[str], after: str, limit: int, bytes_max: int) -> None:
        # A value is done if even what follows its entries is not behind `after`.
        left = sorted(prefix for prefix in prefixes if _behind(prefix) > after)
        self._prefixes: pa.StringArray = pa.array(left, pa.string())
        self._after, self._limit, self._bytes_max = after, limit, bytes_max
        self._keys: pa.StringArray = pa.array([], pa.string())
        self._is_live: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._is_cut = False

    def add_file(self, reader: HFileReader, schema: str) -> None:
        """Adds what a base file has, or the HFile of a log block. `schema`: of its values."""
        numbers = self._blocks(reader)
        for at in range(0, len(numbers), _BLOCKS_AT_ONCE):
            if self._is_full_before(reader.first_key(numbers[at])):
                break
            for run in reader.runs(numbers[at : at + _BLOCKS_AT_ONCE]):
                is_live = live_values(run.content.values, schema, reader.name)
                self.add(run.content.keys, is_live, reader.name)

    def _blocks(self, reader: HFileReader) -> list[int]:
        """The blocks that may hold entries of the page, ascending."""
        begins = self._prefixes.to_pylist()
        ends = [_behind(prefix) for prefix in begins]
        if begins and not sorts_differently(self._after.encode()):
            begins[0] = max(begins[0], self._after)
        bounds = reader.candidate_blocks(pa.array(begins + ends, pa.string()))
        firsts = np.maximum(bounds[:, : len(begins)].min(axis=0), 0)
        lasts = bounds[:, len(begins) :].max(axis=0)
        # Values 0 and 1 in the blocks 2 to 4 and 4 to 5: +1 at 2 and 4, -1 at 5 and 6; the sums of the blocks
        # 2, 3, 4 and 5 are above zero. No block (last -1): +1 and -1 at 0.
        steps = np.zeros(int(max(firsts.max(initial=0), lasts.max(initial=0))) + 2, np.int64)
        np.add.at(steps, firsts, 1)
        np.add.at(steps, np.maximum(lasts + 1, firsts), -1)
        numbers: list[int] = np.flatnonzero(np.cumsum(steps)).tolist()
        return numbers

    def _is_full_before(self, key: bytes) -> bool:
        """Whether no entry of the page is at `key` or behind, in whichever order the file has."""
        if not self._is_cut:
            return False
        last = self._keys[-1].as_py().encode()
        return key > last and not sorts_differently(last)

    def add(self, keys: pa.StringArray, is_live: npt.NDArray[np.bool_], source: str) -> None:
        """Adds entries that are newer than all before, each key once. `source`: their file, for errors."""
        is_wanted = pc.and_(self._have_values(keys, source), pc.greater(keys, self._after))
        if self._is_cut:
            is_wanted = pc.and_(is_wanted, pc.less_equal(keys, self._keys[-1]))
        keys, is_live = keys.filter(is_wanted), is_live[is_wanted.to_numpy(zero_copy_only=False)]
        if not len(keys):
            return
        is_older = pc.invert(pc.is_in(self._keys, value_set=keys))
        merged = pa.concat_arrays([self._keys.filter(is_older), keys])
        lives = np.concatenate([self._is_live[is_older.to_numpy(zero_copy_only=False)], is_live])
        order = pc.sort_indices(merged)
        sizes = np.cumsum(pc.binary_length(merged.take(order)).to_numpy())
        room = max(int(np.searchsorted(sizes, self._bytes_max, "right")), 1)
        room = min(max(self._limit, _ENTRIES_MIN), room)
        self._is_cut = self._is_cut or len(order) > room
        order = order[:room]
        self._keys, self._is_live = merged.take(order), lives[order.to_numpy()]

    def _have_values(self, keys: pa.StringArray, source: str) -> pa.BooleanArray:
        if len(self._prefixes) == 1:
            return pc.starts_with(keys, pattern=self._prefixes[0].as_py())
        return pc.is_in(prefixes_of(keys, source), value_set=self._prefixes)

    def page(self) -> EntryPage:
        """What was found."""
        keys = self._keys.filter(pa.array(self._is_live))
        if len(keys) > self._limit:
            return EntryPage(keys[: self._limit], keys[self._limit - 1].as_py())
        return EntryPage(keys, self._keys[-1].as_py() if self._is_cut else None)


def _behind(prefix: str) -> str:
    """What sorts behind all entries of a value and before those of the next one, in both orders of keys in
    files: "$" is the last character of the prefix, and "%" the next one.
    """
    return f"{prefix[:-1]}%"
