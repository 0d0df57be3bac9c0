"""What a secondary index has too little and too much, in bounded memory: both sides are sorted, on disk where
they do not fit, and gone through side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.metadata_table.log_records import streamed_slice_entries
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, StoredEntries
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryIndexPartition
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    group_of,
    live_values,
    prefixes_of,
)
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId, shard_ids
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries, SortedEntries, windows

_HELD_BYTES: Final = 64 << 20
_MARK: Final = b""
"""The value of an entry that is there."""
Astray: TypeAlias = Callable[[pa.StringArray, ShardId], None]


def sorted_keys(rows: Iterable[pa.StringArray], scratch: Path) -> Iterator[Entries]:
    """The composite keys that the live rows say, in their order. `scratch`: as in `secondary_differences`."""
    wanted = SortedEntries(scratch, "rows", _HELD_BYTES)
    for keys in rows:
        wanted.add(Entries.of(keys, pa.repeat(pa.scalar(_MARK, pa.binary()), len(keys))))
    yield from wanted.batches()


def secondary_differences(
    rows: Iterator[Entries],
    stored: Iterable[StoredEntries],
    scratch: Path,
    alive: Callable[[], None] = lambda: None,
) -> Iterator[tuple[pa.StringArray, pa.StringArray]]:
    """(missing, extra) composite keys, some at a time and each pair in their order.

    `rows`: what the live rows say, each key once and in the order of keys. `stored`: the entries of all
    groups, those of a group oldest first; no key is in two groups. `scratch`: an empty folder of the
    caller's. `alive` is called before each piece of the stored ones that is sorted. Raises CorruptFileError.
    """
    found = SortedEntries(scratch, "stored", _HELD_BYTES)
    for part in stored:
        found.add(_marked(part))
    for of_rows, of_index in windows([rows, found.batches(alive)]):
        index = of_index.live().keys
        missing = of_rows.keys.filter(pc.invert(pc.is_in(of_rows.keys, value_set=index)))
        extra = index.filter(pc.invert(pc.is_in(index, value_set=of_rows.keys)))
        yield missing.cast(pa.string()), extra.cast(pa.string())


def stored_entries(
    snapshot: MetadataTableSnapshot, layout: SecondaryLayout, astray: Astray
) -> Iterator[StoredEntries]:
    """The entries of all groups of an index, those of a group oldest first. `astray` is told composite keys
    that are in a group, and belong into another one, where readers look for them.

    Raises FileMissingError, CorruptFileError.
    """
    partition = SecondaryIndexPartition(layout.name)
    folder = join_path(METADATA_TABLE_PATH, partition.name)
    by_id = {file_slice.file_id: file_slice for file_slice in snapshot.slices[partition.name]}
    for group in shard_ids(layout.groups):
        file_slice = by_id[partition.file_id(group)]
        for part in streamed_slice_entries(snapshot.storage, folder, file_slice, snapshot.validity.is_valid):
            if part.values is not None:
                is_astray = group_of(prefixes_of(part.keys), layout.groups) != group
                if is_astray.any():
                    astray(part.keys.filter(pa.array(is_astray)), group)
            yield part


def _marked(part: StoredEntries) -> Entries:
    """The entries, of whose values only matters whether they are deleted."""
    if part.values is None:
        return Entries.of(part.keys, None)
    is_live = pa.array(live_values(part.values, part.schema, part.source))
    marks = pc.if_else(is_live, pa.scalar(_MARK, pa.binary()), pa.scalar(None, pa.binary()))
    return Entries.of(part.keys, marks)
