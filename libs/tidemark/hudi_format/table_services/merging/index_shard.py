"""Merges one file group of the metadata table: its base HFile with its log files.

In a partition in which the newest entry of a key counts alone, values are copied as bytes. Changes are sorted
(`sorted_entries`), and the base file's blocks are gone through beside them. A block belongs to the keys from
its first one up to the next block's first one; a key below the first block's belongs to block 0.

    block a…   no change from a up to g     copied as it is, compressed
    block g…   changes h, k                 decoded, merged, written anew
    block m…   change n (a delete)          decoded together with the block before

Blocks are not copied if Hudi's reader would lose entries of them (METADATA_TABLE.md, section 2.3: large ones
of Spark's), and small ones not behind a block that is written anew: they are united with it.

A base file of Spark's may be sorted by UTF-16 units (`hfile/block_search.py`). The blocks of such a file have
the same keys in both orders, unless a block's first key is one of those that sort differently. Then all
entries of the base file are sorted like changes.

Where all entries of a key count (`column_stats`), the same is done with all of them, and those of one key add
up when they are written. Nearly all keys have one entry, which is copied as bytes too.

In other partitions (`files`) entries combine by the partition's own rule, and the result is held in memory.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.base_file_writer import Sink
from tidemark.hudi_format.hfile import DEFAULT_OPTIONS, HFileOptions, HFileReader, HFileWriter, StoredBlock
from tidemark.hudi_format.hfile.block_search import sorts_differently
from tidemark.hudi_format.hfile.key_values import ENTRY_OVERHEAD_BYTES
from tidemark.hudi_format.key_digest import MODULUS, key_digest
from tidemark.hudi_format.metadata_table.log_records import streamed_log_entries
from tidemark.hudi_format.metadata_table.partitions import partition_named
from tidemark.hudi_format.metadata_table.partitions.partition import (
    METADATA_TABLE_PATH,
    KeyFold,
    MetadataPartition,
    StoredEntries,
)
from tidemark.hudi_format.metadata_table.record_schema import has_own_layout, metadata_record_schema
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds, MergeCounts
from tidemark.hudi_format.table_services.merging.folded_keys import folded
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries, SortedEntries, windows
from tidemark.hudi_format.table_services.operations import MergeOperation

# Blocks of the base file that are decoded at once: so many bytes in the file.
_GROUP_BYTES: Final = 256 << 10
# A block with less than this is united with entries that are written before it.
_SMALL_BLOCK_BYTES: Final = DEFAULT_OPTIONS.data_block_bytes // 4


def merge_index_shard(
    storage: Storage, operation: MergeOperation, instant: str, sink: Sink, bounds: MergeBounds
) -> MergeCounts:
    """Writes the base file `instant` of a file group of the metadata table to `sink`.

    All blocks of the operation's log files count: the planner names no others. Raises FileMissingError,
    CorruptFileError, UnsupportedTableError for a partition or a record schema that is not served, and
    HudiFormatError for a file of 2 GiB or more.
    """
    partition = _partition(operation.partition)
    folder = join_path(METADATA_TABLE_PATH, partition.name)
    name = operation.base_file
    base = None if name is None else HFileReader.open(storage, join_path(folder, name))
    logs = streamed_log_entries(storage, folder, operation.log_files, lambda _: True)
    if partition.newest_wins or partition.fold is not None:
        return _by_key(partition.fold, base, logs, instant, sink, bounds)
    return _by_its_rule(partition, base, logs, instant, sink)


def _partition(name: str) -> MetadataPartition[Any, Any]:
    found = partition_named(name)
    if found is None:
        raise UnsupportedTableError(
            f"the metadata table has a partition {name}, whose entries cannot be merged here",
            "Compact the metadata table with Spark, or drop that index",
        )
    return found


def _by_its_rule(
    partition: MetadataPartition[Any, Any],
    base: HFileReader | None,
    logs: Iterator[StoredEntries],
    instant: str,
    sink: Sink,
) -> MergeCounts:
    counts, changed = MergeCounts(), set[str]()

    def counted() -> Iterator[StoredEntries]:
        for part in logs:
            counts.log_records += len(part.keys)
            changed.update(part.keys.to_pylist())
            yield part

    stored = [] if base is None else [_stored(base)]
    before = set(stored[0].keys.to_pylist()) if stored else set()
    records = partition.base_records(itertools.chain(stored, counted()))
    keys = pa.array(list(records), pa.string())
    writer = HFileWriter(sink.write, metadata_record_schema(), _options(base, instant))
    writer.append(keys, pa.array(list(records.values()), pa.binary()))
    counts.size, counts.rows = writer.finish(), len(records)
    inserts, deletes = records.keys() - before, before - records.keys()
    counts.inserts, counts.deletes = len(inserts), len(deletes)
    counts.updates = len(changed & before & records.keys())
    came, went = (_hash_sum(pa.array(sorted(some), pa.string())) for some in (inserts, deletes))
    counts.digest = counts.rows, (came - went) % MODULUS
    return counts


def _stored(base: HFileReader) -> StoredEntries:
    content = base.read_all()
    return StoredEntries(content.keys, content.values, base.schema, base.name)


def _by_key(
    fold: KeyFold | None,
    base: HFileReader | None,
    logs: Iterator[StoredEntries],
    instant: str,
    sink: Sink,
    bounds: MergeBounds,
) -> MergeCounts:
    """``fold``: None where the newest entry of a key counts alone."""
    counts = MergeCounts()
    schema = metadata_record_schema() if base is None else _copied_schema(base.schema, base.name)
    changes = SortedEntries(bounds.scratch, "changes", bounds.held_bytes, keeps_all=fold is not None)
    for part in logs:
        _copied_schema(part.schema, part.source)
        added = Entries.of(part.keys, part.values)
        if fold is not None:
            added = Entries(added.keys, fold.without_deleted(added.values, part.source))
        changes.add(added)
    counts.log_records = changes.count
    writer = HFileWriter(sink.write, schema, _options(base, instant), even=True)
    merge = _ShardMerge(writer, counts, fold, "the log files" if base is None else base.name)
    if base is None:
        merge.streams(iter(()), changes.batches())
    elif any(map(sorts_differently, base.first_keys.to_pylist())):
        stored = SortedEntries(bounds.scratch, "base", bounds.held_bytes // 2)
        for run in base.runs(range(base.block_count)):
            stored.add(Entries.of(run.content.keys, run.content.values))
        merge.streams(stored.batches(), changes.batches())
    else:
        merge.blocks(base, _Ahead(changes.batches()))
    counts.rows = (0 if base is None else base.entry_count) + counts.inserts - counts.deletes
    counts.size = writer.finish(counts.rows - writer.appended)
    counts.digest = counts.rows, counts.digest[1]
    return counts


def _copied_schema(schema: str, source: str) -> str:
    """The schema of values that are copied as bytes; "" stands for ours."""
    if schema and not has_own_layout(schema):
        raise UnsupportedTableError(
            f"{source} holds records of the metadata table under another schema than Hudi 1.2 has",
            "Compact the metadata table with the engine that wrote it",
        )
    return schema or metadata_record_schema()


def _options(base: HFileReader | None, instant: str) -> HFileOptions:
    """Blocks can be copied only within one codec: the new file has that of the old one."""
    codec = DEFAULT_OPTIONS.codec if base is None else base.codec
    return HFileOptions(codec=codec, create_time_ms=instant_to_ms(instant))


class _Ahead:
    """Sorted changes, of which the next key is known before they are taken."""

    def __init__(self, batches: Iterator[Entries]) -> None:
        self._batches = batches
        self._head = next(batches, None)

    @property
    def next_key(self) -> bytes | None:
        return None if self._head is None else self._head.key_at(0)

    def has_some(self, lowest: bytes, upper: bytes | None) -> bool:
        """Whether a key from `lowest` up to `upper` is known to come. False may also mean: not known yet."""
        if self._head is None:
            return False
        at = self._head.first_at_or_after(lowest)
        return at < len(self._head) and (upper is None or self._head.key_at(at) < upper)

    def below(self, upper: bytes | None) -> Iterator[Entries]:
        """Takes the changes of all keys below `upper` (None: all)."""
        while (head := self._head) is not None:
            end = len(head) if upper is None else head.first_at_or_after(upper)
            self._head = head.slice(end, len(head)) if end < len(head) else next(self._batches, None)
            if end:
                yield head.slice(0, end)
            if end < len(head):
                return


class _ShardMerge:
    def __init__(self, writer: HFileWriter, counts: MergeCounts, fold: KeyFold | None, source: str) -> None:
        self._writer, self._counts = writer, counts
        self._fold, self._source = fold, source

    def blocks(self, base: HFileReader, changes: _Ahead) -> None:
        """Goes through the base file's blocks."""
        firsts: list[bytes] = base.first_keys.to_pylist()
        at, end = 0, len(firsts)
        while at < end:
            key = changes.next_key
            # Everything below this block's first key was taken, so the key's block is no earlier one.
            touched = end if key is None else max(bisect_right(firsts, key, lo=at) - 1, at)
            self._copy(base, range(at, touched))
            if touched == end:
                break
            at, size = touched + 1, base.block_bytes(touched)
            while at < end and size < _GROUP_BYTES:
                upper = firsts[at + 1] if at + 1 < end else None
                if not changes.has_some(firsts[at], upper):
                    break
                size += base.block_bytes(at)
                at += 1
            self.streams(_decoded(base, range(touched, at)), changes.below(firsts[at] if at < end else None))
        if not end:
            self.streams(iter(()), changes.below(None))

    def streams(self, base: Iterator[Entries], changes: Iterator[Entries]) -> None:
        """Merges sorted entries with sorted changes."""
        for stored, changed in windows([base, changes]):
            merged = self._merged(stored, changed) if len(changed) else stored
            self._writer.append(merged.keys, merged.values)

    def _merged(self, stored: Entries, changed: Entries) -> Entries:
        both = Entries.concat([stored, changed])
        if self._fold is None:
            self._count(stored, changed.keys, ~np.asarray(pc.is_null(changed.values)))
            return both.newest_sorted().live()
        merged = folded(both.all_sorted(), self._fold, self._source)
        touched = pc.unique(changed.keys)
        self._count(stored, touched, np.asarray(pc.is_in(touched, value_set=merged.keys)))
        return merged

    def _copy(self, base: HFileReader, numbers: range) -> None:
        for number, block in zip(numbers, base.stored(numbers), strict=True):
            if self._is_copied(block):
                self._writer.copy(block)
            else:
                self.streams(_decoded(base, range(number, number + 1)), iter(()))

    def _is_copied(self, block: StoredBlock) -> bool:
        united = self._writer.pending_bytes and block.payload_bytes < _SMALL_BLOCK_BYTES
        return not united and block.checksum_bytes < ENTRY_OVERHEAD_BYTES

    def _count(self, stored: Entries, touched: pa.BinaryArray, lives: npt.NDArray[np.bool_]) -> None:
        """``touched``: the keys that have changes, each once. ``lives``: whether they have an entry then."""
        known = np.asarray(pc.is_in(touched, value_set=stored.keys))
        came, went = ~known & lives, known & ~lives
        counts = self._counts
        counts.updates += int((known & lives).sum())
        counts.inserts += int(came.sum())
        counts.deletes += int(went.sum())
        total = counts.digest[1] + _hash_sum(touched.filter(pa.array(came)))
        counts.digest = 0, (total - _hash_sum(touched.filter(pa.array(went)))) % MODULUS


def _hash_sum(keys: pa.Array) -> int:
    return key_digest(keys)[1]


def _decoded(base: HFileReader, numbers: range) -> Iterator[Entries]:
    for run in base.runs(numbers):
        yield Entries.of(run.content.keys, run.content.values).newest_sorted()
