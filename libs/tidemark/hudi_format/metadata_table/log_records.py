"""Reads the files of one slice of the metadata table as stored entries, in the order in which a partition
merges them.

Rules for log blocks (METADATA_TABLE.md, sections 5.2 and 8.1):

1. A block counts if the instant in its own header (INSTANT_TIME) is valid, whatever its file is called.
2. A block of an instant that a rollback command names does not count.
3. A block that log compaction made replaces the blocks that were folded into it (`log_file.folding`), if all
   of these count. Otherwise the originals are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.file_group.lost_ends import check_empty
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.log_file import (
    BlockType,
    LogBlock,
    decode_deletes,
    read_block_at,
    read_blocks,
    scan_heads,
)
from tidemark.hudi_format.log_file.folding import merge_instants
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.storage.base import Storage, join_path

_DATA_TYPES = frozenset({BlockType.HFILE_DATA, BlockType.DELETE})


@dataclass(frozen=True, slots=True)
class SourcedBlock:
    """A log block and the path of its file, which errors name."""

    block: LogBlock
    path: str


def read_log_blocks(storage: Storage, folder: str, names: Sequence[str]) -> list[SourcedBlock]:
    """All blocks of the log files, in the order of the names, also those that do not count.

    Raises FileMissingError, CorruptFileError.
    """
    blocks: list[SourcedBlock] = []
    for name in names:
        path = join_path(folder, name)
        data = storage.read(path)
        if not data:
            check_empty(storage, path)
        blocks.extend(SourcedBlock(block, path) for block in read_blocks(data, path))
    return blocks


def slice_entries(
    storage: Storage, folder: str, file_slice: FileSlice, is_valid: Callable[[str], bool]
) -> Iterator[StoredEntries]:
    """All entries of the slice, oldest first: the whole base file, then the log files.

    `is_valid`: whether blocks of an instant count. Raises FileMissingError, CorruptFileError.
    """
    if file_slice.base_file is not None:
        base = HFileReader.open(storage, join_path(folder, file_slice.base_file))
        content = base.read_all()
        yield StoredEntries(content.keys, content.values, base.schema, base.name)
    yield from log_entries(storage, folder, file_slice.log_files, is_valid)


def streamed_slice_entries(
    storage: Storage, folder: str, file_slice: FileSlice, is_valid: Callable[[str], bool]
) -> Iterator[StoredEntries]:
    """What `slice_entries` yields, the base file in several parts, with some blocks in memory at a time."""
    if file_slice.base_file is not None:
        base = HFileReader.open(storage, join_path(folder, file_slice.base_file))
        for run in base.runs(range(base.block_count)):
            yield StoredEntries(run.content.keys, run.content.values, base.schema, base.name)
    yield from streamed_log_entries(storage, folder, file_slice.log_files, is_valid)


def log_entries(
    storage: Storage, folder: str, names: Sequence[str], is_valid: Callable[[str], bool]
) -> Iterator[StoredEntries]:
    """The entries of the log files' blocks that count, oldest first. Raises as `slice_entries`."""
    return map(stored_entries, merge_order(read_log_blocks(storage, folder, names), is_valid))


def streamed_log_entries(
    storage: Storage, folder: str, names: Sequence[str], is_valid: Callable[[str], bool]
) -> Iterator[StoredEntries]:
    """What `log_entries` yields, with one block in memory at a time: the files are opened twice."""
    return blocks_entries(storage, merge_order(block_heads(storage, folder, names), is_valid))


def block_heads(storage: Storage, folder: str, names: Sequence[str]) -> list[SourcedBlock]:
    """What `read_log_blocks` returns, without the blocks' contents."""
    heads: list[SourcedBlock] = []
    for name in names:
        path = join_path(folder, name)
        with storage.open_input(path) as file:
            if not file.size():
                check_empty(storage, path)
            heads.extend(SourcedBlock(block, path) for block in scan_heads(file, path))
    return heads


def blocks_entries(storage: Storage, heads: Iterable[SourcedBlock]) -> Iterator[StoredEntries]:
    """The entries of these blocks, of which one is in memory at a time."""
    return map(stored_entries, blocks_read(storage, heads))


def blocks_read(storage: Storage, heads: Iterable[SourcedBlock]) -> Iterator[SourcedBlock]:
    """These blocks with their contents, of which one is in memory at a time."""
    for path, blocks in groupby(heads, key=lambda sourced: sourced.path):
        with storage.open_input(path) as file:
            for sourced in blocks:
                yield SourcedBlock(read_block_at(file, path, sourced.block.offset), path)


def stored_entries(source: SourcedBlock) -> StoredEntries:
    """The entries of a data or a delete block. Raises CorruptFileError."""
    block = source.block
    if block.block_type is BlockType.DELETE:
        return StoredEntries(decode_deletes(block.content, source.path).keys, None, "", source.path)
    name = f"{source.path} (block at offset {block.offset})"
    reader = HFileReader.from_bytes(block.content, name)
    content = reader.read_all()
    # The block's header has the schema as well as the HFile, and not compressed.
    return StoredEntries(content.keys, content.values, block.schema or reader.schema, name)


def merge_order(blocks: Sequence[SourcedBlock], is_valid: Callable[[str], bool]) -> list[SourcedBlock]:
    """The data and delete blocks that count, oldest first. Raises CorruptFileError for a block of another
    kind, FileMissingError where blocks are folded into one that does not count, and are gone themselves.
    """
    valid = [sourced for sourced in blocks if is_valid(sourced.block.instant_time)]
    rolled_back = {sourced.block.rolled_back_instant for sourced in valid} - {None}
    counting: list[SourcedBlock] = []
    for sourced in valid:
        if sourced.block.block_type is BlockType.COMMAND or sourced.block.instant_time in rolled_back:
            continue
        if sourced.block.block_type not in _DATA_TYPES:
            raise CorruptFileError(
                f"{sourced.path}: a {sourced.block.block_type.name} block at offset {sourced.block.offset} "
                "does not belong in the metadata table"
            )
        counting.append(sourced)
    if not any(sourced.block.compacted_block_times for sourced in counting):
        return counting
    return _with_folded(counting, {sourced.block.instant_time for sourced in blocks}, is_valid)


def _with_folded(
    blocks: list[SourcedBlock], in_slice: set[str], is_valid: Callable[[str], bool]
) -> list[SourcedBlock]:
    """`blocks` with folded ones in the place of their originals. `in_slice`: all instants that have blocks in
    the slice, also those that do not count.
    """
    by_instant: dict[str, list[SourcedBlock]] = {}
    for sourced in blocks:
        by_instant.setdefault(sourced.block.instant_time, []).append(sourced)
    covered = {
        instant: frozenset(time for sourced in group for time in sourced.block.compacted_block_times)
        for instant, group in by_instant.items()
    }
    usable = {
        instant
        for instant, times in covered.items()
        if times and all(is_valid(time) for time in _transitive(instant, covered))
    }
    for instant in covered.keys() - usable:
        # A folded block none of whose originals ever was in this slice leaves no gap when it is not used.
        if not in_slice.isdisjoint(covered[instant]):
            _require_originals({time for time in covered[instant] if is_valid(time)}, by_instant)
    instants = sorted(instant for instant in by_instant if not covered[instant] or instant in usable)
    order = merge_instants(instants, {instant: covered[instant] for instant in usable})
    return [sourced for instant in order for sourced in by_instant[instant]]


def _transitive(instant: str, covered: dict[str, frozenset[str]]) -> set[str]:
    """All instants that a folded block holds, also those that were folded into one of its originals."""
    folded: set[str] = set()
    open_times = list(covered.get(instant, ()))
    while open_times:
        time = open_times.pop()
        if time not in folded:
            folded.add(time)
            open_times.extend(covered.get(time, ()))
    return folded


def _require_originals(times: set[str], by_instant: dict[str, list[SourcedBlock]]) -> None:
    missing = sorted(time for time in times if time not in by_instant)
    if missing:
        raise FileMissingError(
            f"log blocks of {', '.join(missing)} are folded into one that does not count yet, "
            "and are gone themselves: reload the timelines"
        )
