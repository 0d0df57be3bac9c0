"""Reads the log files of one slice of the metadata table: which blocks count, and in which order they are
merged.

Invariants (METADATA_TABLE.md, sections 5.2 and 8.1): blocks count by their own INSTANT_TIME; blocks of an
instant that a rollback command names do not; blocks that log compaction folded are replaced by the folded
block (`log_file.folding`). A folded block is used only if everything in it counts; otherwise its originals
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.log_file import BlockType, LogBlock, read_blocks
from tidemark.hudi_format.log_file.folding import merge_instants
from tidemark.hudi_format.lost_ends import check_empty
from tidemark.hudi_format.storage.base import Storage, join_path

_DATA_TYPES = frozenset({BlockType.HFILE_DATA, BlockType.DELETE})


@dataclass(frozen=True, slots=True)
class SourcedBlock:
    """A block and the path of its file, for messages."""

    block: LogBlock
    path: str


def read_log_blocks(storage: Storage, folder: str, names: Sequence[str]) -> list[SourcedBlock]:
    """All blocks of the log files, in the order of the names. Raises FileMissingError, CorruptFileError."""
    blocks: list[SourcedBlock] = []
    for name in names:
        path = join_path(folder, name)
        data = storage.read(path)
        if not data:
            check_empty(storage, path)
        blocks.extend(SourcedBlock(block, path) for block in read_blocks(data, path))
    return blocks


def merge_order(blocks: Sequence[SourcedBlock], is_valid: Callable[[str], bool]) -> list[SourcedBlock]:
    """The data and delete blocks that count, oldest first. Raises CorruptFileError for a block of another
    kind.
    """
    valid = [each for each in blocks if is_valid(each.block.instant_time)]
    rolled_back = {each.block.rolled_back_instant for each in valid} - {None}
    counting: list[SourcedBlock] = []
    for each in valid:
        if each.block.block_type is BlockType.COMMAND or each.block.instant_time in rolled_back:
            continue
        if each.block.block_type not in _DATA_TYPES:
            raise CorruptFileError(
                f"{each.path}: a {each.block.block_type.name} block at offset {each.block.offset} "
                "does not belong in the metadata table"
            )
        counting.append(each)
    if not any(each.block.compacted_block_times for each in counting):
        return counting
    return _with_folded(counting, {each.block.instant_time for each in blocks}, is_valid)


def _with_folded(
    blocks: list[SourcedBlock], in_slice: set[str], is_valid: Callable[[str], bool]
) -> list[SourcedBlock]:
    """`in_slice`: all instants that have blocks there, also those that do not count."""
    by_instant: dict[str, list[SourcedBlock]] = {}
    for each in blocks:
        by_instant.setdefault(each.block.instant_time, []).append(each)
    covered = {
        instant: frozenset(time for each in group for time in each.block.compacted_block_times)
        for instant, group in by_instant.items()
    }
    usable = {
        instant
        for instant, times in covered.items()
        if times and all(is_valid(time) for time in _transitive(instant, covered))
    }
    for instant in covered.keys() - usable:
        # Of a folded block that is here without any original nothing is missing: it would not be used.
        if not in_slice.isdisjoint(covered[instant]):
            _require_originals({time for time in covered[instant] if is_valid(time)}, by_instant)
    instants = sorted(instant for instant in by_instant if not covered[instant] or instant in usable)
    order = merge_instants(instants, {instant: covered[instant] for instant in usable})
    return [each for instant in order for each in by_instant[instant]]


def _transitive(instant: str, covered: dict[str, frozenset[str]]) -> set[str]:
    """All instants that a folded block holds, through earlier foldings too."""
    found: set[str] = set()
    open_times = list(covered.get(instant, ()))
    while open_times:
        time = open_times.pop()
        if time not in found:
            found.add(time)
            open_times.extend(covered.get(time, ()))
    return found


def _require_originals(times: set[str], by_instant: dict[str, list[SourcedBlock]]) -> None:
    missing = sorted(time for time in times if time not in by_instant)
    if missing:
        raise FileMissingError(
            f"log blocks of {', '.join(missing)} are folded into one that does not count yet, "
            "and are gone themselves: reload the timelines"
        )
